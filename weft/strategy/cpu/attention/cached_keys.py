"""The keys of ``nn.cached_attention`` for streamed attention."""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.ir.dtype import float32, int64
from weft.strategy.cpu.attention.fused_tile import broadcast_load
from weft.strategy.cpu.attention.streamed_loops import At, Row
from weft.support.dataclass import dataclass
from weft.te import tanh
from weft.tir.buffer import Buffer
from weft.tir.expr import (
    PrimExpr,
    all_of,
    const,
    if_then_else,
    int_value,
    maximum,
    minimum,
    select,
)
from weft.tir.stmt import BufferStore, Stmt
from weft.topi.nn.cached_attention import CachedAttention


@dataclass(frozen=True, slots=True)
class CachedKeys:
    """Implements ``KeySource`` over contiguous, ring and paged caches.

    Keys are numbered by slots: positions, or positions modulo the capacity of a ring.
    """

    how: CachedAttention
    q: Buffer
    k: Buffer
    v: Buffer
    lengths: Buffer
    extras: Mapping[str, Buffer]
    out: Buffer

    @property
    def leads(self) -> tuple[PrimExpr, ...]:
        return self.q.shape[0], self.k.shape[1]

    @property
    def group(self) -> int:
        # Symbolic numbers of heads are equal.
        heads, shared = int_value(self.q.shape[1]), int_value(self.k.shape[1])
        return (heads or 1) // (shared or 1)

    @property
    def queries(self) -> PrimExpr:
        return self.q.shape[2]

    @property
    def sizes(self) -> tuple[int, int]:
        return int_value(self.k.shape[3]) or 0, int_value(self.v.shape[3]) or 0

    @property
    def slots(self) -> PrimExpr:
        table = self.extras.get("block_table")
        return self.k.shape[2] if table is None else table.shape[1] * self.k.shape[2]

    def _length(self, at: At) -> PrimExpr:
        return self.lengths.load(at[0]).astype(int64)

    def _position_of_query(self, at: At, query: PrimExpr) -> PrimExpr:
        return self._length(at) - self.queries + query

    def span(self, at: At, first: PrimExpr, last: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        start = const(0, int64)
        end = maximum(minimum(self._length(at), self.slots), start)
        # The positions of a ring begin anywhere, so all of its slots are read.
        if self.how.causal and not self.how.ring:
            end = maximum(minimum(end, self._position_of_query(at, last) + 1), start)
        if self.how.window is not None and not self.how.ring:
            oldest = self._position_of_query(at, first) - (self.how.window - 1)
            start = maximum(oldest, start)
        return start, end

    def query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        scale = const(self.how.scale, float32)
        return self.q.load(*self._lead(at, row), row.query, d).astype(float32) * scale

    def key(self, at: At, number: PrimExpr, d: PrimExpr) -> PrimExpr:
        return self._element(self.k, at, number, d)

    def value(self, at: At, number: PrimExpr, e: PrimExpr) -> PrimExpr:
        return self._element(self.v, at, number, e)

    def _element(self, x: Buffer, at: At, slot: PrimExpr, element: PrimExpr) -> PrimExpr:
        table = self.extras.get("block_table")
        batch, head = at
        if table is None:
            return x.load(batch, head, slot, element)
        size = x.shape[2]
        found = table.load(batch, slot // size).astype(int64)
        # A block that does not exist is read as another: the table is data.
        block = maximum(minimum(found, x.shape[0] - 1), const(0, int64))
        return x.load(block, head, slot % size, element)

    def masked(self, at: At, row: Row, number: PrimExpr, score: PrimExpr) -> PrimExpr:
        if self.how.softcap:
            cap = self.how.softcap
            score = tanh(score * const(1 / cap, float32)) * const(cap, float32)
        position, own = self._position(at, number), self._position_of_query(at, row.query)
        lead = self._lead(at, row)
        if "alibi_slopes" in self.extras:
            slope = self.extras["alibi_slopes"].load(lead[-1]).astype(float32)
            score = score + slope * (position - own).astype(float32)
        if "bias" in self.extras:
            score = score + self._bias((*lead, row.query), number).astype(float32)
        visible = []
        if self.how.causal:
            visible.append(position <= own)
        if self.how.window is not None:
            visible.append(position > own - self.how.window)
        return select(all_of(*visible), score, const(-math.inf, float32)) if visible else score

    def _position(self, at: At, slot: PrimExpr) -> PrimExpr:
        """The position that a written slot holds."""
        if not self.how.ring:
            return slot
        # The newest round of the ring ends before slot ``length mod capacity``.
        length, capacity = self._length(at), maximum(self.slots, const(1, int64))
        newest = length % capacity
        begin = length - newest
        return slot + select(slot < newest, begin, begin - capacity)

    def _bias(self, lead: At, number: PrimExpr) -> PrimExpr:
        """The bias of a slot: zero beyond its last one; one slot counts for all of them."""
        bias, slots = self.extras["bias"], self.extras["bias"].shape[-1]
        value = broadcast_load(bias, (*lead, number))
        if int_value(slots) == 1:
            return value
        value = if_then_else(number < slots, value, const(0, value.dtype))
        if int_value(slots) is not None:
            return value
        # A branch, so that the vectors of other rows stay contiguous loads.
        first = broadcast_load(bias, (*lead, const(0, int64)))
        return if_then_else(slots.equal(1), first, value)

    def store(self, at: At, row: Row, e: PrimExpr, value: PrimExpr, total: PrimExpr) -> Stmt:
        zero = const(0, float32)
        value = select(total.equal(zero), zero, value / total)
        return BufferStore(self.out, value.astype(self.out.dtype),
                           (*self._lead(at, row), row.query, e))

    def _lead(self, at: At, row: Row) -> At:
        batch, head = at
        return batch, head * self.group + row.head
