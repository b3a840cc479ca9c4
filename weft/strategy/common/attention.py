"""The operands of attention: which keys a query sees, and how a score is masked.

The loops of every target (streamed attention on CPUs, FlashAttention on GPUs) read queries, keys
and values through a ``KeySource``. A finite maximum starts each softmax (``LOWEST``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from weft import te
from weft.ir import AnyDim, Call, TensorType, dims_equal, float32, int64
from weft.op.nn.attention import AS_GOOD_AS_INFINITE, AttentionAttrs
from weft.op.nn.cached_attention import CachedAttentionAttrs
from weft.strategy.implementation import attrs_of
from weft.support.dataclass import dataclass
from weft.te import tanh
from weft.te.tensor import ExternBody
from weft.tir import Buffer, BufferStore, Stmt
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value, maximum, minimum, select
from weft.topi.nn.cache import CachedAttention

# Initial maxima: below every score but minus infinity, and finite, so that it can be subtracted.
LOWEST = float(np.finfo(np.float32).min)

At = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A query, and its head among those that share keys."""

    query: PrimExpr
    head: PrimExpr


class KeySource(Protocol):
    """The operands of attention, by the leading indices ``at`` of their keys."""

    @property
    def leads(self) -> tuple[PrimExpr, ...]:
        """The leading sizes of the keys: batch and heads."""
        ...

    @property
    def group(self) -> int:
        """Query heads that share keys."""
        ...

    @property
    def queries(self) -> PrimExpr: ...

    @property
    def sizes(self) -> tuple[int, int]:
        """Depth of the keys and width of the values."""
        ...

    def span(self, at: At, first: PrimExpr, last: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The first key that some query from ``first`` to ``last`` sees, and the end of keys."""
        ...

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        ...

    def query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        """The load of an element of a query."""
        ...

    def key(self, at: At, number: PrimExpr, d: PrimExpr) -> PrimExpr: ...

    def value(self, at: At, number: PrimExpr, e: PrimExpr) -> PrimExpr: ...

    def masked(self, at: At, row: Row, number: PrimExpr, score: PrimExpr) -> PrimExpr:
        """The score with key ``number`` after bounds and masks; minus infinity if hidden."""
        ...

    def store(self, at: At, row: Row, e: PrimExpr, value: PrimExpr, total: PrimExpr) -> Stmt:
        """Store a weighted sum over ``total``, the sum of exponentials."""
        ...


def defined(attrs: AttentionAttrs, value: PrimExpr, total: PrimExpr) -> PrimExpr:
    """``value``, or zero where ``attrs.undefined`` asks for it and the softmax is undefined.

    ``total``, the sum of exponentials, is zero if all scores were minus infinity, NaN if a score
    was NaN or plus infinity, and at least one otherwise.
    """
    zero = const(0, float32)
    if attrs.undefined == "zero":
        return select(total > zero, value, zero)
    if attrs.undefined == "zero_if_hidden":
        return select(total.equal(zero), zero, value)
    return value


def broadcast_load(x: Buffer, index: Sequence[PrimExpr]) -> PrimExpr:
    """The element of ``x`` at an index into the shape to which ``x`` broadcasts."""
    trailing = index[len(index) - x.ndim:]
    return x.load(*(const(0) if int_value(size) == 1 else i
                    for size, i in zip(x.shape, trailing, strict=True)))


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

    @property
    def scale(self) -> float:
        return self.attrs.scale

    def query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        return self.q.load(*self._lead(at, row), row.query, d)

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

    @property
    def scale(self) -> float:
        return self.how.scale

    def query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        return self.q.load(*self._lead(at, row), row.query, d)

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


SourceOf = Callable[[tuple[Buffer, ...], Buffer], KeySource]  # from input buffers and the result
LoopsOf = Callable[[SourceOf], ExternBody]


def dense_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor | AttentionAttrs,
    offset: int | None, loops: LoopsOf,
) -> te.Tensor:
    """``nn.attention`` or ``nn.masked_attention``; ``rest`` is the mask, if any, and attributes.

    ``offset`` is that of causality if hidden keys need not be read, else ``None``.
    """
    attrs = next(x for x in rest if isinstance(x, AttentionAttrs))
    masks = [x for x in rest if isinstance(x, te.Tensor)]

    def source(inputs: tuple[Buffer, ...], out: Buffer) -> DenseKeys:
        query, keys, values, *mask = inputs
        return DenseKeys(attrs, offset, query, keys, values, mask[0] if mask else None, out)

    return _extern((q, k, v, *masks), loops(source))


def cached_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, lengths: te.Tensor,
    extras: tuple[te.Tensor, ...], attrs: CachedAttentionAttrs, *, loops: LoopsOf,
) -> te.Tensor:
    """``nn.cached_attention``: the valid positions of caches."""

    def source(inputs: tuple[Buffer, ...], out: Buffer) -> CachedKeys:
        query, keys, values, valid, *rest = inputs
        named = dict(zip(attrs.extras, rest, strict=True))
        return CachedKeys(attrs.how, query, keys, values, valid, named, out)

    return _extern((q, k, v, lengths, *extras), loops(source))


def _extern(inputs: Sequence[te.Tensor], loops: ExternBody) -> te.Tensor:
    q, _, v, *_ = inputs
    return te.extern([(*q.shape[:-1], v.shape[-1])], inputs, loops, [q.dtype], "attention")[0]


def causal_offset(call: Call) -> int | None:
    """The offset beyond which keys need not be read; ``None`` if all keys must be read."""
    attrs = attrs_of(call, AttentionAttrs)
    if not attrs.causal or attrs.fill is None:
        return attrs.last_key
    # A finite fill gives a query without visible keys the mean of all values, and so does a mask
    # that hides all keys that causality leaves: then the hidden keys are read as well.
    is_infinite = attrs.fill <= AS_GOOD_AS_INFINITE and attrs.offset >= 0 and len(call.args) == 3
    return attrs.offset if is_infinite else None


def operand_types(call: Call) -> tuple[TensorType, TensorType, TensorType] | str:
    """The types of queries, keys and values, or why no kernel can be compiled for them."""
    types = [arg.checked_type for arg in call.args[:3]]
    q, k, v = tensors = [t if isinstance(t, TensorType) else None for t in types]
    if q is None or k is None or v is None or any(
            isinstance(d, AnyDim) for t in tensors if t is not None for d in t.shape):
        return "a size is not known when the kernel is compiled"
    return q, k, v


def has_fixed_groups(q: TensorType, k: TensorType) -> bool:
    """Whether the number of query heads that share a head of keys is fixed."""
    if q.ndim < 3:
        return True
    heads, shared = q.shape[-3], k.shape[-3]
    if isinstance(heads, int) and isinstance(shared, int):
        return shared > 0
    return dims_equal(heads, shared) is True
