"""``weft.remat``: a memory budget for the intermediate results of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.codegen import backend_of
from weft.compiler.options import CompileOptions
from weft.compiler.program.program import KernelSource, Program
from weft.frontend.source import ModelLike
from weft.ir import Call, IRModule, PassContext, post_order, run_pass
from weft.runtime.sizes import evaluate
from weft.support.errors import OptionError
from weft.transform.analysis.graph import traits_of
from weft.transform.external.generate_external import external_code_of

if TYPE_CHECKING:  # few models have a budget
    from weft.compiler.program.within_budget import KernelCosts

ATTRIBUTE = "memory_budget"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20,
          "GIB": 2**30}


def remat(
    model: ModelLike,
    budget: int | str | None = None,
    *,
    mirror: Callable[[Call], bool] | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> IRModule:
    """``model`` with intermediate results computed again instead of kept in memory.

    With ``budget`` (bytes, or a text such as ``"256 MB"``), the compiled program keeps its arena,
    the memory of intermediate results, within the budget at the least estimated extra time: it
    runs kernels again whose results are cheap to compute, large, and used late (Kirisame et al.
    2021). Parameters, constants and results are not part of the arena. ``weft.compile`` raises
    ``OptionError`` with the smallest arena that it found if the budget cannot be met, and
    ``UnsupportedModelError`` for programs with branches, loops or symbolic sizes.

    With ``mirror``, a predicate of operator calls, the calls for which it holds are computed again
    for uses much later in the program (NNVM's ``mirror_fun``), whatever the memory.

    ``model`` is usually a gradient, ``weft.grad(..)``; ``inputs`` and ``example_inputs`` are those
    of ``weft.compile``. Raises ``OptionError`` for a budget that is not a number of bytes.
    """
    from weft.compiler.transformations.parameters import imported

    mod = imported(model, inputs, example_inputs)
    if mirror is not None:
        from weft.transform.autodiff.checkpoint.recompute import Recompute

        mod = run_pass(Recompute(mirror=mirror), mod, PassContext())
    return mod if budget is None else mod.with_attrs(**{ATTRIBUTE: bytes_in(budget)})


def bytes_in(budget: int | str) -> int:
    """A number of bytes, from a text such as ``"256 MB"`` (10**6 bytes) or ``"1.5 GiB"``."""
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return budget
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", budget) \
        if isinstance(budget, str) else None
    unit = None if found is None else _UNITS.get(found[2].upper())
    if found is None or unit is None:
        raise OptionError("not a number of bytes", got=repr(budget),
                          expected='0 or more, or a text such as "256 MB" or "1.5 GiB"')
    return int(float(found[1]) * unit)


def budget_of(mod: IRModule) -> int | None:
    """The budget of a module in bytes, or ``None``."""
    budget: int | None = mod.attrs.get(ATTRIBUTE)
    return budget


def within(program: Program, budget: int, options: CompileOptions) -> Program:
    """``within_budget`` with the costs of kernels for the target of ``options``."""
    from weft.compiler.program.within_budget import within_budget

    return within_budget(program, budget, lambda made: {
        number: _costs(source, options) for number, source in enumerate(made.kernels)})


def _costs(source: KernelSource, options: CompileOptions) -> KernelCosts:
    from weft.compiler.program.within_budget import KernelCosts

    if external_code_of(source.function) is not None:
        return KernelCosts(0.0, 0, may_repeat=False)
    from weft.compiler.build.kernel import lower_kernel  # imports schedules and loops

    lowered = lower_kernel(source.name, source.function, options.target,
                           options.extensions.tir_passes)
    moved = evaluate(lowered.bytes_moved, {})
    costs = backend_of(options.target).cost_model(options.target)
    seconds = lowered.seconds or moved / costs.bytes_per_second
    workspace = evaluate(lowered.func.attrs.get("workspace_bytes", 0), {})
    has_effect = any(traits_of(node).has_effect for node in post_order(source.function))
    return KernelCosts(costs.launch_seconds + seconds, workspace, may_repeat=not has_effect)
