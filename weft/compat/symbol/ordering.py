"""The order of mutations: a variable has a version for each node that mutates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.compat.symbol.compose import mutated_inputs
from weft.compat.symbol.node import Node, NodeEntry, copied, walk
from weft.support.errors import InvalidModelError

Edges = dict[Node, list[Node]]


def version_edges(nodes: Sequence[Node]) -> Edges:
    """For each node, those that make the versions of variables that it reads or mutates.

    Raises ``InvalidModelError`` for a version that no node or more than one node makes.
    """
    makers = _makers(nodes)
    edges: Edges = {}
    for node in nodes:
        mutated = set(mutated_inputs(node))
        for index, entry in enumerate(node.inputs):
            if not entry.node.is_variable:
                continue
            version = entry.version - (index in mutated)
            if version > 0:
                maker = makers.get((entry.node, version))
                if maker is None:
                    raise InvalidModelError(
                        f"version {version} of the variable {entry.node.name!r} is not computed",
                        where=node.span, help="add the node that mutates it to the graph: Group")
                edges.setdefault(node, []).append(maker)
    return edges


def with_order(heads: Sequence[NodeEntry]) -> tuple[NodeEntry, ...]:
    """A copy of the graph where control dependencies order mutations (NNVM's ``OrderMutation``).

    A node that reads version n of a variable runs after the node that made version n, and the
    node that makes version n + 1 runs after it. Raises what ``version_edges`` raises, and
    ``InvalidModelError`` for an order that contradicts the data.
    """
    made = copied(heads)
    nodes = list(walk(made))
    edges = version_edges(nodes)
    for (variable, version), maker in _makers(nodes).items():
        for node in nodes:
            mutated = set(mutated_inputs(node))
            reads = any(e.node is variable and e.version == version - 1 and i not in mutated
                        for i, e in enumerate(node.inputs))
            if reads and node is not maker:
                edges.setdefault(maker, []).append(node)
    for node, before in edges.items():
        inputs = {entry.node for entry in node.inputs}
        node.control_deps.extend(dict.fromkeys(
            n for n in before if n is not node and n not in inputs and n not in node.control_deps))
    _check_acyclic(made)
    return made


def _makers(nodes: Sequence[Node]) -> Mapping[tuple[Node, int], Node]:
    makers: dict[tuple[Node, int], Node] = {}
    for node in nodes:
        for index in mutated_inputs(node):
            entry = node.inputs[index]
            if makers.setdefault((entry.node, entry.version), node) is not node:
                raise InvalidModelError("two nodes make one version of a variable",
                                        where=node.span, got=entry.node.name)
    return makers


def _check_acyclic(heads: Sequence[NodeEntry]) -> None:
    position = {node: i for i, node in enumerate(walk(heads))}
    for node, at in position.items():
        for before in (*(e.node for e in node.inputs), *node.control_deps):
            if position[before] >= at:
                raise InvalidModelError("a value is read after the variable was mutated",
                                        where=node.span, got=f"{node.name!r}",
                                        help="read a copy of the variable")
