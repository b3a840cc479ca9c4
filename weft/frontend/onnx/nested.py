"""Walks over graphs and the graphs inside their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def nested_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """``graph`` and the bodies of its control flow, to any depth."""
    yield graph
    for node in nested_nodes(graph.node):
        yield from bodies_of(node)


def nested_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """``nodes`` and those of the bodies among their attributes, to any depth."""
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from nested_nodes(body.node)


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among the attributes of one node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
