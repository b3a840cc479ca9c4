"""Key and value caches of attention: the addresses of their positions, and writes to them.

A contiguous cache is (batch, heads, capacity, dim); a ring cache has the same shape and stores
position ``p`` at ``p mod capacity``. A paged cache is (blocks, heads, block size, dim), shared by
all rows of the batch: ``block_table[b, p // block size]`` is the block of position ``p`` of row
``b`` (Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", 2023).
"""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.ir.dtype import int64
from weft.tir import Buffer, PrimExpr, Var, all_of, const, maximum
from weft.tir.stmt import BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq


def cache_update(
    cache: te.Tensor, new: te.Tensor, start: te.Tensor, *, ring: bool = False
) -> te.Tensor:
    """``cache`` with ``new[b, :, i]`` at position ``start[b] + i``; positions outside are dropped.

    ``new``: (batch, heads, n, dim), converted to the dtype of the cache; ``start``: (batch,). The
    copy of the cache is a loop nest of its own, which a kernel that runs in place omits.
    """

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, rows, starts = inputs
        capacity = source.shape[2]

        def row(batch: PrimExpr, head: PrimExpr, number: PrimExpr) -> Stmt:
            position = starts.load(batch).astype(int64) + number
            slot = _slot(position, capacity) if ring else position
            inside = all_of(position >= 0, capacity > 0 if ring else position < capacity)
            return IfThenElse(inside, _write(rows, outputs[0], (batch, head, number),
                                             (batch, head, slot)))

        return seq([_copy(source, outputs[0]), _per_row(rows, row)])

    return te.extern([cache.shape], [cache, new, start], build, [cache.dtype], "cache_update")[0]


def paged_cache_update(
    cache: te.Tensor, new: te.Tensor, start: te.Tensor, block_table: te.Tensor
) -> te.Tensor:
    """``cache_update`` of a paged cache; rows whose block does not exist are dropped.

    ``block_table``: (batch, most blocks of a row).
    """

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, rows, starts, table = inputs
        blocks, _, size, _ = source.shape

        def row(batch: PrimExpr, head: PrimExpr, number: PrimExpr) -> Stmt:
            position = starts.load(batch).astype(int64) + number
            listed = all_of(position >= 0, position < table.shape[1] * size)
            block = Var("block", int64)
            exists = all_of(block >= 0, block < blocks)
            write = _write(rows, outputs[0], (batch, head, number),
                           (block, head, position % size))
            return IfThenElse(listed, LetStmt(
                block, table.load(batch, position // size).astype(int64),
                IfThenElse(exists, write)))

        return seq([_copy(source, outputs[0]), _per_row(rows, row)])

    return te.extern([cache.shape], [cache, new, start, block_table], build, [cache.dtype],
                     "paged_cache_update")[0]


def position_of_slot(slot: PrimExpr, length: PrimExpr, capacity: PrimExpr, *, ring: bool
                     ) -> PrimExpr:
    """The position that a slot holds after ``length`` positions were written.

    It is negative, or not below ``length``, for a slot that was never written.
    """
    if not ring:
        return slot
    last = length - 1
    # The distance back from the newest position, along the ring.
    return last - _slot(last - slot, capacity)


def _slot(position: PrimExpr, capacity: PrimExpr) -> PrimExpr:
    # The divisor is positive where the expression is evaluated: loops over an empty ring are empty.
    return position % maximum(capacity, const(1, int64))


def _write(
    rows: Buffer, cache: Buffer, row: tuple[PrimExpr, ...], slot: tuple[PrimExpr, ...]
) -> Stmt:
    return _loop("element", rows.shape[3], lambda e: BufferStore(
        cache, rows.load(*row, e).astype(cache.dtype), (*slot, e)))


def _copy(source: Buffer, target: Buffer) -> Stmt:
    return _per_row(source, lambda *row: _loop("element", source.shape[3], lambda e: BufferStore(
        target, source.load(*row, e), (*row, e))))


def _per_row(x: Buffer, body: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]) -> Stmt:
    """``body(batch or block, head, row)``; the heads of all of them run in parallel."""
    outer, heads, count, _ = x.shape
    return _loop("task", outer * heads, lambda task: _loop(
        "row", count, lambda row: body(task // heads, task % heads, row)), ForKind.PARALLEL)


def _loop(
    name: str, extent: PrimExpr, body: Callable[[Var], Stmt], kind: ForKind = ForKind.SERIAL
) -> Stmt:
    var = Var(name, int64)
    return For(var, const(0), extent, kind, body(var))
