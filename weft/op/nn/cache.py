"""Key and value caches: writes of new rows at positions that are data."""

from __future__ import annotations

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, KnownDim, NoAttrs, TensorType, attr, const, dim_mul, int64
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.traits import OpTraits, linear
from weft.ir.typing.infer import infer_expr
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import (
    attrs_of,
    clamped,
    known_dim,
    known_shape,
    numbered,
    scalar,
    size_value,
    tensor_type,
    typed_zeros,
)
from weft.support.dataclass import dataclass
from weft.topi.nn import cache as topi_cache

_AXES = ("batch", "heads", "positions", "dim")


@dataclass(frozen=True, kw_only=True)
class CacheUpdateAttrs(Attrs):
    ring: bool = attr(False, "position p is stored at p modulo the capacity")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    cache, new, start = types
    ctx.attrs_as(CacheUpdateAttrs)
    expect_new_rows(ctx, cache, new, start)
    ctx.expect_dim(1, 0, new.shape[0], cache.shape[0], "the batches differ",
                   why=" (that of the cache)")
    ctx.output(cache)
    return True


def _paged_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    cache, new, start, table = types
    expect_new_rows(ctx, cache, new, start)
    expect_block_table(ctx, 3, table, new)
    ctx.output(cache)
    return True


def expect_new_rows(
    ctx: RelationContext, cache: TensorType, new: TensorType, start: TensorType
) -> None:
    """Check (batch, heads, n, dim) rows with a position per row of the batch against a cache."""
    for arg, type_ in ((0, cache), (1, new)):
        ctx.expect_float(arg, type_)
        ctx.expect_rank(arg, type_, 4)
    for axis in (1, 3):
        ctx.expect_dim(1, axis, new.shape[axis], cache.shape[axis],
                       f"the new rows do not fit the cache: {_AXES[axis]}",
                       why=" (that of the cache)")
    ctx.expect_int(2, start)
    ctx.expect_rank(2, start, 1)
    ctx.expect_dim(2, 0, start.shape[0], new.shape[0], "the batches differ",
                   why=" (that of the new rows)")


def expect_block_table(
    ctx: RelationContext, arg: int, table: TensorType, rows: TensorType
) -> None:
    """Check (batch, most blocks of a row) integers."""
    ctx.expect_int(arg, table)
    ctx.expect_rank(arg, table, 2)
    ctx.expect_dim(arg, 0, table.shape[0], rows.shape[0], "the batches differ",
                   why=" (one row of the table per row of the batch)")


@define_op("nn.cache_update", attrs=CacheUpdateAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10, traits=linear(OpTraits(updates_first=True)))
def cache_update(cache: te.Tensor, new: te.Tensor, start: te.Tensor,
                 attrs: CacheUpdateAttrs) -> te.Tensor:
    """``cache`` with ``new[b, :, i]`` written at position ``start[b] + i`` of row ``b``.

    ``cache``: (batch, heads, capacity, dim); ``new``: (batch, heads, n, dim), converted to the
    dtype of the cache; ``start``: (batch,) integers. Rows at positions outside the cache are
    dropped; with ``ring``, those at negative positions alone. The kernel writes the new rows
    alone if the result takes the memory of ``cache``.
    """
    return topi_cache.cache_update(cache, new, start, ring=attrs.ring)


@define_op("nn.paged_cache_update", relation=_paged_relation, pattern=OpPattern.OPAQUE,
           level=10, traits=linear(OpTraits(updates_first=True)))
def paged_cache_update(cache: te.Tensor, new: te.Tensor, start: te.Tensor,
                       block_table: te.Tensor, attrs: NoAttrs) -> te.Tensor:
    """``nn.cache_update`` of a cache in blocks, (blocks, heads, block size, dim).

    Position ``p`` of row ``b`` is row ``p mod block size`` of the block
    ``block_table[b, p div block size]``. Positions beyond the table, and blocks that do not exist,
    are dropped. No two rows of the batch may write to one position of a block.
    """
    del attrs
    return topi_cache.paged_cache_update(cache, new, start, block_table)


