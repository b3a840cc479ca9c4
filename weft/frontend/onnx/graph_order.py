"""Check of names and edges of a graph, and topological sort of its nodes.

``onnx.checker`` is used for single nodes only: it does not report cycles, and it stops at the first
problem.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from weft.frontend.onnx.checks import listed, shortened
from weft.frontend.onnx.protos import AttributeProto, GraphProto, NodeProto, ValueInfoProto
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError


@dataclass(frozen=True)
class OrderedNode:
    """A node, its label in messages, and its subgraphs by attribute name."""

    proto: NodeProto
    label: str
    bodies: Mapping[str, GraphOrder]

    def reads(self) -> Iterator[str]:
        """Yield the names of the values that the node uses: its inputs and its bodies' captures."""
        yield from (name for name in self.proto.input if name)
        for body in self.bodies.values():
            yield from body.captured


@dataclass(frozen=True)
class GraphOrder:
    """A graph with its nodes in topological order.

    ``read`` holds the names of all values that a node or a graph output uses; ``captured`` is the
    subset that an outer graph defines. ``outputs`` are the values to return.
    """

    graph: GraphProto
    nodes: tuple[OrderedNode, ...]
    read: frozenset[str]
    captured: frozenset[str]
    outputs: tuple[ValueInfoProto, ...]

    def size(self) -> int:
        """Return the number of nodes, including those of subgraphs."""
        inner = sum(body.size() for node in self.nodes for body in node.bodies.values())
        return len(self.nodes) + inner


def node_label(node: NodeProto, index: int) -> str:
    """Return the label of a node, ``Conv_3 (Conv)``; unnamed nodes get a name from their index."""
    return f"{node.name or f'{node.op_type}_{index}'} ({node.op_type})"


def check_graph(
    graph: GraphProto, source: str, path: str = "", outer: AbstractSet[str] = frozenset()
) -> GraphOrder:
    """Check a graph and its subgraphs; return the nodes in topological order.

    ``path`` is the prefix of node labels in a subgraph; ``outer`` holds the names that the subgraph
    may capture. Raises ``InvalidModelError`` for duplicate or undefined names and for cycles,
    ``UnsupportedModelError`` for sparse initializers.
    """
    labels = tuple(path + node_label(n, i) for i, n in enumerate(graph.node))
    where = f"{source}, {path.rstrip('/')}" if path else source
    _check_interface(graph, where, is_body=bool(path))
    given = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    producer = _producers(graph, labels, given, where)
    visible = given | producer.keys() | outer
    nodes = tuple(
        OrderedNode(node, label, _bodies(node, label, source, visible))
        for node, label in zip(graph.node, labels, strict=True)
    )
    _check_edges(graph, nodes, visible, where)
    order = _topological_order(nodes, producer, where)
    read = {o.name for o in graph.output} | {name for node in nodes for name in node.reads()}
    captured = read - given - producer.keys()
    ordered = tuple(nodes[i] for i in order)
    return GraphOrder(graph, ordered, frozenset(read), frozenset(captured), tuple(graph.output))


def part_for(order: GraphOrder, outputs: Sequence[str], cuts: Container[str]) -> GraphOrder:
    """Return the nodes that ``outputs`` need.

    The whole graph if no node computes one of them, or if another node computes one of ``cuts``,
    the values that the user gives: what is wrong then is said of the whole graph.
    """
    computed = {name for node in order.nodes for name in node.proto.output if name}
    if not computed.issuperset(outputs):
        return order
    needed, nodes = set(outputs), []
    for node in reversed(order.nodes):
        if not needed.isdisjoint(node.proto.output):
            nodes.append(node)
            needed.update(node.reads())
        elif any(name in cuts for name in node.proto.output):
            return order
    declared = {value.name: value for value in (*order.graph.value_info, *order.graph.output)}
    results = tuple(declared.get(name) or ValueInfoProto(name=name)
                    for name in dict.fromkeys(outputs))
    return GraphOrder(order.graph, tuple(reversed(nodes)), frozenset(needed), order.captured,
                      results)


def _bodies(
    node: NodeProto, label: str, source: str, visible: AbstractSet[str]
) -> dict[str, GraphOrder]:
    name = label.rsplit(" (", 1)[0]
    return {
        attribute.name: check_graph(attribute.g, source, f"{name}/{attribute.name}/", visible)
        for attribute in node.attribute
        if attribute.type == AttributeProto.GRAPH
    }


