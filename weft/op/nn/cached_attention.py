"""Attention over key and value caches whose valid lengths are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Dim, Expr, RelationContext, Span, TensorType, Tuple, attr
from weft.ir.op import OpPattern, as_expr, define_op, op_case
from weft.ir.typing.relations import broadcast_dims
from weft.op.batching import merging
from weft.op.gradients import attrs_of
from weft.op.nn.cache import expect_block_table
from weft.op.nn.cached_attention_expansion import expand_cached_attention
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError
from weft.topi.nn import cache as topi

__all__ = ["attend_cache"]

EXTRAS = ("bias", "alibi_slopes", "block_table")


@dataclass(frozen=True, kw_only=True)
class CachedAttentionAttrs(Attrs):
    scale: float = attr(1.0, "factor of the scores")
    causal: bool = attr(True, "a query sees the positions up to its own")
    window: int | None = attr(
        None, "number of newest positions that a query sees, its own included; None for all",
        check=lambda n: n is None or n > 0, expected="a number > 0, or None")
    softcap: float = attr(0.0, "bound of the scores, by tanh; 0 for none",
                          check=lambda c: c >= 0, expected="a number >= 0")
    ring: bool = attr(False, "position p is stored at p modulo the capacity")
    extras: tuple[str, ...] = attr(
        (), "names of the tensors in the last argument, in order",
        check=lambda names: [n for n in EXTRAS if n in names] == list(names),
        expected=f"some of {', '.join(EXTRAS)}, in this order")

    @property
    def how(self) -> topi.CachedAttention:
        return topi.CachedAttention(self.scale, self.causal, self.window, self.softcap, self.ring)


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    extras = ctx.tensors(4)
    if types is None or extras is None:
        return False
    names = ctx.attrs_as(CachedAttentionAttrs).extras
    if len(names) != len(extras):
        ctx.fail("the extra operands do not match their names", arg=4,
                 expected=f"{len(names)} tensors ({', '.join(names) or 'none'})",
                 got=len(extras))
    found = dict(zip(names, extras, strict=True))
    q, k, v, lengths = types
    _check_caches(ctx, q, k, v, is_paged="block_table" in found)
    ctx.expect_int(3, lengths)
    ctx.expect_rank(3, lengths, 1)
    ctx.expect_dim(3, 0, lengths.shape[0], q.shape[0], "the batches differ",
                   why=" (that of the query)")
    _check_extras(ctx, q, found)
    ctx.output(TensorType((*q.shape[:-1], v.shape[-1]), q.dtype))
    return True


def _check_caches(
    ctx: RelationContext, q: TensorType, k: TensorType, v: TensorType, *, is_paged: bool
) -> None:
    for arg, type_ in enumerate((q, k, v)):
        ctx.expect_float(arg, type_)
        ctx.expect_rank(arg, type_, 4)
    ctx.expect_same_dtype(2, v, k.dtype)
    for axis in range(3):
        ctx.expect_dim(2, axis, v.shape[axis], k.shape[axis],
                       "the caches of keys and values differ", why=" (that of the keys)")
    ctx.expect_dim(1, 3, k.shape[3], q.shape[3], "the inner sizes do not match",
                   why=" (the last axis of the query)")
    if not is_paged:
        ctx.expect_dim(1, 0, k.shape[0], q.shape[0], "the batches differ",
                       why=" (that of the query)")
    elif ctx.attrs_as(CachedAttentionAttrs).ring:
        ctx.fail("a paged cache is not a ring", arg=4, expected="ring=False with a block_table",
                 got="ring=True")
    heads, shared = q.shape[1], k.shape[1]
    known = isinstance(heads, int) and isinstance(shared, int)
    if known and heads != shared and (not shared or heads % shared):
        ctx.fail("the heads do not divide into groups", arg=1, axis=1,
                 expected=f"a divisor of {heads} (the heads of the query)", got=shared)


def _check_extras(ctx: RelationContext, q: TensorType, extras: dict[str, TensorType]) -> None:
    bias, slopes, table = (extras.get(name) for name in EXTRAS)
    if bias is not None:
        ctx.expect_float(4, bias)
        ctx.expect_rank(4, bias, 1, 2, 3, 4)
        for axis, size in enumerate(bias.shape[:-1]):
            wanted = q.shape[axis + 4 - bias.ndim]
            if broadcast_dims(size, wanted) is None or (
                    isinstance(size, int) and size != 1 and wanted == 1):
                ctx.fail("the bias does not fit the scores", arg=4, axis=axis,
                         expected=f"{wanted} or 1", got=size)
    if slopes is not None:
        ctx.expect_float(4, slopes)
        ctx.expect_rank(4, slopes, 1)
        ctx.expect_dim(4, 0, slopes.shape[0], q.shape[1], "one ALiBi slope per head is needed",
                       why=" (the heads of the query)")
    if table is not None:
        expect_block_table(ctx, 4, table, q)


@define_op("nn.cached_attention", attrs=CachedAttentionAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10)
def cached_attention(q: te.Tensor, k_cache: te.Tensor, v_cache: te.Tensor, lengths: te.Tensor,
                     extras: tuple[te.Tensor, ...], attrs: CachedAttentionAttrs) -> te.Tensor:
    """softmax(scale * q kT + bias) v over the valid positions of key and value caches.

    ``q``: (batch, heads, n, D); ``k_cache``, ``v_cache``: (batch, shared heads, capacity, D or E),
    of any float dtype; the heads of ``q`` divide into groups, each of which shares a head of the
    caches. ``lengths``: (batch,) integers, the valid positions after ``nn.cache_update``; the time
    grows with them, not with the capacity. Query ``i`` is at position ``lengths[b] - n + i``. A
    batch of prompts with different lengths may pass its start plus ``n`` as lengths; the results
    of the queries beyond the end of a prompt are then meaningless.

    ``extras`` are the tensors that the attribute names: ``bias``, added to the scores, broadcasts
    to (batch, heads, n, slots) and is zero beyond its last slot; ``alibi_slopes``, (heads,), adds
    slope * (key position - query position); ``block_table``, (batch, most blocks), makes the caches
    (blocks, shared heads, block size, dim) as in ``nn.paged_cache_update``. The order is scale,
    softcap, slopes, bias. A query that sees no position gives zeros.
    """
    named = dict(zip(attrs.extras, extras, strict=True))
    return topi.cached_attention(q, k_cache, v_cache, lengths, attrs.how, named)


@cached_attention.expansion
def _expansion(call: Call) -> Expr | None:
    attrs = attrs_of(call, CachedAttentionAttrs)
    return expand_cached_attention(call, attrs.how, attrs.extras)


def attend_cache(
    q: Any, k_cache: Any, v_cache: Any, lengths: Any, *, span: Span | None = None,
    bias: Any = None, alibi_slopes: Any = None, block_table: Any = None, **attrs: Any,
) -> Call:
    """The call of ``nn.cached_attention`` with the extra operands that are not ``None``.

    ``attrs``: ``scale``, ``causal``, ``window``, ``softcap``, ``ring``.
    """
    if "extras" in attrs:
        raise AttrsError("extras follow from the operands",
                         expected=f"the operands {', '.join(EXTRAS)} by name")
    given = {"bias": bias, "alibi_slopes": alibi_slopes, "block_table": block_table}
    extras = {name: as_expr(x) for name, x in given.items() if x is not None}
    operands: tuple[Expr, ...] = (*map(as_expr, (q, k_cache, v_cache, lengths)),
                                  Tuple(tuple(extras.values())))
    record = CachedAttentionAttrs.make({**attrs, "extras": tuple(extras)})
    return Call(cached_attention, operands, record, span=span or Span.of_caller())


def _reference(
    q: np.ndarray, k_cache: np.ndarray, v_cache: np.ndarray, lengths: np.ndarray,
    operands: tuple[np.ndarray, ...] = (), *, extras: tuple[str, ...] = (), **attrs: Any,
) -> np.ndarray:
    how, named = topi.CachedAttention(**attrs), dict(zip(extras, operands, strict=True))
    batch, heads, count, _ = q.shape
    result = np.zeros((*q.shape[:-1], v_cache.shape[-1]), q.dtype)
    for b in range(batch):
        length = max(int(lengths[b]), 0)
        k, v, positions = _valid_rows(k_cache, v_cache, b, length, how, named.get("block_table"))
        group = heads // max(k.shape[0], 1)
        own = int(lengths[b]) - count + np.arange(count)
        for h in range(heads):
            scores = how.scale * (q[b, h].astype(np.float64) @ k[h // group].T)
            if how.softcap:
                scores = how.softcap * np.tanh(scores / how.softcap)
            if "alibi_slopes" in named:
                scores += float(named["alibi_slopes"][h]) * (positions[None] - own[:, None])
            if "bias" in named:
                scores += _bias_rows(named["bias"], (batch, heads, count), b, h,
                                     positions % max(_slots(k_cache, how, positions), 1))
            scores[~_visible(positions[None], own[:, None], how)] = -np.inf
            result[b, h] = _weighted(scores, v[h // group])
    return result


def _slots(cache: np.ndarray, how: topi.CachedAttention, positions: np.ndarray) -> int:
    return cache.shape[2] if how.ring else int(positions.max(initial=0)) + 1


def _valid_rows(
    k: np.ndarray, v: np.ndarray, b: int, length: int, how: topi.CachedAttention,
    table: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys and values of the valid positions, (heads, positions, dim), and the positions."""
    size = k.shape[2]
    if table is not None:
        positions = np.arange(min(length, table.shape[1] * size))
        blocks = np.clip(table[b, positions // size], 0, k.shape[0] - 1)
        rows = [x[blocks, :, positions % size].swapaxes(0, 1) for x in (k, v)]
    else:
        positions = np.arange(max(length - size, 0) if how.ring else 0,
                              length if how.ring else min(length, size))
        rows = [x[b, :, positions % max(size, 1)].swapaxes(0, 1) if len(positions)
                else x[b, :, :0] for x in (k, v)]
    return rows[0].astype(np.float64), rows[1].astype(np.float64), positions


def _bias_rows(bias: np.ndarray, shape: tuple[int, int, int], b: int, h: int, slots: np.ndarray
               ) -> np.ndarray:
    full = np.broadcast_to(bias, (*shape, bias.shape[-1]))[b, h].astype(np.float64)
    if bias.shape[-1] == 1:
        return full
    added = np.zeros((shape[2], len(slots)))
    inside = slots < bias.shape[-1]
    added[:, inside] = full[:, slots[inside]]
    return added


def _visible(positions: np.ndarray, own: np.ndarray, how: topi.CachedAttention) -> np.ndarray:
    visible = np.ones(np.broadcast_shapes(positions.shape, own.shape), bool)
    if how.causal:
        visible &= positions <= own
    if how.window is not None:
        visible &= positions > own - how.window
    return visible


def _weighted(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.maximum(top, np.finfo(np.float64).min))
    total = powers.sum(axis=-1, keepdims=True)
    return np.divide(powers @ v, total, out=np.zeros((len(scores), v.shape[-1])),
                     where=total != 0)


_CACHES = ((2, 2, 6, 4), (2, 2, 6, 5))
_LENGTHS = np.array([3, 6])
cached_attention.spec(
    _reference,
    op_case((2, 2, 2, 4), *_CACHES, _LENGTHS, [(6,), np.array([0.5, 0.25], np.float32)],
            extras=("bias", "alibi_slopes")),
    op_case((2, 4, 2, 4), *_CACHES, _LENGTHS, [], scale=0.5),
    op_case((2, 2, 1, 4), *_CACHES, np.array([1, 9], np.int32), []),
    op_case((2, 2, 3, 4), *_CACHES, np.array([0, 2]), []),
    op_case((2, 2, 3, 4), *_CACHES, _LENGTHS, [], causal=False, softcap=0.7),
    op_case((2, 2, 2, 4), *_CACHES, np.array([5, 14]), [], ring=True),
    op_case((2, 2, 2, 4), *_CACHES, np.array([5, 14]), [], ring=True, window=3),
    op_case((2, 2, 2, 4), *_CACHES, _LENGTHS, [(2, 1, 2, 5)], extras=("bias",), window=4),
    op_case((2, 2, 2, 4), (5, 1, 3, 4), (5, 1, 3, 4), np.array([2, 7]),
            [np.array([[4, 0, 9], [1, 3, 0]])], extras=("block_table",)),
    op_case((1, 2, 1, 16), (1, 1, 40, 16), (1, 1, 40, 16), np.array([37]), [],
            dtypes=("float32", "float16", "float16"), scale=0.25),
)


@cached_attention.batching
def _attend_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """Queries, caches and lengths have the axis N; a bias and a block table may have it or not."""
    extras = set(attrs_of(call, CachedAttentionAttrs).extras)
    if extras & {"bias", "block_table"}:
        return None
    return merging(0, 1, 2, 3)(call, args, is_batched, size)
