"""Gradients of a graph as nodes of it (TensorFlow's ``tf.gradients``)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol

from weft.compat.graph.library import with_functions
from weft.compat.graph.node import Node, OwnerGraph, Tensor
from weft.compat.graphdef.definitions import ArgDef, FunctionDef, FunctionRef, Library, NodeDef
from weft.compat.graphdef.state import STATE_OPS
from weft.support.errors import InvalidModelError, OptionError
from weft.transform.autodiff.reverse.adjoint import is_differentiable


class Differentiable(OwnerGraph, Protocol):
    """A graph whose library takes functions."""

    def unique_name(self, name: str) -> str: ...


def gradients(graph: Differentiable, ys: Sequence[Tensor], xs: Sequence[Tensor],
              grad_ys: Sequence[Tensor | None], name: str) -> list[Tensor | None]:
    """See ``Graph.gradients``."""
    _check(graph, ys, xs, grad_ys)
    given = list(dict.fromkeys(xs))
    below = _below(given)
    between = _Between([x for x in given if x.node not in below], below)
    between.add(ys)
    inner = [x for x in given if x.node in between.nodes]
    used = [x for x in given if x in between.read or x in inner or x in ys]
    wanted = [x for x in used if is_differentiable(x.type)]
    if not wanted:
        return [None] * len(xs)
    dys = [_like(graph, "ones_like", y) if dy is None else dy
           for y, dy in zip(ys, grad_ys, strict=True)]
    operands = list(dict.fromkeys((*used, *between.read)))
    function = _function(graph, name, between.nodes, operands, inner, ys)
    library = Library({function.name: function}, {})
    graph.library = with_functions(graph.library, library, graph.name)
    given_operands = [_like(graph, "zeros_like", x) if x in inner else x for x in operands]
    node = graph.create("SymbolicGradient", [*given_operands, *dys], name=name,
                        attrs={"f": FunctionRef(function.name)})
    made = {x: Tensor(node, operands.index(x)) for x in wanted}
    return [made.get(x) for x in xs]


def _check(graph: OwnerGraph, ys: Sequence[Tensor], xs: Sequence[Tensor],
           grad_ys: Sequence[Tensor | None]) -> None:
    if len(grad_ys) != len(ys):
        raise OptionError("grad_ys does not fit ys", got=f"{len(grad_ys)} gradients",
                          expected=str(len(ys)))
    for tensor in (*ys, *xs, *(dy for dy in grad_ys if dy is not None)):
        if not isinstance(tensor, Tensor) or tensor.graph is not graph:
            raise InvalidModelError("not a tensor of this graph", got=repr(tensor),
                                    where=graph.name)
    for y in ys:
        if not is_differentiable(y.type):
            raise InvalidModelError("a gradient is one of floating-point tensors", got=str(y))


def _like(graph: OwnerGraph, op: str, x: Tensor) -> Tensor:
    made = graph.call(op, x)
    assert isinstance(made, Tensor)
    return made


def _below(xs: Sequence[Tensor]) -> set[Node]:
    """The nodes that depend on ``xs``."""
    found: set[Node] = set()
    pending = [consumer for x in xs for consumer in x.consumers]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += [e.dst for e in node.out_edges.values() if not e.is_control and e.dst.is_op]
    return found


class _Between:
    """The nodes that lead from ``xs`` to results, and the tensors that they read from outside.

    A node with a small known value belongs to them, because converters ask for values; other
    nodes that do not depend on ``xs`` are outside, as are variables and placeholders.
    """

    def __init__(self, xs: Sequence[Tensor], below: set[Node]) -> None:
        self._xs, self._below = set(xs), below
        self.nodes: dict[Node, None] = {}
        self.read: dict[Tensor, None] = {}

    def add(self, results: Sequence[Tensor]) -> None:
        pending = list(results)
        while pending:
            tensor = pending.pop()
            if self._is_outside(tensor):
                self.read[tensor] = None
            elif tensor.node not in self.nodes:
                self.nodes[tensor.node] = None
                pending += tensor.node.inputs

    def _is_outside(self, tensor: Tensor) -> bool:
        node = tensor.node
        if tensor in self._xs or node.op in STATE_OPS or node.op == "Placeholder":
            return True
        return node not in self._below and tensor.value is None


def _function(graph: Differentiable, name: str, nodes: dict[Node, None],
              operands: Sequence[Tensor], inner: Sequence[Tensor], results: Sequence[Tensor]
              ) -> FunctionDef:
    """The function of the library from ``operands`` to ``results``.

    The argument of an ``inner`` tensor is added to it, so that it gets the gradient of the sum,
    while other gradients go through the tensor.
    """
    taken = graph.library.functions
    free = next(n for n in (f"{name}_{i}" for i in itertools.count()) if n not in taken)
    names = {node.name for node in nodes}
    stem = "operand"
    while any(text.startswith(stem) for text in names):
        stem += "_"
    args = {x.name: f"{stem}{i}" for i, x in enumerate(operands)}
    sums = {x.name: f"{stem}_sum{i}" for i, x in enumerate(inner)}
    reads = {**args, **sums}
    body = [_inside(node.definition(), reads, names)
            for node in sorted(nodes, key=lambda node: node.id)]
    body += [NodeDef(text, "add", (x, args[x])) for x, text in sums.items()]
    returns = {f"result{i}": reads.get(y.name, y.name) for i, y in enumerate(results)}
    return FunctionDef(free, tuple(ArgDef(args[x.name], x.dtype) for x in operands),
                       tuple(ArgDef(f"result{i}", y.dtype) for i, y in enumerate(results)),
                       tuple(body), returns)


def _inside(node: NodeDef, args: dict[str, str], names: set[str]) -> NodeDef:
    """``node`` reading arguments; control edges from outside are those of the gradient's node."""
    data = [args.get(text if ":" in text else f"{text}:0", text) for text in node.data_inputs]
    control = [f"^{text}" for text in node.control_inputs if text in names]
    attrs = {key: value for key, value in node.attrs.items() if key != "_class"}
    return dataclasses.replace(node, inputs=(*data, *control), attrs=attrs)
