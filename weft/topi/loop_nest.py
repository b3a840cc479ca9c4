"""Hand-written loop nests for computations with dependent steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.ir.dtype import DType, int64
from weft.tir import Buffer, PrimExpr, Ramp, Var, const, int_value
from weft.tir.stmt import BufferStore, For, ForKind, Stmt, seq

# Below this many operations threads cost more than they save.
_PARALLEL_ELEMENTS = 20_000
Body = Callable[[tuple[PrimExpr, ...]], Stmt]


def nest(shape: Sequence[PrimExpr], body: Body, *, independent: bool = False,
         work: int = 1) -> Stmt:
    """``body(index)`` for every index of ``shape``, in row-major order.

    If the indices of the first axis are ``independent`` of each other, they run in parallel when
    there is enough work, at ``work`` operations per body.
    """
    outermost = ForKind.PARALLEL if independent and is_large(shape, work) else ForKind.SERIAL
    index = tuple(Var(f"i{axis}", int64) for axis in range(len(shape)))
    stmt = body(index)
    for axis in reversed(range(len(index))):
        kind = ForKind.SERIAL if axis else outermost
        stmt = For(index[axis], const(0), shape[axis], kind, stmt)
    return stmt


def vector_nest(shape: Sequence[PrimExpr], dtype: DType, body: Body, *,
                independent: bool = False, work: int = 1) -> Stmt:
    """As ``nest``, for bodies that take a vector of indices along the last axis as well.

    ``dtype`` is that of the elements. Vectors have 64 bytes; the rest of each row, and elements
    that are not machine words, are single.
    """
    if not shape or dtype.itemsize not in (4, 8):
        return nest(shape, body, independent=independent, work=work)
    lanes = 64 // dtype.itemsize
    full = shape[-1] // lanes
    is_parallel = independent and len(shape) == 1 and is_large(shape, work)
    kind = ForKind.PARALLEL if is_parallel else ForKind.SERIAL

    def row(i: tuple[PrimExpr, ...]) -> Stmt:
        at, rest = Var("v", int64), Var("e", int64)
        return seq([
            For(at, const(0), full, kind, body((*i, Ramp(at * lanes, const(1), lanes)))),
            For(rest, const(0), shape[-1] - full * lanes, ForKind.SERIAL,
                body((*i, full * lanes + rest))),
        ])

    return nest(shape[:-1], row, independent=independent, work=work * (int_value(shape[-1]) or 1))


def is_large(shape: Sequence[PrimExpr], work: int = 1) -> bool:
    """Whether ``shape`` has enough work for threads, at ``work`` operations per element."""
    sizes = [int_value(size) for size in shape]
    return len(sizes) > 0 and None not in sizes and (
        work * math.prod(s for s in sizes if s is not None) >= _PARALLEL_ELEMENTS)


def copy(source: Buffer, target: Buffer) -> Stmt:
    """Copy every element of ``source`` to ``target``, which has the same shape."""
    return nest(source.shape, lambda i: BufferStore(target, source.load(*i), i))
