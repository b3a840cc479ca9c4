"""Loops for computations whose steps depend on each other, written out as statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.dtype import int64
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.stmt import BufferStore, For, ForKind, Stmt

Body = Callable[[tuple[PrimExpr, ...]], Stmt]


def nest(shape: Sequence[PrimExpr], body: Body) -> Stmt:
    """``body(index)`` for every index of ``shape``, in row-major order."""
    index = tuple(Var(f"i{axis}", int64) for axis in range(len(shape)))
    stmt = body(index)
    for variable, extent in zip(reversed(index), reversed(tuple(shape)), strict=True):
        stmt = For(variable, const(0), extent, ForKind.SERIAL, stmt)
    return stmt


def copy(source: Buffer, target: Buffer) -> Stmt:
    """Every element of ``source`` into ``target``, which has the same shape."""
    return nest(source.shape, lambda i: BufferStore(target, source.load(*i), i))
