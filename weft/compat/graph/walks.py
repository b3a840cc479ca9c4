"""Walks over graphs, and pruning (``tensorflow/core/graph/algorithm.h``).

``SOURCE`` has an edge to each node without inputs, and each node without readers has one to
``SINK``, whether or not the graph stores these edges. No walk recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from weft.compat.graph.node import Node
from weft.compat.graph.structure import GraphStructure

Visit: TypeAlias = "Callable[[Node], None]"


def _ignore(_: Node) -> None:
    pass


def dfs(graph: GraphStructure, enter: Visit = _ignore, leave: Visit = _ignore,
        start: Iterable[Node] | None = None) -> None:
    """Visit every node reachable from ``start`` (by default ``SOURCE``), depth first, once.

    ``enter`` is called before the readers of a node, ``leave`` after them, in the order of edges.
    """
    roots = [n for n in graph.op_nodes if not n.in_edges]

    def following(node: Node) -> list[Node]:
        found = [e.dst for e in node.out_edges.values()]
        if node.is_source:
            found += roots
        return found if found or node.is_sink else [graph.sink]

    _walk([graph.source] if start is None else start, following, enter, leave)


def reverse_dfs(graph: GraphStructure, enter: Visit = _ignore, leave: Visit = _ignore,
                start: Iterable[Node] | None = None) -> None:
    """Visit every node that ``start`` (by default ``SINK``) depends on, depth first, once."""
    ends = [n for n in graph.op_nodes if not n.out_edges]

    def before(node: Node) -> list[Node]:
        found = [e.src for e in node.in_edges.values()]
        if node.is_sink:
            found += ends
        return found if found or node.is_source else [graph.source]

    _walk([graph.sink] if start is None else start, before, enter, leave)


def _walk(start: Iterable[Node], following: Callable[[Node], list[Node]], enter: Visit,
          leave: Visit) -> None:
    seen: set[Node] = set()
    stack: list[tuple[Node, Iterator[Node]]] = []

    def visit(node: Node) -> None:
        if node not in seen:
            seen.add(node)
            enter(node)
            stack.append((node, iter(following(node))))

    for root in start:
        visit(root)
        while stack:
            node, rest = stack[-1]
            after = next(rest, None)
            if after is None:
                stack.pop()
                leave(node)
            else:
                visit(after)


def get_post_order(graph: GraphStructure) -> list[Node]:
    """All nodes reachable from ``SOURCE``: each after the nodes that read it."""
    found: list[Node] = []
    dfs(graph, leave=found.append)
    return found


def get_reverse_post_order(graph: GraphStructure) -> list[Node]:
    """All nodes reachable from ``SOURCE``: each before the nodes that read it."""
    return get_post_order(graph)[::-1]


def prune_for_reverse_reachability(graph: GraphStructure, targets: Iterable[Node]) -> bool:
    """Remove the nodes that ``targets`` do not depend on; returns whether there were any."""
    needed: set[Node] = set()
    reverse_dfs(graph, enter=needed.add, start=targets)
    unneeded = [node for node in graph.op_nodes if node not in needed]
    for node in unneeded:
        graph.remove_node(node)
    return bool(unneeded)


def fixup_source_and_sink_edges(graph: GraphStructure) -> bool:
    """Connect nodes without inputs to ``SOURCE``, nodes without readers to ``SINK``.

    Returns whether an edge was missing.
    """
    before = graph.changes
    for node in graph.op_nodes:
        if not node.in_edges:
            graph.add_control_edge(graph.source, node)
        if not node.out_edges:
            graph.add_control_edge(node, graph.sink)
    return graph.changes != before
