"""``Graph``: the results of a symbol with attributes that passes read and provide (NNVM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.compat.symbol.json_format import load_json, save_json
from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.slots import has_attr
from weft.compat.symbol.symbol import Symbol
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.support.registry import Registry


class Graph:
    """Entries, and attributes by name: inputs (``shape_inputs``) and results of passes."""

    def __init__(self, outputs: Symbol | Sequence[NodeEntry],
                 attrs: Mapping[str, Any] | None = None) -> None:
        self.outputs = outputs.entries if isinstance(outputs, Symbol) else tuple(outputs)
        self.attrs: dict[str, Any] = dict(attrs or {})

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.outputs)

    def index(self) -> IndexedGraph:
        """The nodes and entries by number."""
        return IndexedGraph(self.outputs)

    def with_attrs(self, **attrs: Any) -> Graph:
        """The same graph with attributes added."""
        return Graph(self.outputs, {**self.attrs, **attrs})

    def apply(self, *passes: str, **attrs: Any) -> Graph:
        """The graph after ``passes``, by name; ``attrs`` are attributes that they read."""
        return apply_passes(self.with_attrs(**attrs), passes)

    def json(self) -> str:
        """The graph with its attributes in NNVM's form."""
        return save_json(self.outputs, self.attrs)

    @staticmethod
    def from_json(text: str) -> Graph:
        """The graph of ``json``. Raises ``ParseError``."""
        return Graph(*load_json(text))


class IndexedGraph:
    """Numbers of nodes, operands first, and of entries; the entries of a node are consecutive."""

    def __init__(self, outputs: Sequence[NodeEntry]) -> None:
        self.outputs = tuple(outputs)
        self.nodes: tuple[Node, ...] = tuple(walk(outputs))
        self.number = {node: i for i, node in enumerate(self.nodes)}
        rows = [0]
        for node in self.nodes:
            rows.append(rows[-1] + node.num_outputs)
        self.node_row_ptr = tuple(rows)
        self.input_nodes = tuple(i for i, node in enumerate(self.nodes) if node.is_variable)

    @property
    def num_entries(self) -> int:
        return self.node_row_ptr[-1]

    def entry_id(self, entry: NodeEntry) -> int:
        """The number of an entry; versions of a variable share one."""
        return self.node_row_ptr[self.number[entry.node]] + entry.index

    @property
    def output_ids(self) -> tuple[int, ...]:
        return tuple(map(self.entry_id, self.outputs))


@dataclass(frozen=True, eq=False)
class GraphPass:
    """A pass over graphs with the attributes it needs and provides (NNVM's ``PassFunctionReg``).

    ``depends`` and ``provides`` are attributes of the graph, ``depends_op`` slots of operators that
    must exist. ``change_graph`` says that the nodes change: attributes that other passes provided
    are then dropped, because they describe the old nodes.
    """

    name: str
    body: Callable[[Graph], Graph]
    describe: str
    depends: tuple[str, ...] = ()
    depends_op: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    change_graph: bool = False


GRAPH_PASSES: Registry[GraphPass] = Registry("graph pass")


def graph_pass(name: str, *, depends: Sequence[str] = (), depends_op: Sequence[str] = (),
               provides: Sequence[str] = (), change_graph: bool = False
               ) -> Callable[[Callable[[Graph], Graph]], GraphPass]:
    """Register the decorated ``Graph -> Graph`` as a pass; its docstring describes it."""

    def wrap(body: Callable[[Graph], Graph]) -> GraphPass:
        made = GraphPass(name, body, body.__doc__ or "", tuple(depends), tuple(depends_op),
                         tuple(provides), change_graph)
        return GRAPH_PASSES.register(name, made)

    return wrap


def apply_passes(graph: Graph, names: Sequence[str]) -> Graph:
    """Run passes in order; ``PassError`` if the graph lacks an attribute that a pass needs."""
    for name in names:
        pass_ = GRAPH_PASSES.get(name)
        _check(pass_, graph)
        after = pass_.body(graph)
        derived = {attr for other in GRAPH_PASSES for attr in GRAPH_PASSES.get(other).provides}
        kept = {key: value for key, value in graph.attrs.items()
                if not pass_.change_graph or key not in derived}
        given = {key: value for key, value in after.attrs.items()
                 if key not in graph.attrs or value is not graph.attrs[key]}
        graph = Graph(after.outputs, {**kept, **given})
        missing = [attr for attr in pass_.provides if attr not in graph.attrs]
        if missing:
            raise PassError(f"the pass {name} did not provide what it declares",
                            got=", ".join(missing))
    return graph


def _check(pass_: GraphPass, graph: Graph) -> None:
    for attr in pass_.depends:
        if attr in graph.attrs:
            continue
        providers = [n for n in GRAPH_PASSES if attr in GRAPH_PASSES.get(n).provides]
        run = f"run {' or '.join(providers)} before" if providers else None
        raise PassError(f"the pass {pass_.name} needs the graph attribute {attr!r}",
                        expected=", ".join(pass_.depends),
                        got=", ".join(graph.attrs) or "no attributes",
                        help=run or f"set it: graph.apply({pass_.name!r}, {attr}=...)")
    for key in pass_.depends_op:
        ops = {node.op for node in walk(graph.outputs) if node.op is not None}
        if ops and not any(has_attr(op, key) for op in ops):
            raise PassError(f"the pass {pass_.name} needs the operator attribute {key!r}",
                            got=f"none of {', '.join(sorted(op.name for op in ops))} has it",
                            help=f"set_attr(operator, {key!r}, ...)")
