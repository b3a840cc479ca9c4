"""``weft.compile`` and ``weft.parse``.

This module imports neither the compiler nor a front end: a model that was compiled before starts
from the cache without them (``weft.compiler.warm_start``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.compiler.request import CompileRequest
from weft.compiler.warm_start import compiler_is_loaded, open_warm, remember
from weft.runtime.devices.cpu.host import usable_cpus
from weft.support import progress
from weft.support.config import config
from weft.support.file_content import FileContent
from weft.support.interpreter import rare_collections

if TYPE_CHECKING:
    from weft.compiler.cache import Remember
    from weft.compiler.compile_model import ModelCompiler
    from weft.compiler.device_options import DevicesLike, PlacementLike
    from weft.compiler.extensions import PassesLike, RulesLike, TirPassesLike
    from weft.compiler.options import SpecializeLike, TargetLike
    from weft.frontend.source import Examples, ModelLike
    from weft.ir.module import IRModule
    from weft.runtime.executable import Executable

__all__ = ["compile", "parse"]

# Models of larger files take longer to compile than a process to start.
_LARGE_BYTES = 4 << 20


def parse(text: str) -> IRModule:
    """The typed module of a program in weft's text form; ``str(module)`` is such a text.

    Raises ``ParseError`` and ``TypeInferenceError``.
    """
    from weft import ir, op  # noqa: F401 - programs refer to operators by name
    from weft.support.plugins import load_plugins

    load_plugins()
    return ir.infer_type(ir.parse(text))


def compile(
    model: ModelLike,
    *,
    target: TargetLike = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    opt_level: int = 3,
    passes: PassesLike = (),
    rules: RulesLike = (),
    tir_passes: TirPassesLike = (),
    codegens: Sequence[str] = (),
    specialize: SpecializeLike = None,
    state: Mapping[str, str] | None = None,
    outputs: Sequence[str] | None = None,
    devices: DevicesLike = None,
    placement: PlacementLike = None,
    soft_placement: bool = False,
    strict: bool = False,
    tier: str = "full",
    **knobs: Any,
) -> Executable:
    """Compile ``model`` for ``target``.

    ``model`` is a path (ONNX, a GraphDef as ``.pb`` or ``.pbtxt``, text of the functional IR as
    ``.ir``), the bytes of an ONNX model, or a model of another kind: ``onnx.ModelProto``; modules
    of torch and ``weft.nn`` and functions of tensors (with ``example_inputs``);
    ``ExportedProgram``, ``weft.graph.Graph``, ``IRModule``, ``Function``, ``@weft.function``.

    ``target`` is a ``Target`` or its text (``"llvm -mcpu=haswell"``); by default this machine. For
    a GPU (``"cuda -arch=sm_90a"``), what it cannot run is compiled for this machine's CPU, or for
    the one that ``{"gpu": "cuda", "host": "llvm -mcpu=haswell"}`` names.
    ``inputs`` overrides shapes by input name; a name as a size makes it symbolic:
    ``{"x": ("batch", 3, 224, 224)}``. One program then runs at all sizes (docs/dynamic_shapes.md);
    ``specialize`` asks for faster kernels at some sizes: ``{"batch": [1, 8, (2, 4)]}``, or
    ``[{"batch": 1, "seq": (1, 16)}]`` for several at once. ``opt_level`` is 0 (none) to 3.

    ``outputs`` are the tensors to compute instead of the outputs of the model, by its names: ONNX
    values, torch's nodes and module paths, variables and operators of a program (docs/graphs.md).
    Such a name in ``inputs`` makes the tensor an input, of the given shape, or its own (``None``).

    ``state`` maps an output to the input that it is the next value of: ``{"present": "past"}``. The
    module keeps that tensor itself, zeros at first, and updates it in place; calls neither take
    nor return it (``Executable.state``).

    ``devices``, ``placement``, ``soft_placement`` spread it over several devices (docs/graphs.md).
    ``passes`` are users' passes over the IR, ``rules`` rewrite rules that ``simplify_expr`` applies
    before its own, ``tir_passes`` functions over the loops of each kernel; ``weft.pass_at`` gives a
    pass its position. ``codegens`` name external code generators (docs/codegen.md).
    ``strict`` raises ``StrictError`` where weft otherwise warns of what it does instead, also in
    calls of the result (``weft.FallbackWarning``; docs/performance.md, "What weft does instead").
    ``tier="fast"`` answers sooner and makes faster code in a thread (docs/compile_time.md).
    ``knobs`` are settings of ``weft.config``, such as ``debug=5`` and ``precision="int4"``
    (docs/quantization.md). Calls also of artifacts use ``threads=n`` if it is not overridden.

    Raises ``InvalidModelError``, ``UnsupportedModelError``, ``TypeInferenceError``,
    ``OptionError``, ``PassError``, ``TargetError``, ``MissingToolError`` and ``StrictError``.
    """
    return _compile(model, example_inputs, CompileRequest(
        target, inputs, opt_level, passes, rules, tir_passes, codegens, specialize, state, outputs,
        devices, placement, soft_placement, strict, tier, knobs))


def compile_recorded(module: IRModule, state: Mapping[str, str] | None = None) -> Executable:
    """``compile`` of a recorded program of tensors, which starts without the compiler if the cache
    has its code.
    """
    request = CompileRequest(state=state)
    found = open_warm(module, request, partial(_compiler_of, module, request))
    if found is not None:
        return found
    with rare_collections(), progress.work():
        from weft.compiler.compile_model import compile_model

        return compile_model(module, None, request, partial(remember, module, request))


def _compile(model: ModelLike, examples: Examples, request: CompileRequest) -> Executable:
    """Compile a model; the content of a file is read while the compiler is imported."""
    if not isinstance(model, (str, os.PathLike)):
        # Models of other libraries may leave cyclic garbage that holds weights.
        with rare_collections():
            return _compile_cold(model, examples, request, None, None)
    with rare_collections(ages=True):
        if examples is None:
            found = open_warm(Path(model), request, partial(_compiler_of, model, request))
            if found is not None:
                return found
        file = FileContent.of(model)
        note = partial(remember, Path(file), request)
        return _compile_cold(file, examples, request, file, note)


def _compile_cold(model: ModelLike, examples: Examples, request: CompileRequest,
                  file: FileContent | None, note: Remember | None) -> Executable:
    """Compile a model whose code may be in the cache, or which is ``file``."""
    with _read_ahead(file, request), progress.work():
        from weft.compiler.compile_model import compile_model

        return compile_model(model, examples, request, note)


def _compiler_of(model: ModelLike, request: CompileRequest) -> ModelCompiler:
    from weft.compiler.compile_model import compiler_of

    with request.settings():
        return compiler_of(model, None, request)


@contextmanager
def _read_ahead(file: FileContent | None, request: CompileRequest) -> Iterator[None]:
    """Hold the content of ``file``; start a process that builds kernels if it will be of use."""
    if file is None:
        yield
        return
    from weft.compiler.build.worker_process import start_spare, stop_spare

    is_of_use = _is_first_and_large(file, request)
    with file.held():
        if is_of_use:
            start_spare()
        try:
            yield
        finally:
            stop_spare()


def _is_first_and_large(file: FileContent, request: CompileRequest) -> bool:
    """Whether a process that builds kernels will be of use, so that it had better start now."""
    jobs = request.knobs.get("build_jobs") or config.build_jobs or usable_cpus()
    try:
        size = os.stat(file).st_size  # noqa: PTH116 - also takes what Path refuses
    except (OSError, ValueError, TypeError):
        return False  # the front end reports it
    if size < _LARGE_BYTES or jobs <= 1 or compiler_is_loaded():
        return False
    from weft.support.fingerprint import holds_kernels

    # A model whose kernels others have too needs few new ones. If not, processes start later.
    return not holds_kernels()
