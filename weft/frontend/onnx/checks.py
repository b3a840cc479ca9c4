"""Whether a graph is well formed: names, edges, order, versions.

``onnx.checker`` covers less than an importer relies on (no cycles named, no shapes of data), and
stops at the first problem; it is asked about single nodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from weft.frontend.onnx.loader import LoadedModel
from weft.support.errors import InvalidModelError, UnsupportedModelError

MIN_OPSET = 7
MIN_IR_VERSION = 3
_CHECKER_LIMIT_BYTES = 64 * 2**20
_SHOWN = 12


@dataclass(frozen=True)
class GraphOrder:
    """``nodes`` in an order in which every value is computed before its use, with their labels.

    ``read`` holds the names of all values that a node or an output of the graph reads.
    """

    nodes: tuple[NodeProto, ...]
    labels: tuple[str, ...]
    read: frozenset[str]


def node_label(node: NodeProto, index: int) -> str:
    """``Conv_3 (Conv)``: the node's name, or one made of its operator and place."""
    return f"{node.name or f'{node.op_type}_{index}'} ({node.op_type})"


def check_versions(loaded: LoadedModel) -> int:
    """The opset of the default domain; raises for versions that cannot be read."""
    proto = loaded.proto
    if not MIN_IR_VERSION <= proto.ir_version <= onnx.IR_VERSION:
        raise UnsupportedModelError(
            f"the model has ONNX IR version {proto.ir_version}",
            where=loaded.source,
            expected=f"{MIN_IR_VERSION} to {onnx.IR_VERSION}",
            help="upgrade the onnx package" if proto.ir_version > onnx.IR_VERSION else None,
        )
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    if len(versions) != 1:
        raise InvalidModelError(
            "the model does not say once which ai.onnx opset it uses",
            where=loaded.source,
            expected='one opset_import with domain ""',
            got=", ".join(f"{o.domain!r} {o.version}" for o in proto.opset_import) or "none",
        )
    newest = onnx.defs.onnx_opset_version()
    if not MIN_OPSET <= versions[0] <= newest:
        raise UnsupportedModelError(
            f"the model uses ai.onnx opset {versions[0]}",
            where=loaded.source,
            expected=f"{MIN_OPSET} to {newest}",
            help="convert it: onnx.version_converter.convert_version(model, 17)"
            if versions[0] < MIN_OPSET
            else "upgrade the onnx package, or export for an older opset",
        )
    return int(versions[0])


def check_graph(graph: GraphProto, source: str) -> GraphOrder:
    """Raises ``InvalidModelError`` for a graph that does not hang together; returns its order."""
    labels = tuple(node_label(n, i) for i, n in enumerate(graph.node))
    _check_names_unique("input", [i.name for i in graph.input], source)
    _check_names_unique("initializer", [t.name for t in graph.initializer], source)
    _check_names_unique("output", [o.name for o in graph.output], source)
    if not graph.output:
        raise InvalidModelError("the graph has no outputs", where=source)
    given = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    producer = _producers(graph, labels, given, source)
    _check_edges(graph, labels, given, producer, source)
    order = _topological_order(graph, producer, labels, source)
    read = {o.name for o in graph.output} | {name for node in graph.node for name in node.input}
    return GraphOrder(
        tuple(graph.node[i] for i in order), tuple(labels[i] for i in order), frozenset(read)
    )


def _check_names_unique(kind: str, names: list[str], source: str) -> None:
    seen: set[str] = set()
    twice = [n for n in names if n in seen or seen.add(n)]  # type: ignore[func-returns-value]
    if twice:
        raise InvalidModelError(
            f"the graph has two {kind}s of one name", where=source, got=_listed(map(repr, twice))
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
            notes=_shortened(problems),
        )
    return producer


def _check_edges(
    graph: GraphProto,
    labels: tuple[str, ...],
    given: set[str],
    producer: dict[str, int],
    source: str,
) -> None:
    """Every value that is read exists; all that do not are listed."""
    dangling = [
        f"input {position} of {labels[index]} is {name!r}"
        for index, node in enumerate(graph.node)
        for position, name in enumerate(node.input)
        if name and name not in producer and name not in given
    ]
    dangling += [
        f"output {o.name!r} of the graph"
        for o in graph.output
        if o.name not in producer and o.name not in given
    ]
    if dangling:
        raise InvalidModelError(
            "the graph reads values that nothing computes",
            where=source,
            expected="the name of a graph input, an initializer, or a node's output",
            notes=_shortened(dangling),
            help="the model may be truncated, or cut out of a larger one",
        )


def _topological_order(
    graph: GraphProto, producer: dict[str, int], labels: tuple[str, ...], source: str
) -> list[int]:
    """Kahn's algorithm; nodes that are in order already keep it."""
    needs = [
        sorted({producer[name] for name in node.input if name in producer}) for node in graph.node
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
        _report_cycle(needs, missing, labels, source)
    return order


def _report_cycle(
    needs: list[list[int]], missing: list[int], labels: tuple[str, ...], source: str
) -> None:
    """Walk back from a node that was never ready until the walk meets itself."""
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
        got=_listed([labels[i] for i in cycle], " -> "),
    )


def check_features(proto: ModelProto, source: str) -> None:
    """Raises ``UnsupportedModelError`` for parts of the format that weft does not read."""
    graph = proto.graph
    if graph.sparse_initializer:
        names = [t.values.name for t in graph.sparse_initializer]
        raise UnsupportedModelError(
            "the model has sparse initializers",
            where=source,
            got=_listed(map(repr, names)),
            help="store the weights densely",
        )
    for value in graph.input:
        if value.type.WhichOneof("value") != "tensor_type":
            kind = value.type.WhichOneof("value") or "no type"
            raise UnsupportedModelError(
                f"graph input {value.name!r} is not a tensor",
                where=source,
                expected="a tensor of known element type",
                got=kind.removesuffix("_type"),
            )


def node_checker(proto: ModelProto, opset: int) -> Callable[[NodeProto, object], None]:
    """A function that holds one node against its ONNX schema: ``check(node, where)``.

    Raises ``InvalidModelError`` for missing inputs, missing or ill-typed attributes and so on. Of
    ``onnx.checker`` this is the part that ``check_graph`` and the importer do not cover; it also
    asks that nodes are sorted and that outputs state their shapes, which readers can do without.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    context.opset_imports = {"": opset}

    def check(node: NodeProto, where: object) -> None:
        if node.ByteSize() > _CHECKER_LIMIT_BYTES:  # a large Constant, which is read anyway
            return
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise InvalidModelError(
                f"{node.op_type} breaks a rule of the ONNX format",
                where=where,
                notes=_shortened(lines),
            ) from None

    return check


def _listed(items: Iterable[str], separator: str = ", ") -> str:
    return separator.join(_shortened(list(items)))


def _shortened(items: list[str]) -> list[str]:
    if len(items) <= _SHOWN:
        return items
    return [*items[:_SHOWN], f"and {len(items) - _SHOWN} more"]
