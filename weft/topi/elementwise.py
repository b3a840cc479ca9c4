"""Elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.ir.dtype import DType, float32, float64
from weft.tir.expr import (
    PrimExpr,
    call,
    const,
    maximum,
    minimum,
    not_,
    select,
)
from weft.tir.expr import (
    cast as prim_cast,
)


def apply(
    x: te.Tensor, function: Callable[[PrimExpr], PrimExpr], name: str = "elementwise"
) -> te.Tensor:
    """``function`` applied to every element."""
    return te.compute(x.shape, lambda *i: function(x[i]), name=name)


def intrinsic(x: te.Tensor, name: str) -> te.Tensor:
    """The intrinsic ``name`` of ``weft.tir.intrinsics`` applied to every element."""
    return apply(x, lambda v: call(v.dtype, name, v), name)


def logarithm(x: te.Tensor, log_of_base: float) -> te.Tensor:
    """The logarithm to a base, computed in the next wider dtype so that exact powers are exact."""
    wide = float32 if x.dtype.bits < 32 else float64
    scale = const(1.0 / log_of_base, wide)
    return apply(x, lambda v: (te.log(v.astype(wide)) * scale).astype(x.dtype), "log")


def identity(x: te.Tensor) -> te.Tensor:
    """A copy of ``x``."""
    return apply(x, lambda v: v, "copy")


def negative(x: te.Tensor) -> te.Tensor:
    """``-x``; a multiplication for floats, so that the sign of zero changes too."""
    if x.dtype.is_float:
        return apply(x, lambda v: v * const(-1, v.dtype), "negative")
    return apply(x, lambda v: const(0, v.dtype) - v, "negative")


def absolute(x: te.Tensor) -> te.Tensor:
    """``|x|``; unsigned integers are unchanged."""
    if x.dtype.is_float:
        return intrinsic(x, "abs")
    if x.dtype.code == "uint":
        return apply(x, lambda v: v, "abs")
    return apply(x, lambda v: maximum(v, const(0, v.dtype) - v), "abs")


def sign(x: te.Tensor) -> te.Tensor:
    """The sign: -1, 0 or 1; NaN for NaN."""

    def of(v: PrimExpr) -> PrimExpr:
        zero = const(0, v.dtype)
        # Zeros and NaN pass through both selections unchanged.
        positive = select(v > zero, const(1, v.dtype), v)
        if v.dtype.code == "uint":
            return positive
        return select(v < zero, const(-1, v.dtype), positive)

    return apply(x, of, "sign")


def rounding(x: te.Tensor, name: str) -> te.Tensor:
    """``floor``, ``ceil``, ``round`` (half to even); integers are unchanged."""
    return intrinsic(x, name) if x.dtype.is_float else apply(x, lambda v: v, name)


def cast(x: te.Tensor, dtype: DType) -> te.Tensor:
    """``x`` converted to ``dtype``; bool means not equal to zero."""

    def of(v: PrimExpr) -> PrimExpr:
        if dtype.is_bool and not v.dtype.is_bool:
            return v.not_equal(const(0, v.dtype))
        if v.dtype.is_bool and not dtype.is_bool:
            return select(v, const(1, dtype), const(0, dtype))
        return prim_cast(v, dtype)

    return apply(x, of, "cast")


def clip(x: te.Tensor, low: float, high: float) -> te.Tensor:
    """``min(max(x, low), high)``; NaN for NaN."""

    def of(v: PrimExpr) -> PrimExpr:
        return minimum(maximum(v, _bound(low, v.dtype)), _bound(high, v.dtype))

    return apply(x, of, "clip")


def _bound(value: float, dtype: DType) -> PrimExpr:
    """``value`` as a constant of ``dtype``, saturated to the range of integer dtypes."""
    if dtype.is_float:
        return const(value, dtype)
    low = 0 if dtype.code == "uint" else -(1 << (dtype.bits - 1))
    high = (1 << (dtype.bits - (dtype.code != "uint"))) - 1
    return const(int(min(max(value, low), high)), dtype)


def logical_not(x: te.Tensor) -> te.Tensor:
    """Whether each element is false (zero)."""
    return apply(x, not_, "logical_not")


def relu(x: te.Tensor) -> te.Tensor:
    """``max(x, 0)``."""
    return apply(x, lambda v: maximum(v, const(0, v.dtype)), "relu")


def leaky_relu(x: te.Tensor, alpha: float) -> te.Tensor:
    """``x`` if positive, else ``alpha * x``."""
    return apply(
        x,
        lambda v: select(v > const(0, v.dtype), v, v * const(alpha, v.dtype)),
        "leaky_relu",
    )
