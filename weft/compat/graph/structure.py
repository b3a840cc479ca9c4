"""Nodes and edges of a graph, without the meaning of operators (TensorFlow's ``core::Graph``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from weft.compat.graph.node import SINK, SOURCE, Edge, Node, OwnerGraph
from weft.compat.graphdef.definitions import NodeDef
from weft.compat.graphdef.names import CONTROL, check_node_name
from weft.support.errors import InvalidModelError


class GraphStructure:
    """Nodes and edges. ``SOURCE`` (id 0) runs before every node, ``SINK`` (id 1) after every one.

    Their edges are implicit until ``fixup_source_and_sink_edges`` adds them; walks follow them. Ids
    of nodes and edges count up from 0 and are never used again. ``changes`` counts changes.
    """

    def __init__(self) -> None:
        self._nodes: list[Node | None] = []
        self._edges: list[Edge | None] = []
        self._by_name: dict[str, Node] = {}
        self._suffixes: dict[str, int] = {}
        self.changes = 0
        source, sink = (self._new_node(NodeDef(name, "NoOp")) for name in ("_SOURCE", "_SINK"))
        self.add_control_edge(source, sink)

    def _new_node(self, proto: NodeDef) -> Node:
        node = Node(cast("OwnerGraph", self), len(self._nodes), proto)
        self._nodes.append(node)
        self._by_name[node.name] = node
        self.changes += 1
        return node

    @property
    def source(self) -> Node:
        return self.node(SOURCE)

    @property
    def sink(self) -> Node:
        return self.node(SINK)

    @property
    def nodes(self) -> list[Node]:
        """All nodes in the order of ids, with ``SOURCE`` and ``SINK``."""
        return [node for node in self._nodes if node is not None]

    @property
    def op_nodes(self) -> list[Node]:
        """The nodes without ``SOURCE`` and ``SINK``."""
        return [node for node in self._nodes[SINK + 1:] if node is not None]

    @property
    def edges(self) -> list[Edge]:
        """All edges in the order of ids, including those of ``SOURCE`` and ``SINK``."""
        return [edge for edge in self._edges if edge is not None]

    @property
    def num_nodes(self) -> int:
        return len(self._by_name)

    @property
    def num_node_ids(self) -> int:
        """The ids given so far; larger than ``num_nodes`` once a node was removed."""
        return len(self._nodes)

    @property
    def num_edges(self) -> int:
        return len(self.edges)

    def __len__(self) -> int:
        return len(self.op_nodes)

    def __bool__(self) -> bool:
        """A graph without nodes is a graph too."""
        return True

    def __iter__(self) -> Iterator[Node]:
        return iter(self.op_nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def node(self, number: int) -> Node:
        """The node with this id; ``InvalidModelError`` if it was removed or never existed."""
        node = self._nodes[number] if 0 <= number < len(self._nodes) else None
        if node is None:
            raise InvalidModelError(f"the graph has no node with id {number}")
        return node

    def find_node(self, name: str) -> Node | None:
        """The node of this name, or ``None``."""
        return self._by_name.get(name)

    def new_name(self, prefix: str) -> str:
        """A name that no node has: ``prefix``, else ``prefix_1``, ``prefix_2``, ..."""
        name = prefix
        while name in self._by_name:
            number = self._suffixes[prefix] = self._suffixes.get(prefix, 0) + 1
            name = f"{prefix}_{number}"
        return name

    def add_node(self, proto: NodeDef) -> Node:
        """A new node with the name, operator, device and attributes of ``proto``, without inputs.

        Add the inputs with ``add_edge``. Raises ``InvalidModelError`` for a name that is taken or
        that no node may have.
        """
        check_node_name(proto.name, proto.span, inner=True)
        if proto.name in self._by_name:
            raise InvalidModelError(f"the graph has a node {proto.name!r} already",
                                    where=proto.span,
                                    got=f"{self._by_name[proto.name].op} and {proto.op}",
                                    help=f"new_name({proto.name!r}) gives a free name")
        return self._new_node(proto)

    def add_edge(self, src: Node, src_output: int, dst: Node, dst_input: int) -> Edge:
        """A new edge: output ``src_output`` feeds input ``dst_input``; both -1 for control.

        Raises ``InvalidModelError`` for nodes of other graphs, negative indices, and an input that
        is connected already.
        """
        for node in (src, dst):
            self.check_member(node)
        if (src_output == CONTROL) != (dst_input == CONTROL) or min(src_output, dst_input) < -1:
            raise InvalidModelError("invalid indices of an edge",
                                    got=f"{src.name}:{src_output} -> {dst.name}:{dst_input}",
                                    expected="indices from 0, or -1 on both sides for control")
        if dst_input != CONTROL:
            taken = next((e for e in dst.in_edges.values() if e.dst_input == dst_input), None)
            if taken is not None:
                raise InvalidModelError(f"input {dst_input} of {dst.name!r} is connected already",
                                        got=str(taken), help="remove that edge first")
        edge = Edge(len(self._edges), src, dst, src_output, dst_input)
        self._edges.append(edge)
        src.out_edges[edge.id] = edge
        dst.in_edges[edge.id] = edge
        self._changed(dst)
        return edge

    def add_control_edge(self, src: Node, dst: Node, *, allow_duplicates: bool = False
                         ) -> Edge | None:
        """``src`` runs before ``dst``; ``None`` if they have a control edge already."""
        if not allow_duplicates and any(
                e.is_control and e.dst is dst for e in src.out_edges.values()):
            return None
        return self.add_edge(src, CONTROL, dst, CONTROL)

    def remove_edge(self, edge: Edge) -> None:
        """Raises ``InvalidModelError`` if the graph does not have the edge."""
        if edge.id >= len(self._edges) or self._edges[edge.id] is not edge:
            raise InvalidModelError(f"the graph does not have the edge {edge}")
        self._edges[edge.id] = None
        del edge.src.out_edges[edge.id], edge.dst.in_edges[edge.id]
        self._changed(edge.dst)

    def remove_control_edge(self, src: Node, dst: Node) -> None:
        """Remove the control edges between two nodes, if there are any."""
        for edge in list(src.out_edges.values()):
            if edge.is_control and edge.dst is dst:
                self.remove_edge(edge)

    def remove_node(self, node: Node) -> None:
        """Remove a node and its edges. ``SOURCE`` and ``SINK`` cannot be removed."""
        self.check_member(node)
        if not node.is_op:
            raise InvalidModelError(f"{node.name} cannot be removed")
        for edge in (*node.in_edges.values(), *node.out_edges.values()):
            if self._edges[edge.id] is edge:  # an edge to itself is in both
                self.remove_edge(edge)
        self._nodes[node.id] = None
        del self._by_name[node.name]
        self.changes += 1

    def update_edge(self, src: Node, src_output: int, dst: Node, dst_input: int) -> Edge:
        """Connect a connected input to another output."""
        self.check_member(dst)
        old = next((e for e in dst.in_edges.values()
                    if e.dst_input == dst_input and not e.is_control), None)
        if old is None:
            raise InvalidModelError(f"input {dst_input} of {dst.name!r} is not connected")
        self.check_member(src)
        self.remove_edge(old)
        return self.add_edge(src, src_output, dst, dst_input)

    def check_member(self, node: Node) -> None:
        """Raise ``InvalidModelError`` if ``node`` is not in this graph."""
        if not 0 <= node.id < len(self._nodes) or self._nodes[node.id] is not node:
            raise InvalidModelError(f"node {node.name!r} is not part of this graph",
                                    help="import_graph copies nodes from one graph to another")

    def _changed(self, node: Node) -> None:
        """Forget the inferred types of a node and of all nodes that depend on it."""
        self.changes += 1
        pending = [node]
        while pending:
            found = pending.pop()
            if found.facts is not None:
                found.facts = None
                pending.extend(e.dst for e in found.out_edges.values() if not e.is_control)
