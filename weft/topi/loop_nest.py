"""Loops for computations whose steps depend on each other, written out as statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.dtype import int64
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.stmt import BufferStore, For, ForKind, Stmt

Body = Callable[[tuple[PrimExpr, ...]], Stmt]


def nest(shape: Sequence[PrimExpr], body: Body, outermost: ForKind = ForKind.SERIAL) -> Stmt:
    """``body(index)`` for every index of ``shape``, in row-major order.

    With ``outermost`` parallel, what different indices of the first axis do must commute.
    """
    index = tuple(Var(f"i{axis}", int64) for axis in range(len(shape)))
    stmt = body(index)
    for axis in reversed(range(len(index))):
        kind = ForKind.SERIAL if axis else outermost
        stmt = For(index[axis], const(0), shape[axis], kind, stmt)
    return stmt


def copy(source: Buffer, target: Buffer) -> Stmt:
    """Every element of ``source`` into ``target``, which has the same shape."""
    return nest(source.shape, lambda i: BufferStore(target, source.load(*i), i))
