"""The gradients that users' ``Function``s compute, recorded while a function is traced.

A ``Function`` links its results to a node that knows its ``backward``. While the function around
it is traced, ``backward`` runs once on placeholders, which gives the graph of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.eager.backward import gradients_through
from weft.eager.cell import Cell, node_of
from weft.eager.function import OwnBackward
from weft.eager.loop import placeholder
from weft.eager.node import PLACEHOLDER, Node, Spec, is_value
from weft.eager.tracing.pytree import flatten
from weft.support.dataclass import dataclass


@dataclass(eq=False, slots=True)
class OwnGradient:
    """A call of a user's ``Function``, as two graphs.

    ``results`` are computed from ``inputs``: the operands, then what the function reads beside
    them. ``gradients``, one for each input or ``None`` for zero, are computed from these and from
    ``arriving``, the placeholders of the gradients of the results.
    """

    results: list[Node]
    inputs: list[Node]
    arriving: list[Node]
    gradients: list[Node | None]


def own_gradients(results: Any, placeholder: Callable[[Spec], Node]) -> dict[Node, OwnGradient]:
    """By the node of its call: each ``Function`` that nested containers of tensors depend on.

    ``placeholder`` makes one with a gradient in the present trace.
    """
    leaves, _ = flatten(results)
    pending = [node_of(leaf) for leaf in leaves if isinstance(leaf, Cell)]
    found: dict[Node, OwnGradient] = {}
    while pending:
        new = [hub for hub in _linked(pending) if hub not in found]
        found |= {hub: _recorded(hub, placeholder) for hub in new}
        pending = [node for hub in new for node in _computed(found[hub])]
    for own in found.values():
        own.inputs += _read_beside(own, found)
        own.gradients += [None] * (len(own.inputs) - len(own.gradients))
    return found


def _linked(results: Iterable[Node]) -> list[Node]:
    """The nodes of the calls of ``Function``s that ``results`` depend on."""
    stack, seen = list(results), set[Node]()
    found: dict[Node, None] = {}
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack += node.args
        if node.link is not None:
            found[node.link[0]] = None
            stack += node.link[0].args
    return list(found)


def _recorded(hub: Node, placeholder: Callable[[Spec], Node]) -> OwnGradient:
    fields = hub.sig.out.fields
    assert fields is not None
    arriving = [placeholder(spec) for spec in fields]
    given = [node if node.sig.out.dtype.rank > 1 else None for node in arriving]
    rule: OwnBackward = hub.extra
    gradients = rule(given, create_graph=True)
    return OwnGradient(list(rule.results), list(hub.args), arriving, gradients)


def _computed(own: OwnGradient) -> list[Node]:
    return [*own.results, *[g for g in own.gradients if g is not None]]


def _read_beside(own: OwnGradient, found: Mapping[Node, OwnGradient]) -> list[Node]:
    """The placeholders of the trace that a ``Function`` reads though they are no operands."""
    seen = {*own.inputs, *[node for each in found.values() for node in each.arriving]}
    stack = _computed(own)
    beside = []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.sig.kind == PLACEHOLDER:
            beside.append(node)
        stack += node.args
        if node.link is not None:
            stack += [*node.link[0].args, *_computed(found[node.link[0]])]
    return beside


def loop_gradient(node: Node) -> OwnGradient:
    """The gradient of a loop as two graphs; its result is one tuple."""
    sig = node.sig
    inputs = [placeholder(arg.sig.out, flows=arg.grad is not None) for arg in node.args]
    again = Node(sig, tuple(inputs), None, node.site)
    fields = sig.out.fields
    assert fields is not None
    arriving = [placeholder(spec, flows=False) for spec in fields]
    given = [one if spec.dtype.rank > 1 else None
             for one, spec in zip(arriving, fields, strict=True)]
    return OwnGradient([again], inputs, arriving, gradients_through(again, given))


def operands(node: Node, own: Mapping[Node, OwnGradient]) -> Sequence[Node]:
    """What a node is computed from: for the result of a ``Function``, the inputs of that."""
    return node.args if node.link is None else own[node.link[0]].inputs


def steps_to(results: Iterable[Node], given: set[Node], own: Mapping[Node, OwnGradient]
             ) -> list[Node]:
    """The calls that results need, operands first; what is ``given`` is not computed."""
    stack, seen = list(results), set[Node]()
    while stack:
        node = stack.pop()
        if node not in seen and node not in given and not is_value(node):
            seen.add(node)
            stack += operands(node, own)
    return sorted(seen, key=lambda node: node.serial)
