"""Import of a graph into another (``tensorflow/core/graph/graph_constructor.h``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from weft.compat.graph.graph import Graph
from weft.compat.graph.inference import BACK_EDGE, Fact, fact_of, infer
from weft.compat.graph.library import with_functions
from weft.compat.graph.node import Facts, Node, Tensor
from weft.compat.graph.versions import check_versions, merged
from weft.compat.graphdef.annotate import colocated_with
from weft.compat.graphdef.definitions import GraphDef, NodeDef, ShapeAttr
from weft.compat.graphdef.names import CONTROL, TensorRef, check_node_name, parse_tensor
from weft.compat.graphdef.node_order import execution_order, nodes_by_name
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class ImportResults:
    """``unused_input_map_keys`` are keys of ``input_map`` that no imported node reads."""

    return_tensors: tuple[Tensor, ...]
    return_nodes: tuple[Node, ...]
    unused_input_map_keys: tuple[str, ...]


def import_graph(graph: GraphDef | Graph, into: Graph, *, prefix: str = "",
                 uniquify_names: bool = False, uniquify_prefix: bool = False,
                 input_map: Mapping[str, Tensor | Node] | None = None,
                 skip_mapped_nodes: bool = False, control_dependencies: Sequence[Node] = (),
                 return_tensors: Sequence[str] = (), return_nodes: Sequence[str] = (),
                 validate_colocation_constraints: bool = True) -> ImportResults:
    """Add the nodes of ``graph`` to ``into``, which stays as it was on any error.

    Names become ``prefix/name``. A name that is taken is an error, or gets a number: with
    ``uniquify_prefix`` the prefix, with ``uniquify_names`` the node. ``input_map`` replaces tensors
    (``"a:0"``) that nodes read by tensors of ``into``, and control inputs (``"^a"``) by its nodes;
    with ``skip_mapped_nodes``, nodes whose results are all replaced are left out. Nodes without
    imported inputs run after ``control_dependencies``. ``return_tensors`` and ``return_nodes`` are
    looked up by their names in ``graph``.

    Raises ``InvalidModelError`` for names, inputs, cycles, versions, functions and colocation that
    do not fit, ``TypeInferenceError`` for ill-typed nodes.
    """
    source = graph.as_graph_def() if isinstance(graph, Graph) else graph
    check_versions(source.versions, source.source)
    nodes = nodes_by_name(source.nodes, source.source)
    mapping = _InputMap(into, input_map or {}, nodes, source.source)
    skipped = mapping.replaced_nodes(nodes) if skip_mapped_nodes else set()
    names = _names(into, nodes, skipped, prefix, uniquify_names=uniquify_names,
                   uniquify_prefix=uniquify_prefix, where=source.source)
    for node in control_dependencies:
        into.check_member(node)
    importer = _Importer(into, source, nodes, names, mapping, skipped)
    if validate_colocation_constraints:
        importer.check_colocation()
    library = with_functions(into.library, source.library, source.source)
    importer.infer(library)
    tensors = [importer.tensor_for(text) for text in return_tensors]
    for name in return_nodes:
        importer.check_returned(name)
    made = importer.commit(library, tuple(control_dependencies))
    into.versions = merged(into.versions, source.versions)
    return ImportResults(
        tuple(found if isinstance(found, Tensor) else Tensor(made[found.node], found.index)
              for found in tensors),
        tuple(made[name] for name in return_nodes), mapping.unused())


class _InputMap:
    """The tensors and control inputs that are replaced by those of the target."""

    def __init__(self, into: Graph, given: Mapping[str, Tensor | Node],
                 nodes: Mapping[str, NodeDef], where: str) -> None:
        self._table: dict[TensorRef, Tensor | Node] = {}
        self._texts: dict[TensorRef, str] = {}
        self._used: set[TensorRef] = set()
        for text, value in given.items():
            ref = parse_tensor(text, where)
            is_control = ref.index == CONTROL
            if is_control != isinstance(value, Node):
                raise InvalidModelError(
                    f"input_map maps {text!r} to a {type(value).__name__}", where=where,
                    expected="a node for '^name', a tensor for 'name:index'")
            node = value if isinstance(value, Node) else value.node
            into.check_member(node)
            if isinstance(value, Tensor):
                fact_of(value)  # the index is in range
            self._table[ref] = value
            self._texts[ref] = text
        self._nodes = nodes

    def get(self, ref: TensorRef) -> Tensor | Node | None:
        found = self._table.get(ref)
        if found is not None:
            self._used.add(ref)
        return found

    def replaced_nodes(self, nodes: Mapping[str, NodeDef]) -> set[str]:
        """The nodes without control edges whose results are replaced wherever they are read."""
        read: dict[str, set[TensorRef]] = {}
        for node in nodes.values():
            for text in node.inputs:
                ref = parse_tensor(text)
                read.setdefault(ref.node, set()).add(ref)
        mapped = {ref.node for ref in self._table}
        return {name for name in mapped & nodes.keys()
                if all(ref in self._table for ref in read.get(name, ()))}

    def unused(self) -> tuple[str, ...]:
        return tuple(text for ref, text in self._texts.items() if ref not in self._used)


def _names(into: Graph, nodes: Mapping[str, NodeDef], skipped: set[str], prefix: str, *,
           uniquify_names: bool, uniquify_prefix: bool, where: str) -> dict[str, str]:
    """The name in the target of each node."""
    if prefix:
        prefix = check_node_name(prefix.rstrip("/"), where) + "/"
        if uniquify_prefix:
            prefix = _unique_prefix(into, prefix)
    names: dict[str, str] = {}
    taken = {node.name for node in into.nodes}
    for name in nodes:
        check_node_name(name, where)
        if name in skipped:
            continue
        found = prefix + name
        if found in taken:
            if not uniquify_names:
                raise InvalidModelError(f"the graph has a node {found!r} already", where=where,
                                        help="import with a prefix, or with uniquify_names=True")
            number = 1
            while f"{found}_{number}" in taken or (prefix == "" and f"{name}_{number}" in nodes):
                number += 1
            found = f"{found}_{number}"
        taken.add(found)
        names[name] = found
    return names


def _unique_prefix(into: Graph, prefix: str) -> str:
    """``prefix/``, with a number if a node has the prefix as its name or scope."""
    stem, number = prefix[:-1], 0
    while any(node.name == prefix[:-1] or node.name.startswith(prefix) for node in into.nodes):
        number += 1
        prefix = f"{stem}_{number}/"
    return prefix


def _check_declared(proto: NodeDef, facts: Facts | None) -> None:
    """Raise ``InvalidModelError`` if ``_output_shapes`` of a node contradicts inference."""
    declared = proto.attrs.get("_output_shapes", ())
    for index, (shape, type_) in enumerate(zip(declared, facts.types if facts else (),
                                               strict=False)):
        dims = shape.dims if isinstance(shape, ShapeAttr) else None
        fits = dims is None or (len(dims) == type_.ndim and all(
            a is None or not isinstance(b, int) or a == b
            for a, b in zip(dims, type_.shape, strict=True)))
        if not fits:
            raise InvalidModelError(
                f"node {proto.name!r} has an _output_shapes attribute that contradicts output "
                f"{index}", where=proto.span, expected=str(type_), got=str(shape))


class _Importer:
    """One import: everything is checked before the target changes."""

    def __init__(self, into: Graph, source: GraphDef, nodes: Mapping[str, NodeDef],
                 names: Mapping[str, str], mapping: _InputMap, skipped: set[str]) -> None:
        self._into = into
        self._source = source
        self._nodes = nodes
        self._names = names
        self._inputs: dict[str, list[TensorRef | Tensor | Node]] = {}
        self._facts: dict[str, Facts | None] = {}
        self._mapping = mapping
        self._skipped = skipped
        for name in names:
            self._inputs[name] = [self._input(text, name) for text in nodes[name].inputs]

    def _input(self, text: str, reader: str) -> TensorRef | Tensor | Node:
        ref = parse_tensor(text)
        found = self._mapping.get(ref)
        if found is not None:
            return found
        if ref.node in self._skipped:
            raise InvalidModelError(f"node {reader!r} reads {text!r}, which is not imported",
                                    where=self._source.source,
                                    help="map it too, or import without skip_mapped_nodes")
        return ref

    def check_colocation(self) -> None:
        """Raise ``InvalidModelError`` for a node that is colocated with an unknown node."""
        for name in self._names:
            for other in colocated_with(self._nodes[name]):
                if other not in self._names:
                    raise InvalidModelError(
                        f"node {name!r} is colocated with an unknown node {other!r}",
                        where=self._source.source,
                        help="import with validate_colocation_constraints=False")

    def infer(self, library: Any) -> None:
        """Infer the facts of the nodes; nodes that cannot be lowered yet have none."""
        target = Graph(library, name=self._source.source)
        for name in self._order():
            proto = self._nodes[name]
            facts = [self._fact(ref, name) for ref in self._inputs[name]
                     if not isinstance(ref, Node)
                     and not (isinstance(ref, TensorRef) and ref.index == CONTROL)]
            known = [fact for fact in facts if fact is not None]
            if proto.op == "Merge":
                facts = list(known[:1])
            if len(known) < len(facts):
                self._facts[name] = None
                continue
            try:
                self._facts[name] = infer(target, proto, known[:1] if proto.op == "Merge"
                                          else known)
                _check_declared(proto, self._facts[name])
            except UnsupportedModelError as error:
                if error.what.startswith("unknown operator"):
                    raise
                self._facts[name] = None

    def _order(self) -> list[str]:
        """The nodes in an order in which they can run, where loops start with their first value."""
        replaced = {}
        for name in self._names:
            inputs = tuple(str(ref) for ref in self._inputs[name] if isinstance(ref, TensorRef)
                           and self._nodes[ref.node].op != BACK_EDGE)
            replaced[name] = dataclasses.replace(self._nodes[name], inputs=inputs)
        return execution_order(replaced, set(replaced), (), self._source.source)

    def _fact(self, ref: TensorRef | Tensor | Node, reader: str) -> Fact | None:
        if isinstance(ref, Tensor):
            return fact_of(ref)
        if isinstance(ref, Node):
            return None
        facts = self._facts.get(ref.node)
        if facts is None:
            return None
        if ref.index >= len(facts.types):
            raise InvalidModelError(
                f"node {reader!r} reads {str(ref)!r}, which does not exist",
                where=self._source.source, expected=f"an output below {len(facts.types)}")
        return Fact(facts.types[ref.index], facts.values[ref.index])

    def tensor_for(self, text: str) -> Tensor | TensorRef:
        """The tensor of the target that replaces the tensor ``text`` of the source."""
        ref = parse_tensor(text, self._source.source)
        found = self._mapping.get(ref)
        if isinstance(found, Tensor):
            return found
        facts = self._facts.get(ref.node)
        if ref.node not in self._names or ref.index == CONTROL \
                or (facts is not None and ref.index >= len(facts.types)):
            raise InvalidModelError(f"the imported graph has no tensor {text!r} to return",
                                    where=self._source.source)
        return ref

    def check_returned(self, name: str) -> None:
        """Raise ``InvalidModelError`` if ``name`` is not imported."""
        if name not in self._names:
            raise InvalidModelError(f"the imported graph has no node {name!r} to return",
                                    where=self._source.source)

    def commit(self, library: Any, control: tuple[Node, ...]) -> dict[str, Node]:
        """Add the nodes; no step of this can fail."""
        into = self._into
        into.library = library
        made: dict[str, Node] = {}
        for name, full in self._names.items():
            proto = self._nodes[name]
            attrs = dict(proto.attrs)
            groups = colocated_with(proto)
            if groups:
                attrs["_class"] = tuple(f"loc:@{self._names.get(g, g)}" for g in groups)
            made[name] = into.add_node(dataclasses.replace(proto, name=full, attrs=attrs))
        for name, node in made.items():
            self._connect(node, self._inputs[name], made)
            if not any(isinstance(ref, TensorRef) for ref in self._inputs[name]):
                for other in control:
                    into.add_control_edge(other, node)
        for name, node in made.items():
            node.facts = self._facts.get(name)
        return made

    def _connect(self, node: Node, inputs: Sequence[TensorRef | Tensor | Node],
                 made: Mapping[str, Node]) -> None:
        position = 0
        for ref in inputs:
            if isinstance(ref, Node):
                self._into.add_control_edge(ref, node)
            elif isinstance(ref, TensorRef) and ref.index == CONTROL:
                self._into.add_control_edge(made[ref.node], node)
            else:
                src = ref.node if isinstance(ref, Tensor) else made[ref.node]
                self._into.add_edge(src, ref.index, node, position)
                position += 1
