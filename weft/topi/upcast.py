"""Conversion of 16-bit floats for Python bodies, which support only float32 and float64."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import DType, float32, float64


def upcast(x: te.Tensor) -> te.Tensor:
    """``x`` converted to float32 if it is a narrower float, else ``x`` itself."""
    if not x.dtype.is_float or x.dtype in (float32, float64):
        return x
    return converted(x, float32)


def converted(x: te.Tensor, dtype: DType) -> te.Tensor:
    """``x`` converted to ``dtype``; ``x`` itself if it has that dtype."""
    if x.dtype == dtype:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(dtype), name="converted")
