"""Conversion of an ONNX graph to a typed module, in one pass over the sorted nodes."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.frontend.common.random_keys import RandomKeys
from weft.frontend.onnx import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.onnx.checks import (
    check_features,
    check_versions,
    upgrade_opset,
)
from weft.frontend.onnx.coverage import check_coverage
from weft.frontend.onnx.dimensions import Dimensions, SizeLimitNeeded
from weft.frontend.onnx.functions import expand_function_bodies, inline_functions
from weft.frontend.onnx.graph_inputs import GraphInputs, Override
from weft.frontend.onnx.graph_order import GraphOrder, check_graph, part_for
from weft.frontend.onnx.loader import LoadedModel, load_model
from weft.frontend.onnx.node import Absent, items_of, tensor_type
from weft.frontend.onnx.node_checks import newest_opset, node_checker
from weft.frontend.onnx.protos import GraphProto, ValueInfoProto
from weft.frontend.onnx.scope import Scope, Surroundings
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import Constant, Dim, Expr, Function, IRModule, Span, Tuple, infer_type
from weft.ir.symbol import ANY_SIZE, SizeRange, common_range
from weft.ir.types import TensorType, TupleType, is_static
from weft.support.allocation import allocation_budget
from weft.support.errors import (
    InvalidInputError,
    InvalidModelError,
    TypeInferenceError,
    UnsupportedModelError,
)
from weft.support.suggestion import did_you_mean

Overrides = Mapping[str, Override]


def import_model(model: str | os.PathLike[str] | bytes | Any, inputs: Overrides,
                 outputs: Sequence[str] | None = None, given: Collection[str] = ()) -> IRModule:
    """See ``from_onnx`` and ``import_for`` of ``weft.frontend.onnx``."""
    with allocation_budget():
        return _imported(upgrade_opset(load_model(model)), inputs, outputs, given)


def _imported(loaded: LoadedModel, inputs: Overrides, outputs: Sequence[str] | None,
              given: Collection[str]) -> IRModule:
    opsets = check_versions(loaded, newest_opset)
    loaded = expand_function_bodies(inline_functions(loaded), opsets)
    graph = loaded.proto.graph
    check_features(loaded.proto, loaded.source)
    order = check_graph(graph, loaded.source)
    if outputs is not None:
        order = part_for(order, outputs, given)
    check_coverage(order, opsets, loaded.source)
    return _import_within_limits(loaded, opsets, inputs, order)


def _import_within_limits(
    loaded: LoadedModel, opsets: Mapping[str, int], inputs: Overrides, order: GraphOrder
) -> IRModule:
    """Import a graph; start again whenever a node needs a smaller range of a size, or a sum."""
    limits: dict[str, SizeRange] = {}
    sums: dict[str, Dim] = {}
    while True:
        try:
            return GraphImporter(loaded, opsets, inputs, limits, sums).run(order)
        except SizeLimitNeeded as needed:
            narrowed = _narrowed(limits, needed.limits)
            more = {**needed.sums, **sums}
            if narrowed == limits and more.keys() == sums.keys():
                raise needed.error from None
            limits, sums = narrowed, more


def _narrowed(limits: Mapping[str, SizeRange], needed: Mapping[str, SizeRange]
              ) -> dict[str, SizeRange]:
    """The sizes in both, by name; needs that contradict earlier ones are left out."""
    found = dict(limits)
    for name, sizes in needed.items():
        with contextlib.suppress(TypeInferenceError):
            found[name] = common_range(name, limits.get(name, ANY_SIZE), sizes)
    return found


class GraphImporter:
    """Converts the main graph; ``values`` maps the names of the graph to converted values."""

    def __init__(
        self, loaded: LoadedModel, opsets: Mapping[str, int], inputs: Overrides,
        limits: Mapping[str, SizeRange], sums: Mapping[str, Dim],
    ) -> None:
        self.source = loaded.source
        self.folder: Path | None = loaded.folder
        self.weights = loaded.weights
        self.graph: GraphProto = loaded.proto.graph
        check = node_checker(loaded.proto, opsets)
        self.keys = RandomKeys(_free_name("key", self.graph))
        self.overrides = dict(inputs)
        self.dimensions = Dimensions.of(self.source, self.graph.input, self.overrides, limits,
                                        sums)
        declared = {value.name: self.dimensions.of_result(value.type)
                    for value in (*self.graph.value_info, *self.graph.output)}
        self.scope = Scope(
            Surroundings(self.source, self.folder, opsets, check, self.keys, declared), {})
        self.values = self.scope.values
        self.inputs = GraphInputs(self.source, self.dimensions)

    def run(self, order: GraphOrder) -> IRModule:
        self.scope.read_initializers(self.graph, self.weights)
        self._import_inputs()
        try:
            self.scope.convert_nodes(order)
            return self._module(order.outputs)
        except TypeInferenceError as error:
            if all(is_static(tensor_type(p)) for p in self.inputs.params.values()):
                raise
            raise UnsupportedModelError(  # other sizes may be accepted
                error.what, where=error.where, expected=error.expected, got=error.got,
                help=error.help or 'fix the sizes: inputs={"x": (1, 3, 224, 224)}') from error

    def _import_inputs(self) -> None:
        """Create the parameters; skip initializers, which IR version 3 also lists as inputs."""
        names = [i.name for i in self.graph.input if i.name not in self.values]
        inner = {name for node in self.graph.node for name in node.output}
        unknown = [n for n in self.overrides if n not in names and n not in inner]
        if unknown:
            raise InvalidInputError(
                f"unknown input {', '.join(map(repr, unknown))}",
                where=self.source,
                expected=", ".join(map(repr, names)) or "no inputs",
                help=did_you_mean(unknown[0], names),
            )
        for value in self.graph.input:
            if value.name in self.values:
                self._check_initializer_type(value)
                continue
            self.values[value.name] = self.inputs.value_of(
                value, self.overrides.get(value.name), given=value.name in self.overrides
            )

    def _check_initializer_type(self, value: ValueInfoProto) -> None:
        actual = tensor_type(self.values[value.name])  # type: ignore[arg-type]
        declared = self._declared_type(value)
        if declared is not None and not _compatible(declared, actual):
            raise InvalidModelError(
                f"initializer {value.name!r} does not match its declaration as a graph input",
                where=self.source,
                expected=str(declared),
                got=str(actual),
            )

    def _declared_type(self, value: ValueInfoProto) -> TensorType | None:
        if not value.type.tensor_type.HasField("shape"):
            return None
        where = Span(self.source, node=value.name)
        dtype = dtype_of(value.type.tensor_type.elem_type, f"graph value {value.name!r}", where)
        return TensorType(self.dimensions.declared(value.name, value.type), dtype)

    def _module(self, results: Sequence[ValueInfoProto]) -> IRModule:
        """Build the module; each tensor of a sequence is a separate output: ``y[0]``, ``y[1]``."""
        outputs = [pair for value in results for pair in self._outputs(value)]
        span = Span(self.source)
        params = dict(self.inputs.params)
        if self.keys.parameter is not None:
            params[self.keys.name] = self.keys.parameter
        parts = tuple(part for _, part in outputs)
        body = parts[0] if len(parts) == 1 else Tuple(parts, span=span)
        main = Function(tuple(params.values()), body, span=span)
        attrs = {
            "input_names": tuple(params),
            "output_names": tuple(name for name, _ in outputs),
        }
        return infer_type(IRModule({"main": main}, attrs=attrs, named=self._named()))

    def _named(self) -> dict[str, Expr]:
        """The tensors of the graph that are not weights."""
        return {name: value for name, value in self.values.items()
                if isinstance(value, Expr) and not isinstance(value, Constant)
                and isinstance(value.checked_type, TensorType)}

    def _outputs(self, value: ValueInfoProto) -> list[tuple[str, Expr]]:
        result = self.values[value.name]
        if isinstance(result, ShapeValue):
            result = size_data(result, Span(self.source, node=value.name))
        if isinstance(result, Absent):
            return []
        if isinstance(result.checked_type, TupleType):
            parts = items_of(result)
            return [(f"{value.name}[{i}]", part) for i, part in enumerate(parts)]
        self._check_output_type(value, result)
        return [(value.name, result)]

    def _check_output_type(self, value: ValueInfoProto, result: Expr) -> None:
        where = Span(self.source, node=value.name)
        declared = value.type.tensor_type.elem_type
        actual = tensor_type(result).dtype
        if declared and dtype_of(declared, f"output {value.name!r}", where) != actual:
            raise InvalidModelError(
                f"output {value.name!r} does not have its declared element type",
                where=where,
                expected=str(dtype_of(declared, f"output {value.name!r}", where)),
                got=str(actual),
            )


def _free_name(name: str, graph: GraphProto) -> str:
    """``name``, with a number if an input of the graph has it."""
    taken = {value.name for value in graph.input}
    numbered = (f"{name}_{i}" for i in itertools.count(1))
    return name if name not in taken else next(n for n in numbered if n not in taken)


def _compatible(declared: TensorType, actual: TensorType) -> bool:
    if declared.dtype != actual.dtype or declared.ndim != actual.ndim:
        return False
    pairs = zip(declared.shape, actual.shape, strict=True)
    return all(not isinstance(d, int) or d == a for d, a in pairs)
