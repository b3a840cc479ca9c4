"""``Graph``: a program as nodes and edges with names, for builders and importers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import weft.op  # noqa: F401 - fills the catalogue
from weft.compat.graph import builders, inference
from weft.compat.graph.gradients import gradients
from weft.compat.graph.library import function_of, with_functions
from weft.compat.graph.node import Facts, Node, OwnerGraph, Tensor
from weft.compat.graph.scopes import DeviceLike, ScopeStack
from weft.compat.graph.structure import GraphStructure
from weft.compat.graph.versions import CURRENT
from weft.compat.graphdef.definitions import FunctionRef, GraphDef, Library, NodeDef, Versions
from weft.compat.graphdef.importer import InputShapes, from_graphdef, initial_values
from weft.compat.graphdef.names import CONTROL, check_node_name, parse_tensor
from weft.ir import OPS, DType, IRModule, Span, VirtualDevice
from weft.support.errors import InvalidModelError, RegistryError
from weft.support.suggestion import did_you_mean


class UnknownOperatorError(RegistryError, AttributeError):
    """A name of ``Graph.op`` that no operator has; ``hasattr`` is then false."""


class OperatorNames:
    """An operator, or a group of operators, of the catalogue; calls make nodes of ``graph``."""

    __slots__ = ("_graph", "_name")

    def __init__(self, graph: OwnerGraph, name: str) -> None:
        self._graph = graph
        self._name = name

    def __getattr__(self, name: str) -> OperatorNames:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}" if self._name else name
        if full not in OPS and not any(known.startswith(f"{full}.") for known in OPS):
            raise UnknownOperatorError(f"unknown operator {full!r}", help=did_you_mean(full, OPS))
        return OperatorNames(self._graph, full)

    def __call__(self, *inputs: Any, name: str | None = None, **attrs: Any
                 ) -> Tensor | tuple[Tensor, ...]:
        """See ``Graph.call``."""
        return self._graph.call(self._name, *inputs, name=name, **attrs)

    def __dir__(self) -> list[str]:
        prefix = f"{self._name}." if self._name else ""
        return sorted({known[len(prefix):].split(".")[0] for known in OPS
                       if known.startswith(prefix)})

    def __repr__(self) -> str:
        return f"<operator {self._name or 'names'}>"


def to_dot(graph: GraphStructure) -> str:
    """One box per node with its name, operator and device; control edges are dashed."""
    lines = ["digraph weft {", "  node [shape=box];"]
    for node in graph.op_nodes:
        device = f"\\n{_text(node.device)}" if node.device else ""
        lines.append(f'  n{node.id} [label="{_text(node.name)}\\n{_text(node.op)}{device}"];')
    for edge in graph.edges:
        if not (edge.src.is_op and edge.dst.is_op):
            continue
        if edge.is_control:
            style = " [style=dashed]"
        else:
            style = f' [label="{edge.src_output}"]' if edge.src_output else ""
        lines.append(f"  n{edge.src.id} -> n{edge.dst.id}{style};")
    return "\n".join([*lines, "}", ""])


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_DEFAULT: ContextVar[Graph | None] = ContextVar("default_graph", default=None)


class Graph(GraphStructure):
    """A graph under construction. Names are those of TensorFlow: ``scope/node``, ``scope/node:1``.

    Builders (``placeholder``, ``constant``, ``call``, ``op``) make nodes in the current scopes
    (``name_scope``, ``control_dependencies``, ``device``, ``colocate_with``) and infer types at
    once. ``to_module`` gives the program; ``weft.compile`` takes a graph. ``library`` holds the
    functions that nodes call, ``versions`` the version of the producer and of the oldest consumer.
    """

    def __init__(self, library: Library | None = None, *, name: str = "graph") -> None:
        super().__init__()
        self.name = name
        self.library = Library() if library is None else library
        self.versions = Versions(CURRENT)
        self._scopes = ScopeStack()

    # Scopes.

    def name_scope(self, name: str | None) -> AbstractContextManager[str]:
        """Prefix the names of new nodes with ``name/``, made unique: ``a/``, ``a_1/``.

        A name that ends in a slash enters an existing scope again; ``None`` returns to the root.
        Yields the prefix.
        """
        return self._scopes.named(name, self._is_taken)

    def control_dependencies(self, inputs: Sequence[Node | Tensor] | None
                             ) -> AbstractContextManager[None]:
        """New nodes run after ``inputs``, besides those of outer contexts; ``None`` lifts these."""
        nodes = None if inputs is None else [self._own(x) for x in inputs]
        return self._scopes.controlled(nodes)

    def device(self, device: DeviceLike) -> AbstractContextManager[None]:
        """New nodes run on ``device``: ``"sim:1"``, ``"/device:GPU:0"``, or the result of a
        function.

        The outer context fills in the parts that a device leaves open. The function takes a
        ``NodeDef``. ``None`` lifts the outer contexts. Raises ``TargetError`` for other texts.
        """
        if isinstance(device, str):
            VirtualDevice.parse(device)
        return self._scopes.on_device(device)

    def colocate_with(self, other: Node | Tensor | None, *, ignore_existing: bool = False
                      ) -> AbstractContextManager[None]:
        """New nodes run on the same device as ``other``."""
        node = None if other is None else self._own(other)
        return self._scopes.colocated(node, ignore_existing=ignore_existing)

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make this the graph that ``default_graph()`` gives."""
        token = _DEFAULT.set(self)
        try:
            yield self
        finally:
            _DEFAULT.reset(token)

    def unique_name(self, name: str) -> str:
        """``name`` in the current name scope, with a number if it is taken."""
        check_node_name(name)
        return self._scopes.unique(self._scopes.current.name + name, self._is_taken)

    def _is_taken(self, name: str) -> bool:
        return name in self._by_name

    # Builders.

    @property
    def op(self) -> OperatorNames:
        """The operators of weft's catalogue: ``g.op.nn.relu(x)`` is ``g.call("nn.relu", x)``."""
        return OperatorNames(self, "")

    def placeholder(self, shape: Sequence[object], dtype: DType | str = "float32",
                    name: str = "Placeholder") -> Tensor:
        """An input. A name as a size makes it symbolic, ``None`` leaves it open."""
        return builders.placeholder(self, shape, dtype, name)

    def constant(self, value: Any, dtype: DType | str | None = None, name: str = "Const"
                 ) -> Tensor:
        """A constant; Python floats become float32 and ints int32 unless ``dtype`` is given."""
        return builders.constant(self, value, dtype, name)

    def variable(self, initial: Any, dtype: DType | str | None = None, name: str = "Variable"
                 ) -> Tensor:
        """A tensor that a compiled graph keeps between calls, ``initial`` at first.

        Nodes that read it see the assignments before them, in the order of control edges and of
        construction.
        """
        return builders.variable(self, initial, dtype, name)

    def assign(self, variable: Tensor, value: Any, name: str = "Assign") -> Tensor:
        """Set a variable when the result, or a node that depends on it, is an output."""
        return builders.assign(self, "Assign", variable, value, name)

    def assign_add(self, variable: Tensor, value: Any, name: str = "AssignAdd") -> Tensor:
        """Add to a variable; see ``assign``."""
        return builders.assign(self, "AssignAdd", variable, value, name)

    def assign_sub(self, variable: Tensor, value: Any, name: str = "AssignSub") -> Tensor:
        """Subtract from a variable; see ``assign``."""
        return builders.assign(self, "AssignSub", variable, value, name)

    def call(self, op: str, *inputs: Any, name: str | None = None, **attrs: Any
             ) -> Tensor | tuple[Tensor, ...]:
        """A node of an operator of weft or TensorFlow, or of a function: its results.

        ``inputs`` are tensors, sequences of tensors, arrays and numbers. Raises
        ``TypeInferenceError`` and ``AttrsError`` for a call that is ill-typed, and
        ``UnsupportedModelError`` for an unknown operator; the graph is then as before.
        """
        return builders.call(self, op, inputs, attrs, name)

    def create(self, op: str, inputs: Sequence[Tensor] = (), *, name: str | None = None,
               attrs: Mapping[str, Any] | None = None) -> Node:
        """A node in the current scopes with checked types. Raises what ``call`` raises."""
        proto = NodeDef("", op, (), "", dict(attrs or {}), Span.of_caller())
        return self.create_as(proto, inputs, name or op.rpartition(".")[2])

    def group(self, *inputs: Node | Tensor, name: str = "group") -> Node:
        """A node without results that runs after ``inputs``."""
        with self.control_dependencies(inputs):
            return self.create("NoOp", name=name)

    def create_exactly(self, proto: NodeDef, inputs: Sequence[Tensor]) -> Node:
        """A node with the name, device and attributes of ``proto`` outside of all scopes.

        Control dependencies hold. Raises what ``call`` and ``add_node`` raise.
        """
        for tensor in inputs:
            self._own(tensor)
        facts = inference.infer(self, proto, [inference.fact_of(t) for t in inputs])
        return self._connected(self.add_node(proto), inputs, facts)

    def create_as(self, proto: NodeDef, inputs: Sequence[Tensor], name: str) -> Node:
        """A node of the operator and attributes of ``proto`` with a name like ``name``.

        Raises what ``call`` raises.
        """
        for tensor in inputs:
            self._own(tensor)
        marks = self._scopes.marks()
        full = name[:-1] if name.endswith("/") else self.unique_name(name)
        try:
            scoped = self._in_scope(dataclasses.replace(proto, name=full))
            facts = inference.infer(self, scoped, [inference.fact_of(t) for t in inputs])
            node = self.add_node(scoped)
        except Exception:
            self._scopes.restore(marks)
            raise
        return self._connected(node, inputs, facts)

    def _connected(self, node: Node, inputs: Sequence[Tensor], facts: Facts) -> Node:
        """``node`` with its inputs, and the control edges of the current scope."""
        for index, tensor in enumerate(inputs):
            self.add_edge(tensor.node, tensor.index, node, index)
        read = {tensor.node for tensor in inputs}
        for other in self._scopes.current.control:
            if other not in read:
                self.add_control_edge(other, node)
        node.facts = facts
        return node

    def _in_scope(self, proto: NodeDef) -> NodeDef:
        """``proto`` with the device and the colocation of the current scope."""
        scope = self._scopes.current
        attrs = dict(proto.attrs)
        found = VirtualDevice()
        for entry in reversed(scope.devices):
            text = entry if isinstance(entry, str) else entry(proto)
            outer = VirtualDevice.parse(text or "")
            found = VirtualDevice(*(mine if mine is not None else theirs for mine, theirs in zip(
                dataclasses.astuple(found), dataclasses.astuple(outer), strict=True)))
        device = str(found)
        if scope.colocated:
            groups = [*attrs.get("_class", ()), *(f"loc:@{n.name}" for n in scope.colocated)]
            attrs["_class"] = tuple(dict.fromkeys(groups))
            device = device or next((n.device for n in scope.colocated if n.device), "")
        return dataclasses.replace(proto, device=device, attrs=attrs)

    # Gradients.

    def gradients(self, ys: Tensor | Sequence[Tensor], xs: Tensor | Sequence[Tensor],
                  grad_ys: Sequence[Tensor | None] | None = None, name: str = "gradients"
                  ) -> list[Tensor | None]:
        """The gradient of the sum of all ``ys`` with respect to each of ``xs``, as new tensors.

        ``xs`` are variables, placeholders or inner tensors. ``grad_ys`` are the gradients that
        arrive at ``ys``; ``None`` stands for ones. A tensor without influence has the gradient
        ``None``. Branches, loops and functions are differentiated, functions with a ``gradient``
        by that. Raises ``OptionError`` and ``InvalidModelError`` for other tensors, and
        ``PassError`` for operators without a gradient when the graph becomes a program.
        """
        sums = [ys] if isinstance(ys, Tensor) else list(ys)
        by = [xs] if isinstance(xs, Tensor) else list(xs)
        return gradients(self, sums, by, [None] * len(sums) if grad_ys is None else grad_ys, name)

    # Functions.

    def define_function(self, name: str, body: Graph, inputs: Sequence[Tensor],
                        outputs: Sequence[Tensor], *, noinline: bool = False,
                        gradient: str | None = None) -> FunctionRef:
        """Add a function to the library: ``outputs`` of ``body`` for its placeholders ``inputs``.

        ``gradient`` names a function ``(x, .., dy, ..) -> (dx, ..)`` of the library, by which
        ``weft.grad`` differentiates calls. Nodes call the function by its name. Raises
        ``InvalidModelError`` for other inputs, and for a name that is taken or unknown.
        """
        made = function_of(body, name, inputs, outputs, noinline=noinline)
        library = with_functions(self.library, body.library, self.name)
        gradients = {} if gradient is None else {name: gradient}
        if gradient is not None and gradient not in library.functions:
            raise InvalidModelError(f"the library has no function {gradient!r}",
                                    expected=", ".join(library.functions) or "no functions")
        self.library = with_functions(library, Library({name: made}, gradients), self.name)
        return FunctionRef(name)

    def _own(self, value: Node | Tensor) -> Node:
        if not isinstance(value, (Node, Tensor)):
            raise InvalidModelError("not a node or tensor of a graph", got=type(value).__name__,
                                    where=Span.of_caller())
        node = value.node if isinstance(value, Tensor) else value
        self.check_member(node)
        return node

    # Facts about tensors.

    def facts_of(self, node: Node) -> Facts:
        """The types and known values of the results of ``node``, inferred at the first use."""
        return inference.facts_of(self, node)

    def tensor(self, name: str) -> Tensor:
        """The tensor ``node`` or ``node:index``; ``InvalidModelError`` if there is none."""
        ref = parse_tensor(name)
        node = self.find_node(ref.node)
        if node is None or ref.index == CONTROL:
            raise InvalidModelError(f"the graph has no tensor {name!r}")
        if ref.index >= len(node.output_types):
            raise InvalidModelError(f"the graph has no tensor {name!r}",
                                    got=f"{node.name!r} has {len(node.output_types)} outputs")
        return Tensor(node, ref.index)

    # Conversions.

    def as_graph_def(self) -> GraphDef:
        """The graph as plain records, nodes in the order of ids."""
        return GraphDef(tuple(node.definition() for node in self.op_nodes), self.versions,
                        self.library, self.name)

    def to_module(self, outputs: Sequence[str | Tensor | Node] | None = None,
                  inputs: InputShapes | Sequence[str] | None = None) -> IRModule:
        """The typed program that computes ``outputs`` (``None``: the results without readers).

        ``inputs`` gives shapes of placeholders and cuts the graph at other tensors, as
        ``from_graphdef`` explains. A ``Node`` among ``outputs`` runs and returns nothing.
        """
        wanted = None if outputs is None else [_target(x) for x in outputs]
        fed = dict.fromkeys(inputs) if inputs is not None and not isinstance(inputs, Mapping) \
            else inputs
        return from_graphdef(self.as_graph_def(), outputs=wanted, inputs=fed)

    def initial_values(self) -> dict[str, np.ndarray]:
        """The first values of the variables, by name."""
        return initial_values(self.as_graph_def().nodes)

    def copy(self) -> Graph:
        """A graph with the same nodes and names, numbered densely."""
        made = Graph(self.library, name=self.name)
        made.versions = self.versions
        twins = {node: made.add_node(dataclasses.replace(node.definition(), inputs=()))
                 for node in self.op_nodes}
        for edge in self.edges:
            if edge.src in twins and edge.dst in twins:
                made.add_edge(twins[edge.src], edge.src_output, twins[edge.dst], edge.dst_input)
        for node, twin in twins.items():
            twin.facts = node.facts
        return made

    def to_dot(self) -> str:
        """A drawing in Graphviz's DOT language; control edges are dashed."""
        return to_dot(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} with {len(self)} nodes>"


def _target(value: str | Tensor | Node) -> str:
    if isinstance(value, Tensor):
        return str(value.name)
    return f"^{value.name}" if isinstance(value, Node) else value


def default_graph() -> Graph:
    """The graph of the innermost ``as_default``; ``InvalidModelError`` outside of one."""
    graph = _DEFAULT.get()
    if graph is None:
        raise InvalidModelError("there is no default graph", where=Span.of_caller(),
                                help="build inside `with graph.as_default():`")
    return graph
