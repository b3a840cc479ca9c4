"""Functional control flow: If, Case, While, and calls of functions."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.compat.graphdef.definitions import ForeignType, FunctionRef
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.ops.tensor_list import is_unset
from weft.compat.graphdef.registry import converts
from weft.frontend.common.typed import tensor_type
from weft.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, Var
from weft.ir.types import FuncType, TensorType, TupleType

_BRANCHES = ("then_branch", "else_branch", "Tcond", "output_shapes", "_lower_using_switch_merge")
_LOOP = ("cond", "body", "output_shapes", "T", "parallel_iterations")
_CALL = ("f", "config", "config_proto", "executor_type")


@converts("PartitionedCall", "StatefulPartitionedCall", attributes=_CALL)
def partitioned_call(node: Node) -> Sequence[Expr]:
    return node.functions.expand(node.function("f"), node.inputs)


@converts("If", "StatelessIf", attributes=_BRANCHES)
def if_(node: Node) -> Sequence[Expr]:
    """A number as the condition is true unless it is zero."""
    args = node.inputs[1:]
    refs = node.function("then_branch"), node.function("else_branch")
    known = node.values[0]
    if known is not None and known.size == 1:
        return node.functions.expand(refs[0] if known.reshape(-1)[0] else refs[1], args)
    return _chosen(node, _truth(node, node.input(0)), [
        node.functions.expand(ref, args) for ref in refs])


@converts("Case", "StatelessCase", attributes=("branches", "output_shapes"))
def case(node: Node) -> Sequence[Expr]:
    """An index outside of the range takes the last branch."""
    refs = node.attr("branches", tuple)
    if not refs or not all(isinstance(ref, FunctionRef) for ref in refs):
        raise node.fail("attribute 'branches' must be a list of functions", got=repr(refs))
    args = node.inputs[1:]
    results: Sequence[Expr] = node.functions.expand(refs[-1], args)
    for index in range(len(refs) - 2, -1, -1):
        is_this = node.call(op.equal, node.input(0), node.scalar_like(index, node.input(0)))
        results = _chosen(node, is_this, [node.functions.expand(refs[index], args), results])
    return results


def _truth(node: Node, value: Expr) -> Expr:
    type_ = tensor_type(value)
    if type_.ndim != 0:
        raise node.unsupported("the condition must be a scalar", got=str(type_))
    if type_.dtype.is_bool:
        return value
    return node.call(op.not_equal, value, node.scalar_like(0, value))


def _tuple(node: Node, values: Sequence[Expr]) -> Tuple:
    types = TupleType(tuple(tensor_type(value) for value in values))
    return Tuple(tuple(values), span=node.span, checked_type=types)


def _chosen(node: Node, condition: Expr, sides: Sequence[Sequence[Expr]]) -> Sequence[Expr]:
    """The results of one of two branches, which must have the same types."""
    then, other = (_tuple(node, side) for side in sides)
    if then.checked_type != other.checked_type:
        raise node.unsupported("the branches return different types",
                               expected=str(then.checked_type), got=str(other.checked_type))
    result = If(condition, then, other, span=node.span, checked_type=then.checked_type)
    return node.fields(result, len(then.fields))


@converts("While", "StatelessWhile", attributes=_LOOP)
def while_(node: Node) -> Sequence[Expr]:
    """A recursive function of the loop variables, called in tail position.

    A constant that the body returns unchanged stays a constant, so operators of the body may take
    shapes and axes from outside of the loop.
    """
    body, cond = node.function("body"), node.function("cond")
    fixed = {i for i in node.functions.unchanged(body, node.inputs)
             if isinstance(node.input(i), Constant)}
    carried = [i for i in range(len(node.inputs)) if i not in fixed]
    first = {i: node.input(i) for i in carried}
    variables = {i: _variable(node, i, first[i]) for i in carried}

    def around(values: Sequence[Expr]) -> list[Expr]:
        given = dict(zip(carried, values, strict=True))
        return [given.get(i, x) for i, x in enumerate(node.inputs)]

    following = _following(node, body, around(list(variables.values())))
    lists = {i: _list_like(node, following[i]) for i in carried
             if _is_list(node, i) and is_unset(first[i], tensor_type(following[i]).shape[1:])}
    if lists:  # lists of tensors whose shape the body decides
        first |= lists
        variables = {i: _variable(node, i, first[i]) for i in carried}
        following = _following(node, body, around(list(variables.values())))
    inside = around(list(variables.values()))
    for i in carried:
        if following[i].checked_type != variables[i].checked_type:
            raise node.unsupported(
                f"loop variable {i} changes its type", expected=str(variables[i].checked_type),
                got=str(following[i].checked_type))
    goes_on = node.functions.expand(cond, inside)
    if len(goes_on) != 1:
        raise node.fail("the condition must return one tensor", got=str(len(goes_on)))
    if not carried:
        raise node.unsupported("a loop whose body changes nothing")
    result = _loop(node, list(variables.values()), _truth(node, goes_on[0]),
                   [following[i] for i in carried], [first[i] for i in carried])
    return around(node.fields(result, len(carried)))


def _following(node: Node, body: FunctionRef, inside: Sequence[Expr]) -> Sequence[Expr]:
    """What the body returns for the loop variables."""
    following = node.functions.expand(body, inside)
    if len(following) != len(inside):
        raise node.fail("the body must return as many tensors as it takes",
                        expected=str(len(inside)), got=str(len(following)))
    return following


def _is_list(node: Node, index: int) -> bool:
    """Whether a loop variable is a list of tensors."""
    types = node.attr("T", tuple, ())
    return index < len(types) and types[index] == ForeignType("DT_VARIANT")


def _list_like(node: Node, value: Expr) -> Expr:
    """A list of tensors without elements yet, of the type of ``value``."""
    type_ = tensor_type(value)
    return node.call(op.zeros, shape=type_.shape, dtype=type_.dtype)


def _variable(node: Node, index: int, first: Expr) -> Var:
    type_ = tensor_type(first)
    return Var(f"v{index}", type_, span=node.span, checked_type=type_)


def _loop(node: Node, variables: Sequence[Var], goes_on: Expr, following: Sequence[Expr],
          first: Sequence[Expr]) -> Expr:
    """The tuple of the loop variables after the last iteration."""
    types: tuple[TensorType, ...] = tuple(tensor_type(v) for v in variables)
    result = TupleType(types)
    loop = Var("loop", span=node.span, checked_type=FuncType(types, result))
    again = Call(loop, tuple(following), span=node.span, checked_type=result)
    last = Tuple(tuple(variables), span=node.span, checked_type=result)
    choice = If(goes_on, again, last, span=node.span, checked_type=result)
    function = Function(tuple(variables), choice, span=node.span,
                        checked_type=FuncType(types, result))
    start = Call(loop, tuple(first), span=node.span, checked_type=result)
    return Let(loop, function, start, span=node.span, checked_type=result)
