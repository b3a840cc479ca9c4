"""Conversion of the nodes of a graph; subgraphs capture values of the outer graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from weft.frontend.common.random_keys import RandomKeys
from weft.frontend.common.user_converters import typed_whole
from weft.frontend.onnx.dimensions import SizeLimitNeeded, limits_in
from weft.frontend.onnx.graph_order import GraphOrder, OrderedNode
from weft.frontend.onnx.node import Absent, Attributes, Node, Value
from weft.frontend.onnx.protos import GraphProto, NodeProto
from weft.frontend.onnx.registry import CONVERTERS, Converted, operator_name, opset_of
from weft.frontend.onnx.shape_rules import evaluate_on_shapes
from weft.frontend.onnx.shape_value import ShapeValue
from weft.frontend.onnx.size_equations import sizes_demanded, sums_demanded
from weft.frontend.onnx.tensors import tensor_to_numpy
from weft.ir import Constant, Dim, Expr, Span, TensorType, is_static
from weft.support.dataclass import dataclass
from weft.support.errors import (
    AttrsError,
    InternalError,
    InvalidModelError,
    TypeInferenceError,
    UnsupportedModelError,
    WeftError,
)

NO_WEIGHTS: Mapping[str, memoryview] = {}


@dataclass(frozen=True)
class Surroundings:
    """Properties of the model that its graphs share."""

    source: str
    folder: Path | None
    opsets: Mapping[str, int]
    check_node: Callable[[NodeProto, object], None]
    keys: RandomKeys
    # The declared sizes of values of the main graph, where they are known.
    declared: Mapping[str, tuple[Dim | None, ...] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Scope:
    """The values of a graph that are converted so far, by name."""

    model: Surroundings
    values: dict[str, Value]
    is_body: bool = False

    def read_initializers(self, graph: GraphProto, weights: Mapping[str, memoryview] = NO_WEIGHTS
                          ) -> None:
        """Add the initializers of a graph; ``weights`` are data that its message lacks."""
        for tensor in graph.initializer:
            data = tensor_to_numpy(tensor, self.model.folder, self.model.source,
                                   weights.get(tensor.name))
            span = Span(self.model.source, node=tensor.name)
            self.values[tensor.name] = Constant(data, span=span)

    def convert_nodes(self, order: GraphOrder) -> None:
        for node in order.nodes:
            self._convert_node(node, order.read)

    def _convert_node(self, ordered: OrderedNode, read: Container[str]) -> None:
        proto, span = ordered.proto, Span(self.model.source, node=ordered.label)
        self.model.check_node(proto, span)
        names = list(proto.output)
        while names and not names[-1]:
            names.pop()
        node = Node(
            operator_name(proto),
            span,
            tuple(self.values[n] if n else None for n in proto.input),
            Attributes.of(proto, span),
            len(names),
            max((i + 1 for i, name in enumerate(names) if name in read), default=0),
            opset_of(proto, self.model.opsets),
            self.model.folder,
            {name: ScopedBody(self, body) for name, body in ordered.bodies.items()},
            self.values,
            None if self.is_body else self.model.keys,
            () if self.is_body else tuple(map(self.model.declared.get, names)),
        )
        results = self._converted(node)
        if len(results) < node.outputs_read:
            raise node.fail(
                "the node has too many outputs", expected=str(len(results)), got=str(len(names))
            )
        for name, result in zip(names, results, strict=False):
            if name:
                self.values[name] = result


    def _converted(self, node: Node) -> Sequence[Value]:
        """The results of a node; ``SizeLimitNeeded`` where other sizes may be accepted."""
        try:
            return _convert(node)
        except (TypeInferenceError, UnsupportedModelError, InvalidModelError) as error:
            demanded = {} if self.is_body else sizes_demanded(node)
            sums = {} if self.is_body else sums_demanded(node)
            limits = demanded or ({} if sums else limits_in(node.inputs))
            if limits or sums:
                raise SizeLimitNeeded(error, limits, sums) from error
            if isinstance(error, InvalidModelError) and any(map(_is_symbolic, node.inputs)):
                raise UnsupportedModelError(  # right for some sizes, perhaps
                    error.what, where=error.where, expected=error.expected, got=error.got,
                    help=error.help) from error
            raise


@dataclass(frozen=True)
class ScopedBody:
    """A subgraph of a node, with the scope that it captures values from."""

    outer: Scope
    order: GraphOrder

    @property
    def input_count(self) -> int:
        return len(self.order.graph.input)

    @property
    def size(self) -> int:
        return self.order.size()

    def convert(self, inputs: Sequence[Value]) -> list[Value]:
        """See ``node.Body``; the converter of the node checks the number of inputs."""
        graph = self.order.graph
        captured = {name: self.outer.values[name] for name in self.order.captured}
        scope = Scope(self.outer.model, captured, is_body=True)
        scope.read_initializers(graph)
        names = [value.name for value in graph.input]
        scope.values.update(zip(names, inputs, strict=True))
        scope.convert_nodes(self.order)
        return [scope.values[value.name] for value in graph.output]


def _is_symbolic(value: Value | None) -> bool:
    """Whether a value is a tensor of symbolic sizes, or consists of such sizes."""
    if isinstance(value, ShapeValue):
        return True
    type_ = value.checked_type if isinstance(value, Expr) else None
    return isinstance(type_, TensorType) and not is_static(type_)


def _convert(node: Node) -> Sequence[Value]:
    try:
        if not node.bodies and any(isinstance(i, ShapeValue) for i in node.inputs):
            result = _convert_with_shapes(node)
        else:
            result = _run_converter(node)
    except WeftError as error:
        placed = node.placed(error)
        if isinstance(error, AttrsError) and any(isinstance(v, ShapeValue) for v in node.inputs):
            raise UnsupportedModelError(placed.what, where=placed.where, expected=placed.expected,
                                        got=placed.got, help=placed.help) from None
        raise placed from None
    results = (result,) if isinstance(result, (Expr, ShapeValue, Absent)) else result
    return [typed_whole(r) if isinstance(r, Expr) else r for r in results]


# Input index of the shape argument; other operators on shapes are evaluated at import if possible.
_SHAPE_ARGUMENT = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}


def _convert_with_shapes(node: Node) -> Converted:
    positions = [i for i, value in enumerate(node.inputs) if isinstance(value, ShapeValue)]
    if positions == [_SHAPE_ARGUMENT.get(node.op)]:
        return _run_converter(node)
    result = evaluate_on_shapes(node)
    if result is None:
        return _run_converter(node)
    return Constant(result, span=node.span) if isinstance(result, np.ndarray) else result


def _run_converter(node: Node) -> Converted:
    converter = CONVERTERS.find(node.op, node.opset)
    if converter is None:
        raise InternalError(f"{node.op} passed the coverage check", where=node.span)
    return converter.convert(node)
