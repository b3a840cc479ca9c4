"""Control flow of torch, ``torch.ops.higher_order``: branches, loops, scans and inlined bodies.

A body is a graph of its own, which the importer converts with given values for its placeholders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch.fx
from torch._ops import HigherOrderOperator

from weft import op
from weft.frontend.common.loops import Loop, run_loop
from weft.frontend.common.typed import tensor_type
from weft.frontend.torch.node import Node
from weft.ir import Constant, Expr, If, SymDim, Tuple, TupleType
from weft.support.errors import UnsupportedModelError


class Bodies(Protocol):
    """What converters of control flow need of the importer."""

    @property
    def values(self) -> dict[str, Any]: ...

    def value(self, argument: Any) -> Any: ...

    def convert_body(self, body: torch.fx.GraphModule, arguments: Sequence[Any]) -> list[Any]:
        """The results of ``body``; each call builds new expressions."""


ControlFlow: TypeAlias = Callable[[Bodies, Node, Sequence[Any]], Any]


def control_flow(node: torch.fx.Node) -> ControlFlow | None:
    """The converter of a higher-order operator; ``None`` for other nodes."""
    if not isinstance(node.target, HigherOrderOperator):
        return None
    return _CONVERTERS.get(node.target.name())


def cond(scope: Bodies, node: Node, raw: Sequence[Any]) -> list[Expr]:
    """``torch.cond(predicate, true_body, false_body, operands)``."""
    predicate, operands = scope.value(raw[0]), scope.value(raw[3])
    if not isinstance(predicate, Expr) or isinstance(predicate, Constant):
        known = predicate.data.item() if isinstance(predicate, Constant) else predicate
        return scope.convert_body(raw[1] if known else raw[2], operands)
    sides = [_tuple_of(node, scope.convert_body(body, operands)) for body in raw[1:3]]
    types = [side.checked_type for side in sides]
    if types[0] != types[1]:
        raise UnsupportedModelError("the branches return different types", where=node.span,
                                    expected=str(types[0]), got=str(types[1]))
    chosen = If(node.reshape(predicate, ()), *sides, span=node.span, checked_type=types[0])
    return [node.field(chosen, i) for i in range(len(sides[0].fields))]


def while_loop(scope: Bodies, node: Node, raw: Sequence[Any]) -> list[Expr]:
    """``while_loop(condition, body, carried, captured)``."""
    captured = scope.value(raw[3])
    carried = tuple(_tensor(node, value) for value in scope.value(raw[2]))

    def going(state: Sequence[Any]) -> Expr:
        (found,) = scope.convert_body(raw[0], [*state, *captured])
        return node.reshape(_tensor(node, found), ())

    def step(_i: Expr, _going: Expr, state: Sequence[Expr]) -> list[Expr]:
        after = [_tensor(node, v) for v in scope.convert_body(raw[1], [*state, *captured])]
        return [going(after), *after]

    forever = node.constant(np.iinfo(np.int64).max, "int64")
    return run_loop(Loop(node, forever, going(carried), carried, step, _known(scope)))


def scan(scope: Bodies, node: Node, raw: Sequence[Any]) -> list[Expr]:
    """``scan(body, carried, sequences, captured)``: the last values, and the stacked results."""
    captured = scope.value(raw[3])
    return _over_rows(scope, node, scope.value(raw[1]), scope.value(raw[2]),
                      lambda state, rows: scope.convert_body(raw[0], [*state, *rows, *captured]))


def map_(scope: Bodies, node: Node, raw: Sequence[Any]) -> list[Expr]:
    """``map(body, sequences, captured)``: the stacked results."""
    captured = scope.value(raw[2])
    return _over_rows(scope, node, (), scope.value(raw[1]),
                      lambda _state, rows: scope.convert_body(raw[0], [*rows, *captured]))


def _over_rows(scope: Bodies, node: Node, carried: Sequence[Any], sequences: Sequence[Expr],
               body: Callable[[Sequence[Expr], Sequence[Expr]], Sequence[Any]]) -> list[Expr]:
    """A loop over axis 0 of ``sequences``."""
    length = tensor_type(sequences[0]).shape[0]

    def step(i: Expr, going: Expr, state: Sequence[Expr]) -> list[Expr]:
        rows = [node.call(op.take, x, i, axis=0, mode="clip") for x in sequences]
        return [going, *(_tensor(node, value) for value in body(state, rows))]

    first = tuple(_tensor(node, value) for value in carried)
    return run_loop(Loop(node, node.tensor(length, "int64"), node.constant(True, "bool"), first,
                         step, _known(scope), length))


def _inlined(first: int) -> ControlFlow:
    """An operator that runs its first argument on those from ``first`` on."""
    def convert(scope: Bodies, _node: Node, raw: Sequence[Any]) -> list[Any]:
        given = raw[first:]
        if len(given) == 1 and isinstance(given[0], (list, tuple)):
            given = given[0]
        return scope.convert_body(raw[0], scope.value(given))

    return convert


def _known(scope: Bodies) -> list[Expr]:
    """All tensors that are converted so far, of tuples each one."""
    found = []
    for value in scope.values.values():
        parts = value if isinstance(value, (list, tuple)) else (value,)
        found += (part for part in parts if isinstance(part, Expr))
    return found


def _tensor(node: Node, value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float, SymDim)):
        kind = "bool" if isinstance(value, bool) else "int64"
        return node.tensor(value, "float32" if isinstance(value, float) else kind)
    raise node.unsupported("a body returns a value that is not a tensor", got=repr(value))


def _tuple_of(node: Node, values: Sequence[Any]) -> Tuple:
    fields = tuple(_tensor(node, value) for value in values)
    types = TupleType(tuple(field.checked_type for field in fields))  # type: ignore[misc]
    return Tuple(fields, span=node.span, checked_type=types)


_CONVERTERS: dict[str, ControlFlow] = {
    "cond": cond, "while_loop": while_loop, "scan": scan, "map_impl": map_,
    "wrap": _inlined(1), "invoke_subgraph": _inlined(2), "tag_activation_checkpoint": _inlined(1),
    "strict_mode": _inlined(1), "hints_wrapper": _inlined(1),
}