def _check_interface(graph: GraphProto, where: str, *, is_body: bool) -> None:
    if graph.sparse_initializer:
        names = [t.values.name for t in graph.sparse_initializer]
        raise UnsupportedModelError(
            "the model has sparse initializers",
            where=where,
            got=listed(map(repr, names)),
            help="store the weights densely",
        )
    _check_names_unique("input", [i.name for i in graph.input], where)
    _check_names_unique("initializer", [t.name for t in graph.initializer], where)
    if not is_body:  # a subgraph may return a value twice
        _check_names_unique("output", [o.name for o in graph.output], where)
    if not graph.output:
        raise InvalidModelError("the graph does not declare outputs", where=where)


def _check_names_unique(kind: str, names: list[str], source: str) -> None:
    seen: set[str] = set()
    twice = [n for n in names if n in seen or seen.add(n)]  # type: ignore[func-returns-value]
    if twice:
        raise InvalidModelError(
            f"duplicate {kind} name in the graph", where=source, got=listed(map(repr, twice))
        )
    if "" in seen:
        raise InvalidModelError(f"the graph has an {kind} without a name", where=source)


def _producers(
    graph: GraphProto, labels: tuple[str, ...], given: set[str], source: str
) -> dict[str, int]:
    producer: dict[str, int] = {}
    problems = []
    for index, node in enumerate(graph.node):
        for name in node.output:
            if not name:
                continue
            if name in given:
                problems.append(f"{labels[index]} computes {name!r}, an input of the graph")
            elif name in producer:
                problems.append(f"{labels[index]} and {labels[producer[name]]} compute {name!r}")
            producer[name] = index
    if problems:
        raise InvalidModelError(
            "a value of the graph is computed twice",
            where=source,
            expected="each name to be the output of one node (static single assignment)",
            notes=shortened(problems),
        )
    return producer


def _check_edges(
    graph: GraphProto, nodes: tuple[OrderedNode, ...], visible: AbstractSet[str], source: str
) -> None:
    """Raise ``InvalidModelError`` that lists all uses of undefined values."""
    dangling = [
        f"input {position} of {node.label} is {name!r}"
        for node in nodes
        for position, name in enumerate(node.proto.input)
        if name and name not in visible
    ]
    dangling += [
        f"output {o.name!r} of the graph" for o in graph.output if o.name not in visible
    ]
    if dangling:
        raise InvalidModelError(
            "the graph reads undefined values",
            where=source,
            expected="the name of a graph input, an initializer, or a node's output",
            notes=shortened(dangling),
            help="the model may be truncated, or cut out of a larger one",
        )


def _topological_order(
    nodes: tuple[OrderedNode, ...], producer: dict[str, int], source: str
) -> list[int]:
    """Sort the nodes with Kahn's algorithm; nodes that are already sorted keep their order."""
    needs = [
        sorted({producer[name] for name in node.reads() if name in producer}) for node in nodes
    ]
    users: list[list[int]] = [[] for _ in needs]
    for index, sources in enumerate(needs):
        for before in sources:
            users[before].append(index)
    if all(before < index for index, sources in enumerate(needs) for before in sources):
        return list(range(len(needs)))
    missing = [len(sources) for sources in needs]
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        index = ready.pop()
        order.append(index)
        for user in users[index]:
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    if len(order) < len(needs):
        _report_cycle(needs, missing, [n.label for n in nodes], source)
    return order


def _report_cycle(
    needs: list[list[int]], missing: list[int], labels: list[str], source: str
) -> None:
    """Raise an error with a cycle, found by following inputs back from an unsorted node."""
    current = next(index for index, count in enumerate(missing) if count)
    position: dict[int, int] = {}
    path: list[int] = []
    while current not in position:
        position[current] = len(path)
        path.append(current)
        current = next(before for before in needs[current] if missing[before])
    cycle = [*path[position[current] :], current][::-1]
    raise InvalidModelError(
        "the graph has a cycle",
        where=source,
        expected="a graph in which no value depends on itself",
        got=listed([labels[i] for i in cycle], " -> "),
    )
