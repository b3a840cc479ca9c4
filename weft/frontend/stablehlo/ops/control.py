"""Calls, branches and loops. A loop with a small known number of rounds is unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.common.recursion import tail_recursion, with_parameters
from weft.frontend.common.typed import tensor_type
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.frontend.stablehlo.node import Body, Node, Value, constant_in
from weft.frontend.stablehlo.regions import trees
from weft.frontend.stablehlo.registry import converts
from weft.frontend.stablehlo.syntax import Literal, Operation
from weft.frontend.stablehlo.types import array_of
from weft.ir.expr import Expr, If, Tuple, Var
from weft.ir.types import TensorType, TupleType

# Unrolled rounds can be fused and share memory, but every copy is compiled.
_MOST_UNROLLED = 400


@converts("func.call", "stablehlo.composite")
def call(node: Node, *arguments: Value) -> Sequence[Value]:
    return node.bodies[0].convert(*arguments)


def as_tensor(node: Node, value: Value) -> Expr:
    """Sizes as data; other values as they are."""
    return size_data(value, node.span) if isinstance(value, ShapeValue) else value


@converts("stablehlo.if")
def if_(node: Node, condition: Value) -> Sequence[Value]:
    return _branch(node, as_tensor(node, condition), node.bodies[0], node.bodies[1])


@converts("stablehlo.case")
def case(node: Node, index: Value) -> Sequence[Value]:
    """An index out of range takes the last branch."""
    which, last = as_tensor(node, index), len(node.bodies) - 1
    known = constant_in(which)
    if known is not None:
        at = int(known.reshape(()))
        return node.bodies[at if 0 <= at < last else last].convert()
    result = _side(node, node.bodies[last])
    for position in range(last - 1, -1, -1):
        here = node.call(op.equal, which, node.number(position, which))
        result = _chosen(node, here, _side(node, node.bodies[position]), result)
    return _fields(node, result)


def _branch(node: Node, condition: Expr, then: Body, other: Body) -> Sequence[Value]:
    known = constant_in(condition)
    if known is not None:
        return (then if known.reshape(()) else other).convert()
    return _fields(node, _chosen(node, condition, _side(node, then), _side(node, other)))


def _side(node: Node, body: Body) -> Expr:
    results = tuple(as_tensor(node, value) for value in body.convert())
    types = TupleType(tuple(tensor_type(r) for r in results))
    return Tuple(results, span=node.span, checked_type=types)


def _chosen(node: Node, condition: Expr, then: Expr, other: Expr) -> Expr:
    if then.checked_type != other.checked_type:
        raise node.fail("the branches return different types", expected=str(then.checked_type),
                        got=str(other.checked_type))
    return If(condition, then, other, span=node.span, checked_type=then.checked_type)


def _fields(node: Node, value: Expr) -> list[Expr]:
    return [node.field(value, n) for n in range(len(node.types))]


@converts("stablehlo.while")
def while_(node: Node, *first: Expr) -> Sequence[Expr]:
    condition, body = node.bodies
    rounds = _known_rounds(condition, body, first)
    if rounds is not None and rounds * body.size <= _MOST_UNROLLED:
        state: list[Any] = list(first)
        for _ in range(rounds):
            state = [as_tensor(node, value) for value in body.convert(*state)]
        return state
    variables = tuple(_variable(node, n, value) for n, value in enumerate(first))
    goes_on = as_tensor(node, condition.convert(*variables)[0])
    following = [as_tensor(node, value) for value in body.convert(*variables)]
    for variable, value in zip(variables, following, strict=True):
        if tensor_type(variable) != tensor_type(value):
            raise node.fail("a value that the loop carries changes its type",
                            expected=str(variable.annotation), got=str(value.checked_type))
    known = (*body.outer.values(), *first)
    (goes_on, *following), given = with_parameters(node.span, (goes_on, *following), known)
    result = tail_recursion(node.span, (*variables, *given), goes_on, (*following, *given),
                            (*first, *given.values()))
    return [node.field(result, position) for position in range(len(first))]


def _variable(node: Node, position: int, value: Expr) -> Var:
    type_: TensorType = tensor_type(value)
    return Var(f"carried{position}", type_, span=node.span, checked_type=type_)


def _known_rounds(condition: Body, body: Body, first: Sequence[Expr]) -> int | None:
    """How often a loop runs that counts up by a constant to a constant; ``None`` for others."""
    told = trees(condition)
    tree = told[0] if told else ()
    if tree[:2] != ("compare", "LT") or tree[3][0] != "arg" or tree[4][0] != "const":
        return None
    position = tree[3][1]
    start, step = constant_in(first[position]), _step(body, position)
    if start is None or step is None or step <= 0:
        return None
    return max(0, -(-(int(tree[4][1]) - int(start.reshape(()))) // step))


def _step(body: Body, position: int) -> int | None:
    """What a round adds to a value that the loop carries; ``None`` if it is no constant."""
    made: dict[str, Operation] = {name: operation for operation in body.region.operations
                                  for name in operation.results}
    parameter = body.region.parameters[position]
    last = made.get(body.region.returned()[position])
    if last is None or last.name != "stablehlo.add" or parameter not in last.operands:
        return None
    other = next((name for name in last.operands if name != parameter), None)
    if other is None:
        return None
    if other not in made:
        known = constant_in(body.outer.get(other))
        return None if known is None or known.size != 1 else int(known.reshape(()))
    value = made[other].attributes.get("value")
    if made[other].name != "stablehlo.constant" or not isinstance(value, Literal):
        return None
    return int(array_of(value).reshape(-1)[0])