@cache_update.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The cache has the gradient of the rows that stay, each new row that of its position.

    Of rows that a ring stores at one position, the last counts.
    """
    cache, new, start = call.args
    ring = attrs_of(call, CacheUpdateAttrs).ring
    batch, heads, count, width = known_shape(new, call)
    capacity = known_shape(cache, call)[2]
    kept = cache_update(dy, typed_zeros(new), start, ring=ring)
    if capacity == 0 or count == 0:
        return [kept, typed_zeros(new), typed_zeros(start)]
    positions = _positions(start, count)
    if ring:
        size = size_value(capacity, int64)
        later = op.add(numbered((count,)), size)
        found = op.logical_and(op.greater_equal(positions, const(0, int64)),
                               op.greater_equal(later, size_value(count, int64)))
        positions = op.mod(positions, size)
    else:
        found = _is_inside(positions, capacity)
    rows = op.expand_dims(op.expand_dims(positions, axis=1), axis=3)
    places = op.broadcast_to(rows, shape=(batch, heads, count, width))
    read = op.gather(dy, places, axis=2)
    return [kept, _of_found(read, found, new), typed_zeros(start)]


@paged_cache_update.gradient
def _paged_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """As for ``nn.cache_update``, over the rows of all blocks."""
    cache, new, start, table = call.args
    blocks, heads, size, width = known_shape(cache, call)
    batch, _, count, _ = known_shape(new, call)
    per_row = known_shape(table, call)[1]
    kept = paged_cache_update(dy, typed_zeros(new), start, table)
    if 0 in (blocks, size, count, per_row, batch):
        return [kept, *map(typed_zeros, call.args[1:])]
    positions = _positions(start, count)
    length = size_value(size, int64)
    entries = clamped(op.floor_divide(positions, length), per_row, int64)
    chosen = op.gather(op.cast(table, dtype="int64"), entries, axis=1)
    whole = known_dim(dim_mul(per_row, size), call)
    found = op.logical_and(_is_inside(positions, whole), _is_inside(chosen, blocks))
    rows = op.add(op.multiply(clamped(chosen, blocks, int64), length), op.mod(positions, length))
    flat = op.reshape(op.transpose(dy, axes=(0, 2, 1, 3)), newshape=(blocks * size, heads, width),
                      allowzero=True)
    read = op.transpose(op.take(flat, rows, axis=0), axes=(0, 2, 1, 3))
    return [kept, _of_found(read, found, new), typed_zeros(start), typed_zeros(table)]


def _positions(start: Expr, count: KnownDim) -> Expr:
    """(batch, count) int64 positions of the new rows."""
    first = op.expand_dims(op.cast(start, dtype="int64"), axis=1)
    return op.add(first, numbered((count,)))


def _is_inside(positions: Expr, size: KnownDim) -> Expr:
    return op.logical_and(op.greater_equal(positions, const(0, int64)),
                          op.less(positions, size_value(size, int64)))


def _of_found(read: Expr, found: Expr, new: Expr) -> Expr:
    """``read`` (batch, heads, rows, dim) where ``found`` (batch, rows), in the dtype of ``new``."""
    wide = op.expand_dims(op.expand_dims(found, axis=1), axis=3)
    typed = infer_expr(read, trust=True)
    return op.cast(op.where(wide, typed, scalar(0.0, typed)), dtype=tensor_type(new).dtype)


def _reference(cache: np.ndarray, new: np.ndarray, start: np.ndarray, ring: bool = False
               ) -> np.ndarray:
    result, capacity = np.array(cache), cache.shape[2]
    for batch in range(new.shape[0]):
        for row in range(new.shape[2]):
            position = int(start[batch]) + row
            if position >= 0 and capacity > 0 and (ring or position < capacity):
                result[batch, :, position % capacity] = new[batch, :, row]
    return result


def _paged_reference(cache: np.ndarray, new: np.ndarray, start: np.ndarray,
                     block_table: np.ndarray) -> np.ndarray:
    result, (blocks, _, size, _) = np.array(cache), cache.shape
    for batch in range(new.shape[0]):
        for row in range(new.shape[2]):
            position = int(start[batch]) + row
            if not 0 <= position < block_table.shape[1] * size:
                continue
            block = int(block_table[batch, position // size])
            if 0 <= block < blocks:
                result[block, :, position % size] = new[batch, :, row]
    return result


cache_update.spec(
    _reference,
    op_case((2, 3, 7, 4), (2, 3, 2, 4), np.array([0, 4])),
    op_case((2, 2, 5, 3), (2, 2, 3, 3), np.array([-1, 4])),
    op_case((2, 2, 5, 3), (2, 2, 4, 3), np.array([3, 12], np.int32), ring=True),
    op_case((1, 2, 6, 4), (1, 2, 1, 4), np.array([5]), dtypes=("float16", "float32")),
    op_case((2, 1, 3, 4), (2, 1, 0, 4), np.array([0, 1])),
)
paged_cache_update.spec(
    _paged_reference,
    op_case((5, 2, 4, 3), (2, 2, 3, 3), np.array([2, 5]), np.array([[3, 1], [0, 4]])),
    op_case((3, 1, 2, 4), (2, 1, 3, 4), np.array([1, -1]), np.array([[2, -1], [1, 7]], np.int32)),
)

cache_update.batching(merging(0, 1, 2))
