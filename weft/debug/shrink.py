"""Cut a failing model down to the few operators that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

import weft
from weft.debug.compare import DEFAULT_BOUND, difference
from weft.debug.tensors import ModelTensors
from weft.ir import IRModule, TensorType, children, infer_type, post_order, rebuild
from weft.ir.expr import Constant, Expr, Function, Tuple, Var
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.transform.analysis.reference import evaluate

Values: TypeAlias = dict[str, np.ndarray]
# Whether a program fails on its inputs, given by name.
Fails: TypeAlias = Callable[[IRModule, Values], bool]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A small program that fails, and its inputs by name."""

    module: IRModule
    inputs: Values
    operators: int

    def save(self, folder: Path) -> None:
        """Write ``model.ir``, ``inputs.npz`` and ``reproduce.py``, which compares both results."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.ir").write_text(str(self.module), encoding="utf-8")
        np.savez(folder / "inputs.npz", **self.inputs)  # type: ignore[arg-type]
        (folder / "reproduce.py").write_text(_SCRIPT, encoding="utf-8")


_SCRIPT = '''"""Compare the compiled program with the reference interpreter."""

from pathlib import Path

import numpy as np

import weft.debug

here = Path(__file__).parent
module = weft.parse((here / "model.ir").read_text())
inputs = dict(np.load(here / "inputs.npz"))
for row in weft.debug.compare(module, inputs).rows():
    print(*row)
'''


def shrink(model: ModelTensors, name: str, *, fails: Fails | None = None,
           bound: float = DEFAULT_BOUND) -> Reproduction:
    """The smallest part around tensor ``name`` that still fails.

    Starting at the operator that computes it, operators before it are added, one step at a time,
    until the part fails; what is cut off is replaced by inputs with the values of the reference
    interpreter. ``fails`` decides; by default, whether compiled code and the interpreter differ by
    more than ``bound``. Raises ``OptionError`` if the whole model does not fail.
    """
    failing = fails or (lambda module, inputs: _differs(module, inputs, bound))
    target = model.expression(name)
    depths = _depths(target)
    for depth in range(1, max(depths.values()) + 2):
        part, inputs = _part(model, target, {e for e, d in depths.items() if d < depth})
        if failing(part, inputs):
            return Reproduction(part, inputs, len([e for e, d in depths.items() if d < depth]))
    raise OptionError(f"no part of the model that computes {name!r} fails",
                      help="give a smaller bound, or a tensor that comparison marks as wrong")


def _differs(module: IRModule, inputs: Values, bound: float) -> bool:
    values = list(inputs.values())
    got, want = weft.compile(module)(*values), evaluate(module, values)
    return difference("", np.asarray(got), np.asarray(want)).exceeds(bound)


def _depths(target: Expr) -> dict[Expr, int]:
    """The number of steps from each expression to ``target``, the shortest way."""
    found = {target: 0}
    pending = [target]
    for node in pending:
        for child in children(node):
            if child not in found and not isinstance(child, Function):
                found[child] = found[node] + 1
                pending.append(child)
    return found


def _part(model: ModelTensors, target: Expr, kept: set[Expr]) -> tuple[IRModule, Values]:
    """The program that computes ``target`` by the expressions ``kept``, and its inputs."""
    params: dict[Expr, Var] = {}

    def replaced(node: Expr) -> bool:
        if node in kept and not isinstance(node, Var):
            return False
        is_tensor = isinstance(node.checked_type, TensorType)
        return is_tensor and not isinstance(node, Constant)

    memo: dict[Expr, Expr] = {}
    for node in post_order(target, enter=lambda e: not replaced(e)):
        if replaced(node):
            var = Var(f"t{len(params)}", node.checked_type, checked_type=node.checked_type)
            memo[node] = params[node] = var
        else:
            memo[node] = rebuild(node, [memo[c] for c in children(node)])
    main = Function(tuple(params.values()), memo[target])
    module = infer_type(IRModule({**model.module.functions, "main": main},
                                 model.module.type_definitions))
    return module, {var.name: value for var, value in
                    zip(params.values(), _values(model, params), strict=True)}


def _values(model: ModelTensors, wanted: Mapping[Expr, Var]) -> list[np.ndarray]:
    """The values of expressions of the model in the reference interpreter."""
    if not wanted:
        return []
    function = model.module["main"]
    program = infer_type(IRModule(
        {**model.module.functions, "main": Function(function.params, Tuple(tuple(wanted)))},
        model.module.type_definitions))
    return [np.asarray(v) for v in evaluate(program, list(model.feeds.values()))]
