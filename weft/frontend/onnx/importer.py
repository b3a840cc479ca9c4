"""From an ONNX graph to a typed module: one pass over the nodes in topological order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import GraphProto, ValueInfoProto

from weft.frontend.onnx import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.onnx.checks import check_features, check_versions, node_checker
from weft.frontend.onnx.coverage import check_coverage
from weft.frontend.onnx.dtypes import dtype_of
from weft.frontend.onnx.function_bodies import expand_function_bodies
from weft.frontend.onnx.functions import inline_functions
from weft.frontend.onnx.graph_order import GraphOrder, check_graph
from weft.frontend.onnx.loader import LoadedModel, load_model
from weft.frontend.onnx.node import tensor_type
from weft.frontend.onnx.scope import Scope, Surroundings
from weft.frontend.onnx.shape_value import ShapeValue
from weft.frontend.onnx.upgrade import upgrade_opset
from weft.ir.expr import Expr, Function, Tuple, Var
from weft.ir.module import IRModule
from weft.ir.shape import ANY, Dim, Shape, SymDim, as_shape
from weft.ir.span import Span
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_type
from weft.support.errors import InvalidInputError, InvalidModelError

ShapeOverrides = Mapping[str, Sequence[object]]


def import_model(model: str | os.PathLike[str] | bytes | Any, inputs: ShapeOverrides) -> IRModule:
    """See ``weft.frontend.onnx.from_onnx``."""
    loaded = upgrade_opset(load_model(model))
    opsets = check_versions(loaded)
    loaded = expand_function_bodies(inline_functions(loaded), opsets)
    graph = loaded.proto.graph
    check_features(loaded.proto, loaded.source)
    order = check_graph(graph, loaded.source)
    check_coverage(order, opsets, loaded.source)
    return GraphImporter(loaded, opsets, inputs).run(order)


class GraphImporter:
    """Holds the value of every name while the nodes are converted."""

    def __init__(
        self, loaded: LoadedModel, opsets: Mapping[str, int], inputs: ShapeOverrides
    ) -> None:
        self.source = loaded.source
        self.folder: Path | None = loaded.folder
        self.graph: GraphProto = loaded.proto.graph
        check = node_checker(loaded.proto, opsets)
        self.scope = Scope(Surroundings(self.source, self.folder, opsets, check), {})
        self.values = self.scope.values
        self.params: dict[str, Var] = {}
        self.overrides = dict(inputs)

    def run(self, order: GraphOrder) -> IRModule:
        self.scope.read_initializers(self.graph)
        self._import_inputs()
        self.scope.convert_nodes(order)
        return self._module()

    def _import_inputs(self) -> None:
        """Models of IR version 3 list the initializers among the inputs; those stay constants."""
        names = [i.name for i in self.graph.input if i.name not in self.values]
        unknown = [n for n in self.overrides if n not in names]
        if unknown:
            raise InvalidInputError(
                f"the model has no input {', '.join(map(repr, unknown))}",
                where=self.source,
                expected=", ".join(map(repr, names)) or "no inputs",
            )
        taken: set[str] = set()
        for value in self.graph.input:
            if value.name in self.values:
                self._check_initializer_type(value)
                continue
            name = _identifier(value.name, taken)
            span = Span(self.source, node=value.name)
            var = Var(name, self._input_type(value), span=span)
            self.params[value.name] = var.with_type(var.annotation)  # type: ignore[arg-type]
            self.values[value.name] = self.params[value.name]

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

    def _input_type(self, value: ValueInfoProto) -> TensorType:
        override = self.overrides.get(value.name)
        where = Span(self.source, node=value.name)
        dtype = dtype_of(value.type.tensor_type.elem_type, f"graph input {value.name!r}", where)
        has_shape = value.type.tensor_type.HasField("shape")
        if override is None:
            if not has_shape:
                raise InvalidModelError(
                    f"graph input {value.name!r} has no shape",
                    where=where,
                    help=f'give it one: inputs={{"{value.name}": (1, 3, 224, 224)}}',
                )
            return TensorType(_declared_shape(value, where), dtype)
        shape = as_shape(override)
        if has_shape and len(value.type.tensor_type.shape.dim) != len(shape):
            raise InvalidInputError(
                f"the shape given for input {value.name!r} has the wrong rank",
                where=where,
                expected=f"{len(value.type.tensor_type.shape.dim)} dimensions",
                got=str(tuple(override)),
            )
        return TensorType(shape, dtype)

    def _declared_type(self, value: ValueInfoProto) -> TensorType | None:
        if not value.type.tensor_type.HasField("shape"):
            return None
        where = Span(self.source, node=value.name)
        dtype = dtype_of(value.type.tensor_type.elem_type, f"graph value {value.name!r}", where)
        return TensorType(_declared_shape(value, where), dtype)

    def _module(self) -> IRModule:
        outputs = [self._output(o) for o in self.graph.output]
        span = Span(self.source)
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs), span=span)
        main = Function(tuple(self.params.values()), body, span=span)
        attrs = {
            "input_names": tuple(self.params),
            "output_names": tuple(o.name for o in self.graph.output),
        }
        return infer_type(IRModule({"main": main}, attrs=attrs))

    def _output(self, value: ValueInfoProto) -> Expr:
        result = self.values[value.name]
        if isinstance(result, ShapeValue):
            raise InvalidModelError(
                f"output {value.name!r} is a shape that is only known at run time",
                where=self.source,
                help="fix the sizes of the inputs with inputs=",
            )
        where = Span(self.source, node=value.name)
        declared = value.type.tensor_type.elem_type
        actual = tensor_type(result).dtype
        if declared and dtype_of(declared, f"output {value.name!r}", where) != actual:
            raise InvalidModelError(
                f"output {value.name!r} is declared with another element type than it has",
                where=where,
                expected=str(dtype_of(declared, f"output {value.name!r}", where)),
                got=str(actual),
            )
        return result


def _declared_shape(value: ValueInfoProto, where: Span) -> Shape:
    dims: list[Dim] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        kind = dim.WhichOneof("value")
        if kind == "dim_param" and dim.dim_param:
            dims.append(SymDim.symbol(_identifier(dim.dim_param, set())))
        elif kind == "dim_value":
            if dim.dim_value < 0:
                raise InvalidModelError(
                    f"dimension {axis} of graph input {value.name!r} is negative",
                    where=where,
                    got=str(dim.dim_value),
                    help=f'give the shape: inputs={{"{value.name}": (1, 3, 224, 224)}}',
                )
            dims.append(int(dim.dim_value))
        else:
            dims.append(ANY)
    return tuple(dims)


def _compatible(declared: TensorType, actual: TensorType) -> bool:
    if declared.dtype != actual.dtype or declared.ndim != actual.ndim:
        return False
    pairs = zip(declared.shape, actual.shape, strict=True)
    return all(not isinstance(d, int) or d == a for d, a in pairs)


def _identifier(name: str, taken: set[str]) -> str:
    """``name`` as the text form can write it (``gpu_0/data_0`` -> ``gpu_0_data_0``), and unique."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII)
    base = base if re.match(r"[A-Za-z_]", base) else f"x_{base}"
    result, count = base, 1
    while result in taken:
        result, count = f"{base}_{count}", count + 1
    taken.add(result)
    return result
