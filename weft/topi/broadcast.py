"""Elementwise functions of several tensors under NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, call, const, div, floordiv, floormod, int_value, select

Elementwise = Callable[..., PrimExpr]


def broadcast_shape(*shapes: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The broadcast shape; raises ``LoweringError`` for fixed sizes that do not broadcast."""
    rank = max(len(s) for s in shapes)
    return tuple(
        _common([s[len(s) - rank + axis] for s in shapes if len(s) - rank + axis >= 0])
        for axis in range(rank)
    )


def _common(sizes: Sequence[PrimExpr]) -> PrimExpr:
    kept = [s for s in sizes if int_value(s) != 1] or list(sizes)
    fixed = [s for s in kept if int_value(s) is not None]
    if any(f is not fixed[0] for f in fixed):
        raise LoweringError("shapes do not broadcast", got=" and ".join(map(str, fixed)))
    return (fixed or kept)[0]


def broadcast_index(x: te.Tensor, index: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The index into ``x`` for an index into the broadcast shape."""
    own = index[len(index) - len(x.shape):]
    return tuple(
        const(0) if int_value(size) == 1 else i for size, i in zip(x.shape, own, strict=True)
    )


def apply(tensors: Sequence[te.Tensor], function: Elementwise, name: str) -> te.Tensor:
    """``function`` applied elementwise to ``tensors`` under NumPy broadcasting."""
    shape = broadcast_shape(*(t.shape for t in tensors))
    return te.compute(
        shape,
        lambda *i: function(*(t[broadcast_index(t, i)] for t in tensors)),
        name=name,
    )


def divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The quotient; integers round towards zero."""
    return div(a, b)


def truncated_divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The quotient rounded towards zero."""
    return call(a.dtype, "trunc", div(a, b)) if a.dtype.is_float else div(a, b)


def floor_divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The floor of the exact quotient, as in NumPy; 0 for integers divided by 0.

    For floats this differs from the floor of the rounded quotient: 1.0 // 0.1 is 9.
    """
    return floordiv(a, b)


def floor_mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The remainder with the sign of the divisor; 0 for integers divided by 0."""
    return floormod(a, b)


def truncated_mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The remainder with the sign of the dividend (C's ``%`` and ``fmod``), exactly.

    A finite number modulo infinity is the number itself; an integer modulo 0 is 0.
    """
    if a.dtype.is_float:
        return te.fmod(a, b)
    zero = const(0, a.dtype)
    return select(b.equal(zero), zero, a - div(a, b) * b)


def where(condition: PrimExpr, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``x`` if ``condition`` is true, else ``y``."""
    return select(condition, x, y)


def broadcast_to(x: te.Tensor, shape: Sequence[PrimExpr | int]) -> te.Tensor:
    """``x`` repeated along its axes of size 1 and new leading axes."""
    return te.compute(shape, lambda *i: x[broadcast_index(x, i)], name="broadcast_to")
