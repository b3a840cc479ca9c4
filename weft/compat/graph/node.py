"""The parts of a graph: nodes, edges and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from weft.compat.graphdef.definitions import Library, NodeDef
from weft.compat.graphdef.names import CONTROL
from weft.ir import DType, Shape, Span, TensorType
from weft.support.dataclass import dataclass

SOURCE, SINK = 0, 1


class OwnerGraph(Protocol):
    """The interface of ``Graph`` that nodes, tensors and builders use."""

    name: str
    library: Library

    @property
    def num_node_ids(self) -> int: ...

    @property
    def op_nodes(self) -> Sequence[Node]: ...

    def facts_of(self, node: Node) -> Facts: ...

    def call(self, op: str, *inputs: Any, name: str | None = None, **attrs: Any
             ) -> Tensor | tuple[Tensor, ...]: ...

    def create(self, op: str, inputs: Sequence[Tensor] = (), *, name: str | None = None,
               attrs: Mapping[str, Any] | None = None) -> Node: ...

    def remove_node(self, node: Node) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Output ``src_output`` of ``src`` feeds input ``dst_input`` of ``dst``; both -1: control."""

    id: int
    src: Node
    dst: Node
    src_output: int
    dst_input: int

    @property
    def is_control(self) -> bool:
        return self.src_output == CONTROL

    def __str__(self) -> str:
        src = f"^{self.src.name}" if self.is_control else f"{self.src.name}:{self.src_output}"
        return f"{src} -> {self.dst.name}" + ("" if self.is_control else f":{self.dst_input}")


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of the results of a node: their types, and the values that are known and small."""

    types: tuple[TensorType, ...]
    values: tuple[np.ndarray | None, ...]


class Node:
    """A node of a graph: an operator with attributes, and its edges.

    ``id`` is dense in the order of construction and is never used for another node. ``device`` is
    the text of a virtual device, empty for any.
    """

    __slots__ = ("attrs", "device", "facts", "graph", "id", "in_edges", "name", "op", "out_edges",
                 "span")

    def __init__(self, graph: OwnerGraph, number: int, proto: NodeDef) -> None:
        self.graph = graph
        self.id = number
        self.name = proto.name
        self.op = proto.op
        self.attrs: dict[str, Any] = dict(proto.attrs)
        self.device = proto.device
        self.span: Span | None = proto.span
        self.in_edges: dict[int, Edge] = {}
        self.out_edges: dict[int, Edge] = {}
        self.facts: Facts | None = None

    @property
    def is_source(self) -> bool:
        return self.id == SOURCE

    @property
    def is_sink(self) -> bool:
        return self.id == SINK

    @property
    def is_op(self) -> bool:
        return self.id > SINK

    @property
    def data_edges(self) -> list[Edge]:
        """The edges of the inputs, in the order of the inputs."""
        edges = (e for e in self.in_edges.values() if not e.is_control)
        return sorted(edges, key=lambda e: e.dst_input)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the node reads."""
        return tuple(Tensor(e.src, e.src_output) for e in self.data_edges)

    @property
    def control_inputs(self) -> tuple[Node, ...]:
        """The nodes that run before this one, besides its inputs."""
        return tuple(e.src for e in self.in_edges.values() if e.is_control and e.src.is_op)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The results; their number is that of the inferred types."""
        return tuple(Tensor(self, i) for i in range(len(self.output_types)))

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """The types of the results. Raises what type inference raises."""
        return self.graph.facts_of(self).types

    @property
    def colocated_with(self) -> tuple[str, ...]:
        """The nodes whose device this one shares (``_class``)."""
        return tuple(str(text).removeprefix("loc:@") for text in self.attrs.get("_class", ()))

    def definition(self) -> NodeDef:
        """The node as a ``NodeDef``, whose inputs are names."""
        data = [_input_text(e) for e in self.data_edges]
        control = [f"^{n.name}" for n in sorted(self.control_inputs, key=lambda n: n.id)]
        return NodeDef(self.name, self.op, (*data, *control), self.device, dict(self.attrs),
                       self.span)

    def __repr__(self) -> str:
        return f"<Node {self.id} {self.name!r} ({self.op})>"


def _input_text(edge: Edge) -> str:
    return edge.src.name if edge.src_output == 0 else f"{edge.src.name}:{edge.src_output}"


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A result of a node: what builders return and take. Compares by node and index."""

    node: Node
    index: int

    @property
    def name(self) -> str:
        return f"{self.node.name}:{self.index}"

    @property
    def graph(self) -> OwnerGraph:
        return self.node.graph

    @property
    def type(self) -> TensorType:
        return self.node.output_types[self.index]

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def value(self) -> np.ndarray | None:
        """The value, if it is small and known without running the graph."""
        return self.node.graph.facts_of(self.node).values[self.index]

    @property
    def consumers(self) -> tuple[Node, ...]:
        """The nodes that read the tensor."""
        return tuple(e.dst for e in self.node.out_edges.values()
                     if e.src_output == self.index and e.dst.is_op)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and other.node is self.node and other.index == self.index

    def __hash__(self) -> int:
        return hash((id(self.node), self.index))

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    def __repr__(self) -> str:
        return f"<Tensor {self.name}>"

    # Python's operators build nodes, except ``==``, which compares handles.
    def __add__(self, other: Any) -> Tensor:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return self._binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._binary("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self._binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return self._binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._binary("divide", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return self._binary("nn.matmul", self, other)

    def __neg__(self) -> Tensor:
        return self._binary("negative", self)

    def __lt__(self, other: Any) -> Tensor:
        return self._binary("less", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self._binary("greater", self, other)

    # Makes NumPy leave ``array + x`` to ``__radd__``.
    __array_ufunc__ = None

    def _binary(self, op: str, *operands: Any) -> Tensor:
        result = self.graph.call(op, *operands)
        if not isinstance(result, Tensor):
            raise TypeError(f"{op} has several results")
        return result
