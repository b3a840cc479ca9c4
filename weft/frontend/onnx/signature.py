"""Declared input and output types of an ONNX model, without converting its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import ValueInfoProto

from weft.frontend.onnx.dimensions import Dimensions
from weft.frontend.onnx.dtypes import dtype_of
from weft.frontend.onnx.loader import load_model
from weft.ir.shape import ANY, Dim, SymDim, as_shape, substitute_dim
from weft.ir.symbol import name_of
from weft.ir.types import TensorType
from weft.support.errors import UnsupportedModelError

Declared = tuple[tuple[str, TensorType], ...]


def declared_signature(
    model: str | os.PathLike[str] | bytes | Any, inputs: Mapping[str, Sequence[object]]
) -> tuple[Declared, Declared]:
    """Return the name and type of every input and output; ``inputs`` overrides shapes.

    Sizes that are neither integers nor names become ``ANY``, and bounds are left out. Raises
    ``InvalidModelError`` for a model that cannot be read, ``UnsupportedModelError`` for unsupported
    element types and for values that are not tensors.
    """
    graph = load_model(model).proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in constants]
    types = tuple(_type_of(v, inputs.get(v.name)) for v in given)
    sizes = Dimensions.of("the model", given, inputs, {}).given
    return (tuple((v.name, _with_sizes(t, sizes)) for v, t in zip(given, types, strict=True)),
            tuple((v.name, _type_of(v, None)) for v in graph.output))


def _type_of(value: ValueInfoProto, shape: Sequence[object] | None) -> TensorType:
    if value.type.WhichOneof("value") != "tensor_type":
        raise UnsupportedModelError(f"graph value {value.name!r} is not a tensor", where=value.name)
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, f"graph value {value.name!r}", value.name)
    dims = as_shape(shape) if shape is not None else tuple(map(_dim_of, tensor.shape.dim))
    return TensorType(dims, dtype)


def _dim_of(dim: Any) -> Dim:
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value)
    return as_shape((dim.dim_param,))[0] if dim.dim_param.isidentifier() else ANY


def _with_sizes(type_: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    """``type_`` with the sizes that the user gives for names, and symbols without their ranges."""
    dims = [substitute_dim(dim, sizes) for dim in type_.shape]
    texts = {t for d in dims if isinstance(d, SymDim) for t in d.symbols()}
    names: dict[str, Dim] = {t: SymDim.symbol(name_of(t)) for t in texts}
    return TensorType(tuple(substitute_dim(dim, names) for dim in dims), type_.dtype)
