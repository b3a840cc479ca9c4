"""Calls of functions that take variables, as part of the graph that calls them.

What such a function assigns is state of the graph, so its nodes are nodes of the graph, named
``call/node``. Nodes that wait for the call wait for all that it runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from weft.compat.graphdef.definitions import (
    ForeignType,
    FunctionRef,
    GraphDef,
    Library,
    NodeDef,
)
from weft.compat.graphdef.functions import HANDLE, FunctionBody, instantiate
from weft.compat.graphdef.names import TensorRef, parse_tensor
from weft.ir.dtype import DType
from weft.ir.types import TensorType
from weft.support.errors import UnsupportedModelError

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_READS = ("ReadVariableOp", "Const", "Identity", "Placeholder")
_MOST_LEVELS = 64
_MOST_NODES = 1_000_000


def with_calls_expanded(graph: GraphDef) -> GraphDef:
    """The graph without calls of functions that take variables."""
    for _ in range(_MOST_LEVELS):
        calls = {node.name: ref for node in graph.nodes
                 if (ref := _called(node, graph.library)) is not None}
        if not calls:
            return graph
        graph = _expanded(graph, calls)
        if len(graph.nodes) > _MOST_NODES:
            raise UnsupportedModelError("the graph is too large with its functions expanded",
                                        where=graph.source,
                                        expected=f"at most {_MOST_NODES} nodes")
    raise UnsupportedModelError(f"calls are nested deeper than {_MOST_LEVELS} levels",
                                where=graph.source)


def _called(node: NodeDef, library: Library) -> FunctionRef | None:
    """The function that a node calls, if it takes a variable and has types of its own."""
    ref = node.attrs.get("f") if node.op in _CALLS else FunctionRef(node.op, node.attrs)
    function = library.functions.get(ref.name) if isinstance(ref, FunctionRef) else None
    if function is None or not isinstance(ref, FunctionRef):
        return None
    is_plain = not any(arg.type_attr or arg.number_attr or arg.type_list_attr
                       for arg in function.inputs)
    handles = [arg for arg in function.inputs
               if isinstance(arg.type, ForeignType) and arg.type.name == HANDLE]
    return ref if is_plain and handles else None


def _expanded(graph: GraphDef, calls: Mapping[str, FunctionRef]) -> GraphDef:
    nodes: list[NodeDef] = []
    results: dict[TensorRef, str] = {}
    effects: set[str] = set()
    for node in graph.nodes:
        if node.name not in calls:
            nodes.append(node)
            continue
        body = _body(graph, node, calls[node.name])
        made = _nodes_of(node, body)
        nodes += made
        given = dict(zip(body.arguments, node.data_inputs, strict=True))
        for index, text in enumerate(body.results):
            results[TensorRef(node.name, index)] = _moved(text, node.name, given)
        waits = _effects(node.name, body) or tuple(f"^{n}" for n in node.control_inputs)
        effects |= {node.name} if _effects(node.name, body) else set()
        nodes.append(NodeDef(node.name, "NoOp", waits, node.device, {}, node.span))
    return dataclasses.replace(graph, nodes=tuple(
        dataclasses.replace(n, inputs=_read(n, results, effects)) for n in nodes))


def _effects(call: str, body: FunctionBody) -> tuple[str, ...]:
    """The nodes that a call runs although no result needs them, those that only read left out."""
    known = {node.name: node.op for node in body.nodes}
    return tuple(f"^{call}/{name}" for name in body.effects if known.get(name) not in _READS)


def _body(graph: GraphDef, node: NodeDef, ref: FunctionRef) -> FunctionBody:
    function = graph.library.functions[ref.name]
    types = [TensorType((), arg.type if isinstance(arg.type, DType) else DType.of("int32"))
             for arg in function.inputs]
    body = instantiate(graph.library, ref, types, node.span or graph.source)
    if len(body.arguments) != len(node.data_inputs):
        raise UnsupportedModelError(f"function {ref.name!r} takes {len(body.arguments)} arguments",
                                    where=node.span or graph.source,
                                    got=str(len(node.data_inputs)))
    return body


def _nodes_of(call: NodeDef, body: FunctionBody) -> list[NodeDef]:
    """The nodes of a body; those without inputs wait for what the call waits for."""
    given = dict(zip(body.arguments, call.data_inputs, strict=True))
    before = tuple(f"^{name}" for name in call.control_inputs)
    made = []
    for node in body.nodes:
        inputs = tuple(text for text in (_moved(t, call.name, given) for t in node.inputs) if text)
        controls = () if any(not t.startswith("^") for t in inputs) else before
        made.append(dataclasses.replace(node, name=f"{call.name}/{node.name}",
                                        inputs=(*inputs, *controls),
                                        device=node.device or call.device))
    return made


def _moved(text: str, call: str, given: Mapping[str, str]) -> str:
    """A tensor of the body as a tensor of the graph; no text for a wait on an argument."""
    ref = parse_tensor(text)
    if ref.node in given:
        return "" if text.startswith("^") else given[ref.node]
    return str(ref._replace(node=f"{call}/{ref.node}"))


def _read(node: NodeDef, results: Mapping[TensorRef, str], effects: set[str]) -> tuple[str, ...]:
    """The inputs of a node: what calls returned, and after a call with effects a wait for it."""
    inputs: list[str] = []
    waits: list[str] = []
    for text in node.inputs:
        if text.startswith("^"):
            waits.append(text)
            continue
        current = text
        for _ in results:
            ref = parse_tensor(current)
            if ref not in results:
                break
            waits += [f"^{ref.node}"] if ref.node in effects else []
            current = results[ref]
        inputs.append(current)
    return (*inputs, *dict.fromkeys(waits))
