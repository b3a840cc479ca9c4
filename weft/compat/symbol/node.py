"""Nodes of a symbolic graph, entries that name their results, and the walk over them (NNVM)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from weft.compat.symbol.attribute_text import parsed_attrs
from weft.compat.symbol.operator import SymbolOp
from weft.ir import Attrs, Span
from weft.support.dataclass import dataclass


class Node:
    """An operator with its inputs, or with ``op=None`` a variable.

    ``attrs`` are texts: the attributes of the operator, and any others that users set.
    ``control_deps`` run before the node. ``version`` of a variable counts its mutations so far.
    """

    __slots__ = ("attrs", "control_deps", "inputs", "name", "op", "span", "version")

    def __init__(self, op: SymbolOp | None, name: str, attrs: Mapping[str, str] | None = None,
                 inputs: Iterable[NodeEntry] = (), control_deps: Iterable[Node] = (),
                 span: Span | None = None) -> None:
        self.op = op
        self.name = name
        self.attrs: dict[str, str] = dict(attrs or {})
        self.inputs: list[NodeEntry] = list(inputs)
        self.control_deps: list[Node] = list(control_deps)
        self.version = 0
        self.span = span

    @property
    def is_variable(self) -> bool:
        return self.op is None

    @property
    def params(self) -> Attrs:
        """The operator's attribute record. Raises ``AttrsError`` for texts that do not fit."""
        assert self.op is not None, "a variable has no operator"
        return parsed_attrs(self.op.attrs_type, self.attrs)

    @property
    def num_outputs(self) -> int:
        """How many results the node has."""
        if self.op is None or self.op.outputs is None:
            return 1
        return self.op.outputs(self.params, len(self.inputs))

    def __repr__(self) -> str:
        return f"<Node {self.name!r} ({'variable' if self.op is None else self.op.name})>"


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """Result ``index`` of ``node``; of a variable, its value after ``version`` mutations."""

    node: Node
    index: int = 0
    version: int = 0


def walk(entries: Iterable[NodeEntry], further: Mapping[Node, Sequence[Node]] | None = None
         ) -> Iterator[Node]:
    """Every node once, after its inputs and control dependencies (NNVM's ``DFSVisit``).

    ``further`` lists more predecessors of nodes.
    """
    done: dict[Node, bool] = {}
    for entry in entries:
        stack = [entry.node]
        while stack:
            node = stack[-1]
            state = done.get(node)
            if state is None:
                done[node] = False
                before = [*(e.node for e in node.inputs), *node.control_deps,
                          *(further.get(node, ()) if further else ())]
                stack.extend(n for n in reversed(before) if n not in done)
            else:
                stack.pop()
                if not state:
                    done[node] = True
                    yield node


def copied(entries: Iterable[NodeEntry]) -> tuple[NodeEntry, ...]:
    """The same entries of copies of all nodes."""
    heads = tuple(entries)
    made: dict[Node, Node] = {}
    for node in walk(heads):
        copy = Node(node.op, node.name, node.attrs, span=node.span)
        copy.version = node.version
        copy.inputs = [NodeEntry(made[e.node], e.index, e.version) for e in node.inputs]
        copy.control_deps = [made[n] for n in node.control_deps]
        made[node] = copy
    return tuple(NodeEntry(made[e.node], e.index, e.version) for e in heads)
