"""Arithmetic of integers: the greatest common divisor, and products in fixed point."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir import DType, int32, int64
from weft.tir import (
    Allocate,
    Buffer,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    PrimExpr,
    Stmt,
    Var,
    const,
    select,
    seq,
)
from weft.topi.broadcast import broadcast_index, broadcast_shape
from weft.topi.loop_nest import nest

_ONLY = (const(0),)


def gcd(lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
    """Elementwise greatest common divisors under broadcasting; that of two zeros is 0."""
    dtype = lhs.dtype

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        def divide(i: tuple[PrimExpr, ...]) -> Stmt:
            a, b = (b.load(*broadcast_index(t, i))
                    for b, t in zip(inputs, (lhs, rhs), strict=True))
            return _euclid(a, b, outputs[0], i)

        return nest(outputs[0].shape, divide, independent=True, work=dtype.bits)

    shape = broadcast_shape(lhs.shape, rhs.shape)
    return te.extern([shape], [lhs, rhs], build, [dtype], "gcd")[0]


def _euclid(a: PrimExpr, b: PrimExpr, target: Buffer, position: tuple[PrimExpr, ...]) -> Stmt:
    dtype = target.dtype
    larger, smaller = (Buffer(name, (const(1),), dtype, "local") for name in ("a", "b"))
    rest = Buffer("rest", (const(1),), dtype, "local")
    step = seq([
        BufferStore(rest, larger.load(*_ONLY) % smaller.load(*_ONLY), _ONLY),
        BufferStore(larger, smaller.load(*_ONLY), _ONLY),
        BufferStore(smaller, rest.load(*_ONLY), _ONLY),
    ])
    more = IfThenElse(smaller.load(*_ONLY).not_equal(const(0, dtype)), step)
    # The worst case is consecutive Fibonacci numbers: 1.44 steps per bit (Lame).
    steps = dtype.bits * 3 // 2
    loop = For(Var("step", int64), const(0), const(steps), ForKind.SERIAL, more)
    body = seq([BufferStore(larger, _magnitude(a), _ONLY),
                BufferStore(smaller, _magnitude(b), _ONLY), loop,
                BufferStore(target, _magnitude(larger.load(*_ONLY)), position)])
    for buffer in (larger, smaller, rest):
        body = Allocate(buffer, body)
    return body


def _magnitude(x: PrimExpr) -> PrimExpr:
    zero = const(0, x.dtype)
    return select(x < zero, zero - x, x) if x.dtype.code == "int" else x


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
