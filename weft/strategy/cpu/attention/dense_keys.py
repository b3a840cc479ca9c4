"""The keys of ``nn.attention`` and ``nn.masked_attention`` for streamed attention."""

from __future__ import annotations

from weft.ir.dtype import float32, int64
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.cpu.attention.fused_tile import broadcast_load, defined
from weft.strategy.cpu.attention.streamed_loops import At, Row
from weft.support.dataclass import dataclass
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, const, if_then_else, int_value, maximum, minimum, select
from weft.tir.stmt import BufferStore, Stmt


@dataclass(frozen=True, slots=True)
class DenseKeys:
    """Implements ``KeySource`` over whole tensors of keys and values, of any sizes but their last.

    ``offset`` is that of causality if hidden keys need not be read, else ``None``.
    """

    attrs: AttentionAttrs
    offset: int | None
    q: Buffer
    k: Buffer
    v: Buffer
    mask: Buffer | None
    out: Buffer

    @property
    def leads(self) -> tuple[PrimExpr, ...]:
        return self.k.shape[:-2]

    @property
    def group(self) -> int:
        if self.q.ndim < 3:
            return 1
        # Symbolic numbers of heads are equal.
        heads, shared = int_value(self.q.shape[-3]), int_value(self.k.shape[-3])
        return (heads or 1) // (shared or 1)

    @property
    def queries(self) -> PrimExpr:
        return self.q.shape[-2]

    @property
    def sizes(self) -> tuple[int, int]:
        return int_value(self.k.shape[-1]) or 0, int_value(self.v.shape[-1]) or 0

    def span(self, at: At, first: PrimExpr, last: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        del at, first
        keys, start = self.k.shape[-2], const(0, int64)
        if self.offset is None:
            return start, keys
        return start, maximum(minimum(keys, last + (self.offset + 1)), start)

    def query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        scale = const(self.attrs.scale, float32)
        return self.q.load(*self._lead(at, row), row.query, d).astype(float32) * scale

    def key(self, at: At, number: PrimExpr, d: PrimExpr) -> PrimExpr:
        return self.k.load(*at, number, d)

    def value(self, at: At, number: PrimExpr, e: PrimExpr) -> PrimExpr:
        return self.v.load(*at, number, e)

    def masked(self, at: At, row: Row, number: PrimExpr, score: PrimExpr) -> PrimExpr:
        unseen = const(self.attrs.unseen, float32)
        if self.mask is not None:
            mask = broadcast_load(self.mask, (*self._lead(at, row), row.query, number))
            # The last vector of keys ends beyond the mask.
            inside, zero = number < self.k.shape[-2], const(0, mask.dtype)
            mask = if_then_else(inside, mask, zero)
            score = (select(mask, score, unseen) if mask.dtype.is_bool
                     else score + mask.astype(float32))
        if self.attrs.causal:
            score = select(number <= row.query + self.attrs.offset, score, unseen)
        return score

    def store(self, at: At, row: Row, e: PrimExpr, value: PrimExpr, total: PrimExpr) -> Stmt:
        value = defined(self.attrs, value / total, total)
        # Without keys the sum is empty: it is zero, not undefined.
        value = select(self.k.shape[-2] > 0, value, const(0, float32))
        return BufferStore(self.out, value.astype(self.out.dtype),
                           (*self._lead(at, row), row.query, e))

    def _lead(self, at: At, row: Row) -> At:
        """The leading indices of a query: batch, and its head."""
        if not at:
            return ()
        *batch, head = at
        return (*batch, head * self.group + row.head)
