"""Caches of keys and values: their update, and attention over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from weft import te
from weft.ir import DType, float32, int64
from weft.support.dataclass import dataclass
from weft.tir import (
    Buffer,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    PrimExpr,
    Stmt,
    Var,
    all_of,
    const,
    if_then_else,
    int_value,
    maximum,
    minimum,
    not_,
    select,
    seq,
)


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


# Initial maxima: below every score but minus infinity, and finite, so that it can be subtracted.
_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class CachedAttention:
    """The parameters of ``cached_attention`` other than tensors.

    ``window`` is the number of newest positions that a query sees, itself included; ``None`` for
    all. ``softcap`` bounds scores to (-softcap, softcap) by tanh; 0 for no bound.
    """

    scale: float = 1.0
    causal: bool = True
    window: int | None = None
    softcap: float = 0.0
    ring: bool = False


def cached_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, lengths: te.Tensor, how: CachedAttention,
    extras: Mapping[str, te.Tensor],
) -> te.Tensor:
    """softmax(scale * q kT + bias) v over the valid positions of caches.

    ``q``: (batch, heads, n, D), whose query ``i`` is at position ``lengths[b] - n + i``; ``k``,
    ``v``: caches (see ``cache``) with heads shared by groups of query heads. ``extras`` may hold
    ``bias``, which broadcasts to (batch, heads, n, slots); ``alibi_slopes``, (heads,);
    ``block_table``, (batch, most blocks), for paged caches. A query that sees no position gives
    zeros. Floats of 16 bits are computed in float32.
    """
    dtype = q.dtype if q.dtype.bits > 16 else float32
    caches = _Caches(q, k, lengths, how, extras)
    scores = caches.scores(dtype)
    row, slots = scores.shape[:-1], scores.shape[-1]
    over = te.reduce_axis(slots, name="slot")
    top = te.compute(row, lambda *i: te.max(scores[(*i, over.var)], over), name="top")
    # Minus infinity, the maximum of a query that sees nothing, could not be subtracted.
    powers = te.compute(
        scores.shape,
        lambda *i: te.exp(scores[i] - maximum(top[i[:-1]], const(_LOWEST, dtype))), name="powers")
    summed = te.reduce_axis(slots, name="slot")
    total = te.compute(row, lambda *i: te.sum(powers[(*i, summed.var)], summed), name="total")
    n = te.reduce_axis(slots, name="slot")

    def weighted(*index: PrimExpr) -> PrimExpr:
        batch, head, query, element = index
        # Slots without a position hold anything, NaN too.
        value = caches.load(v, batch, head, n.var, element, dtype)
        return te.sum(powers[batch, head, query, n.var] * value, n)

    sums = te.compute((*row, v.shape[-1]), weighted, name="attention")

    def element(*index: PrimExpr) -> PrimExpr:
        weight = total[index[:-1]]
        value = select(weight.equal(const(0, dtype)), const(0, dtype), sums[index] / weight)
        return value.astype(q.dtype)

    return te.compute(sums.shape, element, name="cached_attention")


@dataclass(frozen=True, slots=True)
class _Caches:
    q: te.Tensor
    k: te.Tensor
    lengths: te.Tensor
    how: CachedAttention
    extras: Mapping[str, te.Tensor]

    @property
    def slots(self) -> PrimExpr:
        table = self.extras.get("block_table")
        size = self.k.shape[2]
        return size if table is None else table.shape[1] * size

    def length(self, batch: PrimExpr) -> PrimExpr:
        """The valid positions: at most the capacity, unless they wrap around."""
        length = maximum(self.lengths[batch].astype(int64), const(0, int64))
        return length if self.how.ring else minimum(length, self.slots)

    def position(self, batch: PrimExpr, slot: PrimExpr) -> PrimExpr:
        return position_of_slot(slot, self.length(batch), self.slots, ring=self.how.ring)

    def load(self, x: te.Tensor, batch: PrimExpr, head: PrimExpr, slot: PrimExpr,
             element: PrimExpr, dtype: DType) -> PrimExpr:
        """An element of a cache; zero where no position was written."""
        group = self.q.shape[1] // maximum(x.shape[1], const(1, int64))
        table, row, block = self.extras.get("block_table"), slot, batch
        if table is not None:
            # A block that does not exist is read as another: the table is data.
            found = table[batch, slot // x.shape[2]].astype(int64)
            block, row = minimum(maximum(found, 0), x.shape[0] - 1), slot % x.shape[2]
        position = self.position(batch, slot)
        valid = all_of(position >= 0, position < self.length(batch))
        value = x[block, head // group, row, element].astype(dtype)
        return if_then_else(valid, value, const(0, dtype))

    def scores(self, dtype: DType) -> te.Tensor:
        d = te.reduce_axis(self.q.shape[-1], name="d")

        def product(batch: PrimExpr, head: PrimExpr, query: PrimExpr, slot: PrimExpr) -> PrimExpr:
            key = self.load(self.k, batch, head, slot, d.var, dtype)
            return te.sum(self.q[batch, head, query, d.var].astype(dtype) * key, d)

        products = te.compute((*self.q.shape[:-1], self.slots), product, name="scores")
        return te.compute(products.shape, lambda *i: self._masked(products[i], i, dtype),
                          name="masked")

    def _masked(self, score: PrimExpr, index: tuple[PrimExpr, ...], dtype: DType) -> PrimExpr:
        batch, head, query, slot = index
        score = score * const(self.how.scale, dtype)
        if self.how.softcap:
            cap = const(self.how.softcap, dtype)
            score = cap * te.tanh(score / cap)
        position = self.position(batch, slot)
        own = self.lengths[batch].astype(int64) - self.q.shape[2] + query
        if "alibi_slopes" in self.extras:
            slope = self.extras["alibi_slopes"][head].astype(dtype)
            score = score + slope * (position - own).astype(dtype)
        if "bias" in self.extras:
            score = score + _bias_at(self.extras["bias"], index, dtype)
        visible = [position >= 0, position < self.length(batch)]
        if self.how.causal:
            visible.append(position <= own)
        if self.how.window is not None:
            visible.append(position > own - self.how.window)
        return select(not_(all_of(*visible)), const(-math.inf, dtype), score)


def _bias_at(bias: te.Tensor, index: tuple[PrimExpr, ...], dtype: DType) -> PrimExpr:
    """The element of the bias that broadcasts to the scores; zero beyond its last slot."""
    trailing = index[len(index) - bias.ndim:]
    at = tuple(const(0, int64) if int_value(size) == 1 else i
               for size, i in zip(bias.shape, trailing, strict=True))
    if int_value(bias.shape[-1]) == 1:
        return bias[at].astype(dtype)
    inside = if_then_else(at[-1] < bias.shape[-1], bias[at].astype(dtype), const(0, dtype))
    if int_value(bias.shape[-1]) is not None:
        return inside
    # One slot counts for all of them, also if its number is known at run time alone.
    first = bias[(*at[:-1], const(0, int64))].astype(dtype)
    return if_then_else(bias.shape[-1].equal(1), first, inside)
