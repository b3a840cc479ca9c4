"""Key and value caches: writes of new rows at positions that are data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft import te
from weft.ir.attrs import Attrs, NoAttrs, attr
from weft.ir.op import OpPattern, case, define_op
from weft.ir.traits import OpTraits
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.op.relations import (
    attrs_as,
    expect_dim,
    expect_float,
    expect_int,
    expect_rank,
    tensors_known,
)
from weft.topi.nn import cache as topi_cache

_AXES = ("batch", "heads", "positions", "dim")


@dataclass(frozen=True, kw_only=True)
class CacheUpdateAttrs(Attrs):
    ring: bool = attr(False, "position p is stored at p modulo the capacity")


def _relation(ctx: RelationContext) -> bool:
    types = tensors_known(ctx, 3)
    if types is None:
        return False
    cache, new, start = types
    attrs_as(ctx, CacheUpdateAttrs)
    expect_new_rows(ctx, cache, new, start)
    expect_dim(ctx, 1, 0, new.shape[0], cache.shape[0], "the batches differ",
               why=" (that of the cache)")
    ctx.output(cache)
    return True


def _paged_relation(ctx: RelationContext) -> bool:
    types = tensors_known(ctx, 4)
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
        expect_float(ctx, arg, type_)
        expect_rank(ctx, arg, type_, 4)
    for axis in (1, 3):
        expect_dim(ctx, 1, axis, new.shape[axis], cache.shape[axis],
                   f"the new rows do not fit the cache: {_AXES[axis]}",
                   why=" (that of the cache)")
    expect_int(ctx, 2, start)
    expect_rank(ctx, 2, start, 1)
    expect_dim(ctx, 2, 0, start.shape[0], new.shape[0], "the batches differ",
               why=" (that of the new rows)")


def expect_block_table(
    ctx: RelationContext, arg: int, table: TensorType, rows: TensorType
) -> None:
    """Check (batch, most blocks of a row) integers."""
    expect_int(ctx, arg, table)
    expect_rank(ctx, arg, table, 2)
    expect_dim(ctx, arg, 0, table.shape[0], rows.shape[0], "the batches differ",
               why=" (one row of the table per row of the batch)")


@define_op("nn.cache_update", attrs=CacheUpdateAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10, traits=OpTraits(updates_first=True))
def cache_update(cache: te.Tensor, new: te.Tensor, start: te.Tensor,
                 attrs: CacheUpdateAttrs) -> te.Tensor:
    """``cache`` with ``new[b, :, i]`` written at position ``start[b] + i`` of row ``b``.

    ``cache``: (batch, heads, capacity, dim); ``new``: (batch, heads, n, dim), converted to the
    dtype of the cache; ``start``: (batch,) integers. Rows at positions outside the cache are
    dropped; with ``ring``, those at negative positions alone. The kernel writes the new rows
    alone if the result takes the memory of ``cache``. It has no gradient.
    """
    return topi_cache.cache_update(cache, new, start, ring=attrs.ring)


@define_op("nn.paged_cache_update", relation=_paged_relation, pattern=OpPattern.OPAQUE,
           level=10, traits=OpTraits(updates_first=True))
def paged_cache_update(cache: te.Tensor, new: te.Tensor, start: te.Tensor,
                       block_table: te.Tensor, attrs: NoAttrs) -> te.Tensor:
    """``nn.cache_update`` of a cache in blocks, (blocks, heads, block size, dim).

    Position ``p`` of row ``b`` is row ``p mod block size`` of the block
    ``block_table[b, p div block size]``. Positions beyond the table, and blocks that do not exist,
    are dropped. No two rows of the batch may write to one position of a block. It has no gradient.
    """
    del attrs
    return topi_cache.paged_cache_update(cache, new, start, block_table)


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
    case((2, 3, 7, 4), (2, 3, 2, 4), np.array([0, 4])),
    case((2, 2, 5, 3), (2, 2, 3, 3), np.array([-1, 4])),
    case((2, 2, 5, 3), (2, 2, 4, 3), np.array([3, 12], np.int32), ring=True),
    case((1, 2, 6, 4), (1, 2, 1, 4), np.array([5]), dtypes=("float16", "float32")),
    case((2, 1, 3, 4), (2, 1, 0, 4), np.array([0, 1])),
)
paged_cache_update.spec(
    _paged_reference,
    case((5, 2, 4, 3), (2, 2, 3, 3), np.array([2, 5]), np.array([[3, 1], [0, 4]])),
    case((3, 1, 2, 4), (2, 1, 3, 4), np.array([1, -1]), np.array([[2, -1], [1, 7]], np.int32)),
)
