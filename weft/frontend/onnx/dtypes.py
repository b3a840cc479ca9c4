"""Conversion of ONNX element types to weft dtypes."""

from __future__ import annotations

from onnx import TensorProto

from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError

_NAMES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    TensorProto.FLOAT8E8M0: "float8_e8m0fnu",
    TensorProto.FLOAT4E2M1: "float4_e2m1fn",
    TensorProto.INT4: "int4",
    TensorProto.UINT4: "uint4",
    TensorProto.INT2: "int2",
    TensorProto.UINT2: "uint2",
}


def dtype_name(code: int) -> str:
    """Return the ONNX name of an element type, for example ``FLOAT``."""
    known = {v.number: v.name for v in TensorProto.DataType.DESCRIPTOR.values}
    return known.get(code, f"number {code}")


def dtype_of(code: int, what: str, where: object) -> DType:
    """Return the weft dtype of an ONNX element type; ``what`` names the tensor in the message.

    Raises ``UnsupportedModelError`` for an unsupported type and ``InvalidModelError`` for an
    unknown code.
    """
    name = _NAMES.get(code)
    if name is not None:
        return DType.parse(name)
    known = code in TensorProto.DataType.values() and code != TensorProto.UNDEFINED
    error = UnsupportedModelError if known else InvalidModelError
    raise error(
        f"{what} has element type {dtype_name(code)}",
        where=where,
        expected=f"one of {', '.join(_NAMES.values())}",
        help="convert the tensor to one of these types before exporting" if known else None,
    )


def supported_dtypes() -> tuple[str, ...]:
    """Return the names of the dtypes that an ONNX tensor may have."""
    return tuple(_NAMES.values())
