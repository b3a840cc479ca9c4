"""Key and value caches of attention: the addresses of their positions, and writes to them.

A contiguous cache is (batch, heads, capacity, dim); a ring cache has the same shape and stores
position ``p`` at ``p mod capacity``. A paged cache is (blocks, heads, block size, dim), shared by
all rows of the batch: ``block_table[b, p // block size]`` is the block of position ``p`` of row
``b`` (Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", 2023).
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var, all_of, const, maximum, minimum
from weft.tir.stmt import BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.topi.loop_nest import Body


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

        def write(index: tuple[PrimExpr, ...]) -> Stmt:
            batch, head, row, element = index
            position = starts.load(batch).astype(int64) + row
            slot = _slot(position, capacity) if ring else position
            inside = all_of(position >= 0, capacity > 0 if ring else position < capacity)
            value = rows.load(*index).astype(source.dtype)
            return IfThenElse(inside, BufferStore(outputs[0], value,
                                                  (batch, head, slot, element)))

        return seq([_copy(source, outputs[0]), _nest(rows.shape, write)])

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

        def write(index: tuple[PrimExpr, ...]) -> Stmt:
            batch, head, row, element = index
            position = starts.load(batch).astype(int64) + row
            entry = minimum(position // size, table.shape[1] - 1)
            block = Var("block", int64)
            inside = all_of(block >= 0, block < blocks)
            store = BufferStore(outputs[0], rows.load(*index).astype(source.dtype),
                                (block, head, position % size, element))
            listed = all_of(position >= 0, position < table.shape[1] * size)
            return IfThenElse(listed, LetStmt(block, table.load(batch, entry).astype(int64),
                                              IfThenElse(inside, store)))

        return seq([_copy(source, outputs[0]), _nest(rows.shape, write)])

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


def _copy(source: Buffer, target: Buffer) -> Stmt:
    return _nest(source.shape, lambda i: BufferStore(target, source.load(*i), i))


def _nest(shape: tuple[PrimExpr, ...], body: Body) -> Stmt:
    """``body(index)`` for every index; heads of all rows of the batch run in parallel."""
    task, row, element = (Var(name, int64) for name in ("task", "row", "element"))
    batch, heads, count, width = shape
    stmt = body((task // heads, task % heads, row, element))
    for var, extent, kind in ((element, width, ForKind.SERIAL), (row, count, ForKind.SERIAL),
                              (task, batch * heads, ForKind.PARALLEL)):
        stmt = For(var, const(0), extent, kind, stmt)
    return stmt
