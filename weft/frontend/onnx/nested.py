"""Traversal of graphs and their subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def nested_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield ``graph`` and its subgraphs, recursively."""
    yield graph
    for node in nested_nodes(graph.node):
        yield from bodies_of(node)


def nested_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield ``nodes`` and the nodes of their subgraphs, recursively."""
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from nested_nodes(body.node)


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs among the attributes of ``node``."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
