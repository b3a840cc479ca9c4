"""Traced graphs as programs of the IR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.eager.device import CPU, device
from weft.eager.node import NUMBER, DeviceMismatchError, Node, call_ir, is_value
from weft.eager.placement import host_value
from weft.ir.expr import Constant, Expr, Function, Tuple, Var
from weft.ir.module import IRModule


def order_of(results: Iterable[Node], parameters: set[Node]) -> list[Node]:
    """The calls that results need, operands first; parameters and values are not computed."""
    stack = list(results)
    seen: set[Node] = set()
    order = []
    while stack:
        node = stack.pop()
        if node in seen or node in parameters or is_value(node):
            continue
        seen.add(node)
        order.append(node)
        stack += node.args
    order.sort(key=_serial)
    return order


def _serial(node: Node) -> int:
    return node.serial


def key_of(results: Sequence[Node], parameters: Sequence[Node]) -> tuple[Any, ...]:
    """Equal for graphs that compute the same: signatures, operands and constants."""
    position: dict[Node, Any] = {node: -1 - i for i, node in enumerate(parameters)}
    key: list[Any] = [node.sig.out.number for node in parameters]
    for number, node in enumerate(order_of(results, set(parameters))):
        key.append(node.sig.number)
        key += [position.get(a) or _constant_key(a) for a in node.args]
        position[node] = number + 1
    key.append(None)
    key += [position.get(node) or _constant_key(node) for node in results]
    return tuple(key)


def _constant_key(node: Node) -> tuple[Any, ...]:
    if node.sig.kind == NUMBER:
        return repr(node.value), node.sig.out.number
    return host_value(node).tobytes(), node.sig.out.number


def device_of(results: Iterable[Node], parameters: Sequence[Node]) -> device:
    """The device that a traced graph runs on: the one beside the CPU that its tensors are on.

    Raises ``DeviceMismatchError`` for several.
    """
    nodes = [*parameters, *order_of(results, set(parameters))]
    found = dict.fromkeys(node.sig.out.device for node in nodes if node.sig.out.device is not CPU)
    if len(found) > 1:
        raise DeviceMismatchError("a traced function computes on several devices",
                                  expected="one device", got=" and ".join(map(str, found)),
                                  help="trace a function for each")
    return next(iter(found), CPU)


def graph_module(parameters: Sequence[Node], names: Sequence[str], results: Sequence[Node],
                 output_names: Sequence[str], *, one: bool = False) -> IRModule:
    """The program that computes ``results``, a tuple unless ``one``, from named parameters."""
    made: dict[Node, Expr] = {}
    variables = []
    for node, name in zip(parameters, names, strict=True):
        variable = Var(name, node.sig.out.type)
        variables.append(variable)
        made[node] = variable
    for node in order_of(results, set(parameters)):
        made[node] = call_ir(node, tuple([_expr(a, made) for a in node.args]))
    values = tuple([_expr(node, made) for node in results])
    body = values[0] if one else Tuple(values)
    module = IRModule.from_expr(Function(tuple(variables), body))
    return module.with_attrs(output_names=tuple(output_names))


def _expr(node: Node, made: dict[Node, Expr]) -> Expr:
    found = made.get(node)
    if found is None:
        found = made[node] = Constant(host_value(node))
    return found
