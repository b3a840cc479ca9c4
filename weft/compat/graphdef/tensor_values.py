"""Element types, shapes and tensors: between protobuf messages and Python values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.compat.graphdef.definitions import ForeignType, ShapeAttr, TypeAttr
from weft.compat.graphdef.messages import DATA_TYPES, REFERENCE
from weft.frontend.common import arrays
from weft.ir import Dim, DType
from weft.support.errors import InvalidModelError, UnsupportedModelError

_DTYPES = {
    "DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_INT32": "int32", "DT_UINT8": "uint8",
    "DT_INT16": "int16", "DT_INT8": "int8", "DT_INT64": "int64", "DT_BOOL": "bool",
    "DT_BFLOAT16": "bfloat16", "DT_UINT16": "uint16", "DT_HALF": "float16",
    "DT_UINT32": "uint32", "DT_UINT64": "uint64", "DT_FLOAT8_E5M2": "float8_e5m2",
    "DT_FLOAT8_E4M3FN": "float8_e4m3fn", "DT_INT4": "int4", "DT_UINT4": "uint4",
}
_BY_NUMBER = {number: name for name, number in DATA_TYPES.items()}
_BY_DTYPE = {dtype: DATA_TYPES[name] for name, dtype in _DTYPES.items()}
# The field that holds the elements of a tensor of each type, unless they are packed.
_FIELDS = {
    "float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val",
    "uint32": "uint32_val", "uint64": "uint64_val", "float16": "half_val", "bfloat16": "half_val",
    "float8_e5m2": "float8_val", "float8_e4m3fn": "float8_val",
}
_MAX_ELEMENTS = 2**32


def type_of(number: int) -> TypeAttr:
    """The element type of a ``DataType``; a reference to a type counts as the type."""
    base = number - REFERENCE if number > REFERENCE else number
    name = _BY_NUMBER.get(base, f"DataType {number}")
    return DType.of(_DTYPES[name]) if name in _DTYPES else ForeignType(name)


def type_number(type_: TypeAttr) -> int:
    """The ``DataType`` of an element type; ``UnsupportedModelError`` if TensorFlow has none."""
    if isinstance(type_, ForeignType):
        return DATA_TYPES.get(type_.name, 0)
    number = _BY_DTYPE.get(type_.name)
    if number is None:
        raise UnsupportedModelError(f"TensorFlow has no element type {type_}")
    return number


def shape_of(message: Any) -> ShapeAttr:
    """The sizes of a ``TensorShapeProto``."""
    if message.unknown_rank:
        return ShapeAttr(None)
    return ShapeAttr(tuple(None if dim.size < 0 else int(dim.size) for dim in message.dim))


def write_shape(message: Any, shape: ShapeAttr) -> None:
    """Fill a ``TensorShapeProto``; a symbolic size is unknown."""
    if shape.dims is None:
        message.unknown_rank = True
        return
    message.SetInParent()
    dims: tuple[Dim | None, ...] = shape.dims
    for size in dims:
        message.dim.add().size = size if isinstance(size, int) else -1


def tensor_of(message: Any, where: object) -> np.ndarray:
    """The elements of a ``TensorProto``; a shorter list of elements repeats its last one.

    Raises ``InvalidModelError`` for elements that do not fit the shape, and
    ``UnsupportedModelError`` for an element type that weft lacks.
    """
    dtype = type_of(message.dtype)
    shape = shape_of(message.tensor_shape).dims
    if isinstance(dtype, ForeignType):
        raise UnsupportedModelError(f"weft has no tensors of {dtype}", where=where)
    if shape is None or None in shape:
        raise InvalidModelError("a constant has an unknown shape", where=where)
    sizes = tuple(size for size in shape if size is not None)
    count = math.prod(sizes)
    if count > _MAX_ELEMENTS:
        raise InvalidModelError("a constant is larger than any memory", where=where,
                                got=f"shape {sizes}")
    if message.tensor_content:
        return _packed(message.tensor_content, dtype, sizes, where)
    name = dtype.name
    values = _elements(getattr(message, _FIELDS.get(name, "int_val")), dtype)
    if len(values) > count:
        raise InvalidModelError("a constant has more elements than its shape", where=where,
                                expected=str(count), got=str(len(values)))
    if len(values) < count:
        last = values[-1:] if len(values) else np.zeros(1, values.dtype)
        values = np.concatenate([values, arrays.repeat(last, count - len(values))])
    return values.reshape(sizes)


def _packed(data: bytes, dtype: DType, shape: tuple[int, ...], where: object) -> np.ndarray:
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise InvalidModelError("the content of a constant does not fit its shape", where=where,
                                expected=f"{expected} bytes", got=f"{len(data)} bytes")
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def _elements(values: Any, dtype: DType) -> np.ndarray:
    if isinstance(values, bytes):
        return np.frombuffer(values, dtype.numpy)
    if dtype.name in ("float16", "bfloat16"):  # bits of 16-bit floats in 32-bit integers
        return np.array(values, np.uint16).view(dtype.numpy)
    # Values outside the range wrap, as the C++ code's casts do.
    return np.array(values, np.float64 if dtype.is_float else object).astype(dtype.numpy) \
        if dtype.name != "float32" else np.array(values, np.float32)


def write_tensor(message: Any, value: np.ndarray) -> None:
    """Fill a ``TensorProto``: scalars in their field, other tensors packed."""
    dtype = DType.of(value.dtype)
    message.dtype = type_number(dtype)
    write_shape(message.tensor_shape, ShapeAttr(tuple(value.shape)))
    if value.size != 1:
        message.tensor_content = np.ascontiguousarray(value).tobytes()
        return
    field = _FIELDS.get(dtype.name, "int_val")
    item: Any = value.reshape(-1)
    if field == "float8_val":
        message.float8_val = item.tobytes()
        return
    if field == "half_val":
        item = item.view(np.uint16)
    getattr(message, field).append(item[0].item() if dtype.is_float or field != "int_val"
                                   else int(item[0]))
