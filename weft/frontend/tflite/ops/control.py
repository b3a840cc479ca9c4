"""Branches, loops and variables."""

from __future__ import annotations

from collections.abc import Sequence

from weft.frontend.common.loops import Loop, run_loop
from weft.frontend.common.typed import tensor_type
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.frontend.tflite.node import Body, Node, Value
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Constant, Expr, If, Tuple
from weft.ir.types import TupleType

# Unrolled rounds can be fused and share memory, but every copy is compiled.
_MOST_UNROLLED = 64
_ENDLESS = 2**62


def _tensor(node: Node, value: Value) -> Expr:
    """Sizes as data; other values as they are."""
    return size_data(value, node.span) if isinstance(value, ShapeValue) else value


def _operands(node: Node, first: int) -> list[Value]:
    return [node.operand(i).value for i in range(first, len(node.operands))]


@converts("CALL_ONCE")
def call_once(node: Node) -> Sequence[Expr]:
    """The first values of variables, which a subgraph assigns."""
    with node.variables.initial():
        node.body(node.option("InitSubgraphIndex"))(())
    return ()


@converts("IF")
def if_(node: Node) -> Sequence[Value]:
    condition = node.input(0)
    arguments = _operands(node, 1)
    bodies = [node.body(node.option(f"{name}SubgraphIndex")) for name in ("Then", "Else")]
    if isinstance(condition, Constant):
        return bodies[0 if condition.data.reshape(-1)[0] else 1](arguments)
    with node.variables.fixed():
        sides = [[_tensor(node, v) for v in body(arguments)] for body in bodies]
    then, other = (Tuple(tuple(side), span=node.span,
                         checked_type=TupleType(tuple(tensor_type(v) for v in side)))
                   for side in sides)
    if then.checked_type != other.checked_type:
        raise node.unsupported("branches that return different types",
                               expected=str(then.checked_type), got=str(other.checked_type))
    chosen = If(node.reshape(condition, ()), then, other, span=node.span,
                checked_type=then.checked_type)
    return node.fields(chosen, len(sides[0]))


@converts("WHILE")
def while_(node: Node) -> Sequence[Value]:
    """A loop whose condition follows from constants is unrolled, up to a number of rounds."""
    condition, body = (node.body(node.option(f"{name}SubgraphIndex")) for name in ("Cond", "Body"))
    first = _operands(node, 0)
    with node.variables.fixed():
        known = _unrolled(node, condition, body, first)
        return known if known is not None else _loop(node, condition, body, first)


def _unrolled(node: Node, condition: Body, body: Body, first: list[Value]) -> list[Value] | None:
    """The results of a loop with a small known number of rounds; ``None`` for others."""
    state = first
    for _ in range(_MOST_UNROLLED):
        goes_on = condition(state)[0]
        if not isinstance(goes_on, Constant):
            return None
        if not goes_on.data.reshape(-1)[0]:
            return state
        state = body(state)
        if len(state) != len(first):
            raise node.fail("the body of the loop returns another number of values",
                            expected=str(len(first)), got=str(len(state)))
    return None


def _loop(node: Node, condition: Body, body: Body, first: list[Value]) -> list[Value]:
    carried = tuple(_tensor(node, v) for v in first)

    def goes_on(values: Sequence[Value]) -> Expr:
        return node.reshape(_tensor(node, condition(values)[0]), ())

    def step(_i: Expr, _condition: Expr, values: Sequence[Expr]) -> Sequence[Expr]:
        following = [_tensor(node, v) for v in body(values)]
        return [goes_on(following), *following]

    known = [o.value for o in node.operands if o is not None]
    return list(run_loop(Loop(node, node.constant(_ENDLESS, "int64"), goes_on(carried), carried,
                              step, known)))


@converts("VAR_HANDLE")
def variable(node: Node) -> Expr:
    """A handle is the hash of its name: what reads it finds the name by the handle."""
    name = b"/".join(part for part in (node.option("Container", None),
                                       node.option("SharedName", None)) if part)
    return node.variables.handle(name.decode("utf-8", "replace") or "variable", node.span)


@converts("READ_VARIABLE")
def read_variable(node: Node) -> Expr:
    return node.variables.read(node.variables.name_of(node, node.stored(0)), node.results[0],
                               node.span)


@converts("ASSIGN_VARIABLE")
def assign_variable(node: Node) -> Sequence[Expr]:
    node.variables.assign(node, node.variables.name_of(node, node.stored(0)), node.stored(1))
    return ()
