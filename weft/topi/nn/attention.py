"""Attention by definition: scores, softmax, weighted sum of values."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft import te
from weft.ir.dtype import DType, float32, int64
from weft.tir.expr import PrimExpr, all_of, const, int_value, select
from weft.topi.nn.norm import softmax


def attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None, *, scale: float,
    offset: int | None, fill: float = -math.inf, undefined: str = "nan",
) -> te.Tensor:
    """softmax(scale * q kT, masked) v over the last two axes.

    ``q``: (…, heads, L, D), ``k``: (…, shared heads, S, D), ``v``: (…, shared heads, S, E);
    consecutive heads of ``q`` share a head of ``k`` and ``v``. Query ``l`` sees the keys up to
    ``l + offset``, or all keys if ``offset`` is ``None``. A boolean ``mask`` is true for visible
    keys, a numeric one is added to the scores; it broadcasts to (…, heads, L, S). Hidden scores
    are ``fill``. If the softmax of a query is undefined, the result is NaN; zeros with
    ``undefined`` "zero", or with "zero_if_hidden" if all its scores are minus infinity. Float16
    and bfloat16 are computed in float32.
    """
    dtype = q.dtype if q.dtype.bits > 16 else float32
    scores = _scores(q, k, mask, dtype, scale=scale, offset=offset, fill=fill)
    weights = _weights(scores, undefined)
    n = te.reduce_axis(k.shape[-2], name="n")

    def element(*index: PrimExpr) -> PrimExpr:
        *at, row, column = index
        value = v[(*_shared(at, q, v), n.var, column)].astype(dtype)
        return te.sum(weights[(*at, row, n.var)] * value, n)

    out = te.compute((*q.shape[:-1], v.shape[-1]), element, name="attention")
    if dtype is q.dtype:
        return out
    return te.compute(out.shape, lambda *i: out[i].astype(q.dtype), name="narrow")


def attention_backward(
    dy: te.Tensor, y: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor,
    mask: te.Tensor | None, *,
    scale: float, offset: int | None, fill: float = -math.inf, undefined: str = "nan",
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The gradients of ``attention`` by definition, given its result and the gradient of that.

    With the weights ``p`` and ``dp = dy vT``, that of the scores is ``p * (dp - sum(dy * y))``.
    """
    scores = _scores(q, k, mask, q.dtype, scale=scale, offset=offset, fill=fill)
    weights = _weights(scores, undefined)
    e = te.reduce_axis(v.shape[-1], name="e")

    def product(*index: PrimExpr) -> PrimExpr:
        *at, row, column = index
        return te.sum(dy[(*at, row, e.var)] * v[(*_shared(at, q, v), column, e.var)], e)

    spread = te.compute(scores.shape, product, name="weights_gradient")
    f = te.reduce_axis(v.shape[-1], name="f")
    drift = te.compute(
        scores.shape[:-1], lambda *i: te.sum(dy[(*i, f.var)] * y[(*i, f.var)], f), name="drift")

    def score(*index: PrimExpr) -> PrimExpr:
        value = weights[index] * (spread[index] - drift[index[:-1]]) * const(scale, q.dtype)
        return select(is_visible(mask, offset, index), value, const(0, q.dtype))

    found = te.compute(scores.shape, score, name="scores_gradient")
    m = te.reduce_axis(k.shape[-2], name="m")
    d_query = te.compute(
        q.shape, lambda *i: te.sum(
            found[(*i[:-1], m.var)] * k[(*_shared(list(i[:-2]), q, k), m.var, i[-1])], m),
        name="query_gradient")
    return (d_query, _over_queries(found, q, k, "key_gradient"),
            _over_queries(weights, dy, v, "value_gradient"))


def is_visible(
    mask: te.Tensor | None, offset: int | None, index: tuple[PrimExpr, ...]
) -> PrimExpr:
    """Whether the score at ``index`` is that of a visible key, and not a constant."""
    conditions: list[PrimExpr] = []
    if mask is not None and mask.dtype.is_bool:
        conditions.append(mask[masked_index(mask, index)])
    if offset is not None:
        conditions.append(index[-1] <= index[-2] + const(offset, int64))
    return all_of(*conditions)


