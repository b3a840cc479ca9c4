"""Quantisation. Arithmetic on quantised values is written by its decomposition."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from weft.export.onnx.call import CallWriter
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir import DType
from weft.ir.dtype import float32, int32

_STORED = ("int4", "uint4", "int8", "uint8", "int16", "uint16")


def _is_zero(c: CallWriter, name: str) -> bool:
    value = c.value(name)
    return value is not None and not value.any()


def _zero_point(c: CallWriter, stored: DType) -> str | None:
    """The zero point as a constant of the stored dtype, if that holds it."""
    value = c.value(c.inputs[2])
    if c.types[2].dtype == stored:
        return c.inputs[2]
    info = np.iinfo(stored.numpy) if stored.bits >= 8 else ml_dtypes.iinfo(stored.numpy)
    if value is None or not ((value >= info.min) & (value <= info.max)).all():
        return None
    return c.const(value, stored)


@writes("qnn.quantize")
def quantize(c: CallWriter) -> Value | None:
    zero = _zero_point(c, c.result.dtype) if c.result.dtype.name in _STORED else None
    if c.attrs.rounding != "even" or zero is None or c.dtype != float32:
        return c.no_form(f"rounding {c.attrs.rounding!r} of {c.dtype} to {c.result.dtype}")
    axis = {"axis": c.attrs.axis % max(c.ndim, 1)} if c.types[1].ndim else {}
    return c.emit("QuantizeLinear", c.inputs[0], c.inputs[1], zero, **axis)


@writes("qnn.dequantize")
def dequantize(c: CallWriter) -> Value | None:
    stored = c.dtype
    axis = {"axis": c.attrs.axis % max(c.ndim, 1)} if c.types[1].ndim else {}
    if stored == int32 and _is_zero(c, c.inputs[2]):
        return c.emit("DequantizeLinear", c.inputs[0], c.inputs[1], **axis)
    zero = _zero_point(c, stored) if stored.name in _STORED else None
    if zero is None:
        return c.no_form(f"stored as {stored}, or a zero point that is not")
    return c.emit("DequantizeLinear", c.inputs[0], c.inputs[1], zero, **axis)
