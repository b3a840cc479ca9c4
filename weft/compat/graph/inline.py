"""Inlining of functions of the library (``ExpandInlineFunctions``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.compat.graph.graph import Graph
from weft.compat.graph.node import Node, Tensor
from weft.compat.graphdef.definitions import FunctionRef, NodeDef
from weft.compat.graphdef.functions import FunctionBody, instantiate
from weft.compat.graphdef.names import TensorRef, parse_tensor
from weft.ir.span import Span

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def expand_inline_functions(graph: Graph) -> bool:
    """Replace each call of a function by the nodes of its body; returns whether there were any.

    Calls inside these bodies remain, for the next run. The nodes are named ``call/node``. A call on
    which other nodes wait remains as a node without results. Functions that are ``noinline``, or
    have a custom gradient, stay calls.
    """
    calls = [node for node in graph.op_nodes if _called(graph, node) is not None]
    for call in calls:
        _expand(graph, call)
    return bool(calls)


def _called(graph: Graph, node: Node) -> FunctionRef | None:
    """The function that a node calls, if it is to be inlined."""
    ref = node.attrs.get("f") if node.op in _CALLS else FunctionRef(node.op, node.attrs)
    if not isinstance(ref, FunctionRef):
        return None
    function = graph.library.functions.get(ref.name)
    if function is None or function.noinline or ref.name in graph.library.gradients:
        return None
    return ref


def _expand(graph: Graph, call: Node) -> None:
    ref = _called(graph, call)
    if ref is None:
        return
    inputs = call.inputs
    where = call.span or Span(graph.name, node=call.name)
    body = instantiate(graph.library, ref, [t.type for t in inputs], where)
    before = call.control_inputs
    readers = [e for e in call.out_edges.values() if not e.is_control and e.dst.is_op]
    waiting = [e.dst for e in call.out_edges.values() if e.is_control and e.dst.is_op]
    made = _add_body(graph, call, body, inputs, before)
    results = [_resolved(parse_tensor(text), body, inputs, made) for text in body.results]
    name, device = call.name, call.device
    graph.remove_node(call)
    for edge in readers:
        source = results[edge.src_output]
        graph.add_edge(source.node, source.index, edge.dst, edge.dst_input)
    if waiting or body.effects:
        done = graph.add_node(NodeDef(name, "NoOp", (), device, {}, where))
        for node in (*made.values(), *(() if made else before)):
            graph.add_control_edge(node, done)
        for node in waiting:
            graph.add_control_edge(done, node)


def _add_body(graph: Graph, call: Node, body: FunctionBody, inputs: Sequence[Tensor],
              before: Sequence[Node]) -> dict[str, Node]:
    """The nodes of the body in the graph; nodes without inputs wait for the inputs of the call."""
    made: dict[str, Node] = {}
    for proto in body.nodes:
        name = graph.new_name(f"{call.name}/{proto.name}")
        made[proto.name] = graph.add_node(dataclasses.replace(
            proto, name=name, inputs=(), device=proto.device or call.device,
            span=proto.span or call.span))
    for proto in body.nodes:
        node = made[proto.name]
        for index, text in enumerate(proto.data_inputs):
            tensor = _resolved(parse_tensor(text), body, inputs, made)
            graph.add_edge(tensor.node, tensor.index, node, index)
        for other in proto.control_inputs:
            if other in made:
                graph.add_control_edge(made[other], node)
        if not any(parse_tensor(text).node in made for text in proto.inputs):
            for other_node in before:
                graph.add_control_edge(other_node, node)
    return made


def _resolved(ref: TensorRef, body: FunctionBody, inputs: Sequence[Tensor],
              made: dict[str, Node]) -> Tensor:
    """The tensor of the graph that replaces a tensor of the body."""
    if ref.node in made:
        return Tensor(made[ref.node], ref.index)
    return inputs[body.arguments.index(ref.node)]
