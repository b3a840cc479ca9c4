"""Greatest common divisors by Euclid's algorithm."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.tir import Buffer, PrimExpr, Var, const, select
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, Stmt, seq
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
