"""Floats of 16 bits on the way to bodies in plain Python, which have float32 and float64 alone."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import DType, float32, float64


def widened(x: te.Tensor) -> te.Tensor:
    """``x`` as float32 if it is a narrower float, else itself."""
    if not x.dtype.is_float or x.dtype in (float32, float64):
        return x
    return converted(x, float32)


def converted(x: te.Tensor, dtype: DType) -> te.Tensor:
    """``x`` in another dtype; ``x`` itself where it has it."""
    if x.dtype == dtype:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(dtype), name="converted")
