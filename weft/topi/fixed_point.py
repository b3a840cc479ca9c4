"""Fixed-point multiplication: integer products whose low bits are rounded off."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir.dtype import DType, int32, int64
from weft.tir.expr import PrimExpr, const


def reinterpret(x: te.Tensor, dtype: DType) -> te.Tensor:
    """The bits of each element reinterpreted as ``dtype``."""
    return te.compute(x.shape, lambda *i: te.reinterpret(dtype, x[i]), name="reinterpret")


def _scaled(x: PrimExpr, factor: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """``(x << left) * factor / 2**(31 + right)``, rounded, halves upwards."""
    product = te.shift_left(x.astype(int64), left) * factor.astype(int64)
    total = right + 31
    # Half of the divisor: the arithmetic shift rounds down, so this rounds halves upwards.
    half = te.shift_left(const(1, int64), total - 1)
    return te.shift_right(product + half, total).astype(int32)


def fixed_point_multiply(x: te.Tensor, multiplier: int, shift: int) -> te.Tensor:
    """``x * multiplier * 2**(shift - 31)``."""
    factor, left, right = (const(v, int64) for v in (multiplier, max(shift, 0), max(-shift, 0)))
    return te.compute(x.shape, lambda *i: _scaled(x[i], factor, left, right),
                      name="fixed_point_multiply")


def fixed_point_multiply_per_axis(
    x: te.Tensor, multiplier: te.Tensor, left: te.Tensor | None, right: te.Tensor | None,
    axes: Sequence[int],
) -> te.Tensor:
    """As above, with multiplier and shifts (0 if absent) that vary along ``axes``."""

    def element(*i: PrimExpr) -> PrimExpr:
        at = tuple(i[a] for a in axes)
        shifts = [const(0, int64) if s is None else s[at].astype(int64) for s in (left, right)]
        return _scaled(x[i], multiplier[at], *shifts)

    return te.compute(x.shape, element, name="fixed_point_multiply")
