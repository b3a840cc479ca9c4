"""Attention over caches as matrix products, masks and a softmax, for differentiation.

All slots of the caches take part, so that time and memory grow with the capacity. Slots without a
valid position are replaced by zeros: they may hold anything, and 0 * inf is not 0.
"""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir import Call, DType, Expr, TupleGetItem, const, float32, infer_expr, int64
from weft.ir.shape import Dim, KnownDim, dim_mul, may_be_at_least
from weft.op.gradients import (
    clamped,
    cut_to,
    known_shape,
    numbered,
    scalar,
    size_value,
    tensor_type,
)
from weft.support.dataclass import dataclass
from weft.topi.nn.cache import CachedAttention


@dataclass(frozen=True, slots=True)
class _Slots:
    """The position in each slot, (batch, slots) int64, and whether it is valid."""

    positions: Expr
    valid: Expr
    count: KnownDim


def expand_cached_attention(
    call: Call, how: CachedAttention, names: tuple[str, ...]
) -> Expr | None:
    """The expansion; ``None`` if the heads of a group are not a fixed number."""
    q, k, v, lengths, extras = call.args
    extra: dict[str, Expr] = {name: TupleGetItem(extras, n) for n, name in enumerate(names)}
    (batch, heads, count, depth), shared = known_shape(q, call), known_shape(k, call)[1]
    if not isinstance(heads, int) or not isinstance(shared, int):
        return None
    dtype = tensor_type(q).dtype
    wide = dtype if dtype.bits > 16 else float32
    if "block_table" in extra:
        k, v = (_in_order(x, _typed(extra["block_table"]), call) for x in (k, v))
    slots = _slots(lengths, known_shape(k, call)[2], how)
    k, v = (_valid_rows(_cast(x, wide), slots) for x in (k, v))
    together = dim_mul(heads // max(shared, 1), count)
    stacked = _reshape(op.multiply(_cast(q, wide), const(how.scale, wide)),
                       dim_mul(batch, shared), together, depth)
    scores = _typed(_reshape(op.nn.batch_matmul(stacked, _stack(k, call)),
                             batch, heads, count, slots.count))
    own = _own_positions(lengths, count)
    scores = _typed(_biased(scores, slots, own, how, extra, call))
    weights = _weights(scores, _visible(slots, own, how))
    result = op.nn.batch_matmul(
        _reshape(weights, dim_mul(batch, shared), together, slots.count), _stack(v, call),
        transpose_b=False)
    whole = _reshape(result, batch, heads, count, known_shape(v, call)[3])
    return _cast(_typed(whole), dtype)


def _slots(lengths: Expr, count: KnownDim, how: CachedAttention) -> _Slots:
    length = op.expand_dims(op.cast(lengths, dtype="int64"), axis=1)
    slots = numbered((1, count))
    if not how.ring:
        # The positions are those of every row; they broadcast against the lengths.
        return _Slots(slots, op.less(slots, length), count)
    last = op.subtract(length, const(1, int64))
    positions = op.subtract(last, op.floor_mod(op.subtract(last, slots), size_value(count, int64)))
    return _Slots(positions, op.greater_equal(positions, const(0, int64)), count)


def _own_positions(lengths: Expr, count: KnownDim) -> Expr:
    """The positions of the queries, (batch, count)."""
    first = op.subtract(op.cast(lengths, dtype="int64"), size_value(count, int64))
    return op.add(op.expand_dims(first, axis=1), numbered((1, count)))


def _in_order(cache: Expr, table: Expr, call: Call) -> Expr:
    """A cache in blocks as one of (batch, heads, slots, dim), by the block table."""
    blocks, heads, size, width = known_shape(cache, call)
    batch, most = known_shape(table, call)
    chosen = clamped(_cast(table, int64), blocks, int64)
    rows = op.transpose(op.take(cache, chosen, axis=0), axes=(0, 2, 1, 3, 4))
    return _typed(_reshape(rows, batch, heads, dim_mul(most, size), width))


def _valid_rows(cache: Expr, slots: _Slots) -> Expr:
    is_valid = op.expand_dims(op.expand_dims(slots.valid, axis=1), axis=3)
    return _typed(op.where(is_valid, cache, scalar(0.0, cache)))


def _biased(scores: Expr, slots: _Slots, own: Expr, how: CachedAttention, extra: dict[str, Expr],
            call: Call) -> Expr:
    """Softcap, slopes and bias, in this order."""
    dtype = tensor_type(scores).dtype
    if how.softcap:
        cap = const(how.softcap, dtype)
        scores = op.multiply(op.tanh(op.divide(scores, cap)), cap)
    if "alibi_slopes" in extra:
        distance = op.cast(op.subtract(op.expand_dims(slots.positions, axis=1),
                                       op.expand_dims(own, axis=2)), dtype=dtype)
        slopes = op.expand_dims(_cast(_typed(extra["alibi_slopes"]), dtype), axis=1,
                                num_newaxis=2)
        scores = op.add(scores, op.multiply(slopes, op.expand_dims(distance, axis=1)))
    if "bias" in extra:
        scores = op.add(scores, _fitted(_cast(_typed(extra["bias"]), dtype), slots.count, call))
    return scores


def _fitted(bias: Expr, count: KnownDim, call: Call) -> Expr:
    """The bias for ``count`` slots: zero beyond its last, unless it has one number for all."""
    bias = _typed(bias)
    *lead, size = known_shape(bias, call)
    if size in (1, count):
        return bias
    if may_be_at_least(count, size):
        pads = tuple((0, 0) for _ in lead)
        return op.nn.pad(bias, scalar(0.0, bias), pad_width=(*pads, (0, count - size)))
    return cut_to(bias, len(lead), count)


def _visible(slots: _Slots, own: Expr, how: CachedAttention) -> Expr:
    """(batch, 1, queries, slots) booleans."""
    positions, own = op.expand_dims(slots.positions, axis=1), op.expand_dims(own, axis=2)
    visible = op.logical_and(op.expand_dims(slots.valid, axis=1), op.equal(own, own))
    if how.causal:
        visible = op.logical_and(visible, op.less_equal(positions, own))
    if how.window is not None:
        first = op.subtract(own, const(how.window, int64))
        visible = op.logical_and(visible, op.greater(positions, first))
    return _typed(op.expand_dims(visible, axis=1))


def _weights(scores: Expr, visible: Expr) -> Expr:
    """The softmax over visible slots; zeros for queries that see none."""
    dtype = tensor_type(scores).dtype
    hidden = op.where(visible, scores, const(float(np.finfo(dtype.numpy).min), dtype))
    return _typed(op.where(visible, op.nn.softmax(hidden), const(0.0, dtype)))


def _stack(x: Expr, call: Call) -> Expr:
    """(batch, heads, rows, dim) as (batch * heads, rows, dim)."""
    batch, heads, rows, width = known_shape(x, call)
    return _reshape(x, dim_mul(batch, heads), rows, width)


def _reshape(x: Expr, *shape: Dim) -> Expr:
    return op.reshape(x, newshape=shape, allowzero=True)


def _cast(x: Expr, dtype: DType) -> Expr:
    return x if tensor_type(x).dtype == dtype else _typed(op.cast(x, dtype=dtype))


def _typed(x: Expr) -> Expr:
    return x if x.checked_type is not None else infer_expr(x, trust=True)
