"""Converters of control flow: If, Loop, Scan.

An If with a constant condition is replaced by the taken branch, and a loop with a small constant
trip count is unrolled. Other nodes become ``If`` expressions and recursive functions of the IR.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.frontend.common import arrays
from weft.frontend.onnx.loops import MAX_UNROLLED_NODES, run_loop
from weft.frontend.onnx.node import Body, Node, Value, constant_value, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to, stacked
from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir import Constant, Expr, If, Tuple, TupleType
from weft.support.errors import UnsupportedModelError

_MANY = 1 << 20


@converts("If", attributes=("then_branch", "else_branch"), outputs=_MANY)
def if_(node: Node) -> Sequence[Value]:
    then, other = node.body("then_branch"), node.body("else_branch")
    condition = node.input(0)
    known = constant_value(condition)
    if known is not None:
        if known.size != 1:
            raise node.fail("the condition is not a scalar", got=f"shape {known.shape}")
        return (then if known.reshape(()) else other).convert(())
    sides = [_side(node, body) for body in (then, other)]
    types = [side.checked_type for side in sides]
    if types[0] != types[1]:
        raise UnsupportedModelError(
            "the branches of If return different types",
            where=node.span,
            expected=str(types[0]),
            got=str(types[1]),
            help="give the condition as a constant, or make the branches agree",
        )
    scalar = reshape_to(node, condition, ())
    chosen = If(scalar, *sides, span=node.span, checked_type=types[0])
    return [node.field(chosen, i) for i in range(len(sides[0].fields))]


def _side(node: Node, body: Body) -> Tuple:
    values = body.convert(())
    if not all(isinstance(value, (Expr, ShapeValue)) for value in values):
        raise UnsupportedModelError("a branch of If returns a value that is not a tensor",
                                    where=node.span)
    results = tuple(map(node.tensor, values))
    types = TupleType(tuple(r.checked_type for r in results))  # type: ignore[misc]
    return Tuple(results, span=node.span, checked_type=types)


@converts("Loop", attributes=("body",), outputs=_MANY)
def loop(node: Node) -> Sequence[Value]:
    """Inputs: trip count, initial condition, loop-carried values."""
    body, carried = node.body("body"), list(node.inputs[2:])
    if body.input_count != len(carried) + 2 or any(v is None for v in carried):
        raise node.fail(
            "the loop body has the wrong number of inputs",
            expected=f"{body.input_count - 2} values",
            got=str(len(carried)),
        )
    unrolled = _unrolled(node, body, carried)  # type: ignore[arg-type]
    if unrolled is not None:
        return unrolled
    trips = node.input(0) if node.has_input(0) else node.constant(np.iinfo(np.int64).max, "int64")
    going = node.input(1) if node.has_input(1) else node.constant(True, "bool")
    trips, going = (reshape_to(node, value, ()) for value in (trips, going))
    first = tuple(node.input(2 + i) for i in range(len(carried)))
    return run_loop(
        node, trips, going, first, lambda i, condition, state: body.convert((i, condition, *state)),
        length=node.dim(0, "M") if isinstance(node.inputs[0], ShapeValue) else None,
    )  # fmt: skip


def _unrolled(node: Node, body: Body, carried: list[Value]) -> list[Value] | None:
    """Unroll the loop; ``None`` if the trip count depends on data or is too large."""
    limit = _known_scalar(node, 0, None)
    going = _known_scalar(node, 1, True)
    if going is None or (node.has_input(0) and limit is None):
        return None
    trips = 0
    scanned: list[tuple[Value, ...]] = []
    while going and (limit is None or trips < limit):
        if (trips + 1) * body.size > MAX_UNROLLED_NODES:
            return None
        inputs = (node.constant(trips, "int64"), node.constant(going, "bool"), *carried)
        condition, *results = body.convert(inputs)
        known = constant_value(condition) if isinstance(condition, Expr) else None
        if known is None or known.size != 1:
            return None
        going, trips = bool(known.reshape(())), trips + 1
        carried, scan = results[: len(carried)], results[len(carried) :]
        scanned.append(tuple(scan))
    if not scanned:
        blank = body.convert((node.constant(0, "int64"), node.constant(True, "bool"), *carried))
        return [*carried, *(_empty_stack(node, v) for v in blank[len(carried) + 1 :])]
    parts = [_tensors(node, part) for part in zip(*scanned, strict=True)]
    return [*carried, *(stacked(node, part, 0) for part in parts)]


def _known_scalar(node: Node, index: int, default: bool | None) -> int | bool | None:
    if not node.has_input(index):
        return default
    value = constant_value(node.input(index))
    if value is None:
        return None
    if value.size != 1:
        raise node.fail(f"input {index} must have exactly one element", got=f"shape {value.shape}")
    return value.reshape(()).item()


def _tensors(node: Node, values: Sequence[Value]) -> list[Expr]:
    return list(map(node.tensor, values))


def _empty_stack(node: Node, value: Value) -> Expr:
    """Return the stacked scan output of a loop that runs zero times."""
    (part,) = _tensors(node, (value,))
    type_ = tensor_type(part)
    sizes = tuple(d if isinstance(d, int) else 0 for d in type_.shape)
    return Constant(arrays.zeros((0, *sizes), type_.dtype.numpy), span=node.span)