def _over_queries(left: te.Tensor, right: te.Tensor, like: te.Tensor, name: str) -> te.Tensor:
    """The sum over queries, and heads that share a key, of ``left[query, key] right[query]``."""
    rows = te.reduce_axis(left.shape[-2], name="row")
    grouped = left.ndim > 2 and int_value(like.shape[-3]) != 0
    size = left.shape[-3] // like.shape[-3] if grouped else const(1)
    member = te.reduce_axis(size, name="member")

    def element(*index: PrimExpr) -> PrimExpr:
        *at, column, inner = index
        if at:
            at[-1] = at[-1] * size + member.var
        return te.sum(left[(*at, rows.var, column)] * right[(*at, rows.var, inner)],
                      axis=[member, rows])

    return te.compute(like.shape, element, name=name)


def _weights(scores: te.Tensor, undefined: str) -> te.Tensor:
    """The softmax of the scores; zeros where ``undefined`` asks for them."""
    weights = softmax(scores, scores.ndim - 1)
    if undefined == "zero":
        return _or_zero(weights, lambda i: te.isnan(weights[i]))
    return _zero_if_hidden(scores, weights) if undefined == "zero_if_hidden" else weights


def _scores(
    q: te.Tensor, k: te.Tensor, mask: te.Tensor | None, dtype: DType, *, scale: float,
    offset: int | None, fill: float,
) -> te.Tensor:
    """The scaled and masked scores, (…, heads, L, S)."""
    d = te.reduce_axis(q.shape[-1], name="d")
    unseen = const(fill, dtype)

    def product(*index: PrimExpr) -> PrimExpr:
        *at, row, column = index
        left = q[(*at, row, d.var)].astype(dtype)
        right = k[(*_shared(at, q, k), column, d.var)].astype(dtype)
        return te.sum(left * right, d)

    products = te.compute((*q.shape[:-1], k.shape[-2]), product, name="scores")

    def masked(*index: PrimExpr) -> PrimExpr:
        score = products[index] * const(scale, dtype)
        if mask is not None:
            here = mask[masked_index(mask, index)]
            score = (select(here, score, unseen) if mask.dtype.is_bool
                     else score + here.astype(dtype))
        if offset is not None:
            score = select(index[-1] <= index[-2] + const(offset, int64), score, unseen)
        return score

    return te.compute(products.shape, masked, name="masked")


def _or_zero(
    weights: te.Tensor, is_undefined: Callable[[tuple[PrimExpr, ...]], PrimExpr]
) -> te.Tensor:
    zero = const(0, weights.dtype)
    return te.compute(weights.shape, lambda *i: select(is_undefined(i), zero, weights[i]),
                      name="weights")


def _zero_if_hidden(scores: te.Tensor, weights: te.Tensor) -> te.Tensor:
    n = te.reduce_axis(scores.shape[-1], name="n")
    top = te.compute(scores.shape[:-1], lambda *i: te.max(scores[(*i, n.var)], n), name="top")
    lowest = const(-math.inf, scores.dtype)
    return _or_zero(weights, lambda i: top[i[:-1]].equal(lowest))


def masked_index(mask: te.Tensor, index: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """The index into a broadcast mask for an index of the scores."""
    own = index[len(index) - mask.ndim:]
    return tuple(const(0) if int_value(size) == 1 else i
                 for size, i in zip(mask.shape, own, strict=True))


def _shared(at: list[PrimExpr], q: te.Tensor, x: te.Tensor) -> tuple[PrimExpr, ...]:
    """The leading indices of keys or values for the leading indices of a query."""
    if not at:
        return ()
    if int_value(x.shape[-3]) == 0:
        return tuple(at)  # nothing is read
    group = q.shape[-3] // x.shape[-3]
    return (*at[:-1], at[-1] if int_value(group) == 1 else at[-1] // group)
