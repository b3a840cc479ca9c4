"""Attention over heads, as ONNX Runtime's attention operators define it.

Letters of the shapes: B batch, N heads, S queries, T keys, D size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.ops.linear import multiplied, transposed
from weft.frontend.onnx.reshaping import positions, reshape_to
from weft.ir import Dim, DType, Expr, dim_add, dim_mul, float32
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """The keys that queries see, and how scores become weights.

    ``past`` is the number of keys before the first query if ``causal``. ``added`` are numbers to
    add to the scores, of shapes that broadcast to (B, N, S, T). ``softcap`` bounds the scores by
    softcap * tanh(score / softcap) before masks are added; 0 is no bound.
    """

    scale: float
    causal: bool = False
    past: Dim = 0
    added: Sequence[Expr] = ()
    softcap: float = 0.0


def scale_of(node: Node, width: int) -> float:
    """Attribute ``scale``; 0 or none is 1 / sqrt(size of a head)."""
    given = node.attrs.number("scale", 0.0)
    return given or 1 / math.sqrt(width)


def split_heads(node: Node, x: Expr, heads: int) -> Expr:
    """(B, S, N * D) as (B, N, S, D)."""
    batch, length, width = tensor_type(x).shape
    if not isinstance(width, int) or heads < 1 or width % heads:
        raise node.fail("the heads do not divide the hidden size",
                        expected=f"a multiple of {heads}", got=str(width))
    rows = reshape_to(node, x, (batch, length, heads, width // heads))
    return node.call(op.transpose, rows, axes=(0, 2, 1, 3))


def merge_heads(node: Node, x: Expr) -> Expr:
    """(B, N, S, D) as (B, S, N * D)."""
    batch, heads, length, width = tensor_type(x).shape
    rows = node.call(op.transpose, x, axes=(0, 2, 1, 3))
    return reshape_to(node, rows, (batch, length, dim_mul(heads, width)))


def attend(node: Node, q: Expr, k: Expr, v: Expr, how: Visibility) -> Expr:
    """Attention of q (B, N, S, D) to k (B, M, T, D), v (B, M, T, E); M divides N."""
    fixed = isinstance(how.past, int)
    if how.softcap:
        return _capped(node, q, k, v, how)
    causal = {"causal": how.causal, "offset": how.past} if fixed and how.causal else {}
    added = list(how.added)
    if how.causal and not fixed:
        added.append(_causal_mask(node, q, k, how.past))
    if not added:
        return node.call(op.nn.attention, q, k, v, scale=how.scale, **causal)
    return node.call(op.nn.masked_attention, q, k, v, total_of(node, added), scale=how.scale,
                     **causal)


def total_of(node: Node, added: Sequence[Expr]) -> Expr:
    """The sum of the masks, float32."""
    first, *others = (cast_to(node, mask, float32) for mask in added)
    for mask in others:
        first = node.call(op.add, first, mask)
    return first


def hidden_if(node: Node, hidden: Expr, score: float, dtype: DType = float32) -> Expr:
    """A number to add to scores: ``score`` where ``hidden`` is true, else 0."""
    return node.call(op.where, hidden, node.constant(score, dtype), node.constant(0, dtype))


def column(node: Node, values: Expr) -> Expr:
    """A vector as a column, (n, 1)."""
    return node.call(op.expand_dims, values, axis=tensor_type(values).ndim, num_newaxis=1)


def _causal_mask(node: Node, q: Expr, k: Expr, past: Dim) -> Expr:
    """Minus infinity where key t is after query s: t > past + s, (S, T)."""
    last = positions(node, dim_add(past, tensor_type(q).shape[-2]), first=past)
    keys = positions(node, tensor_type(k).shape[-2])
    return hidden_if(node, node.call(op.greater, keys, column(node, last)), -math.inf)


def _capped(node: Node, q: Expr, k: Expr, v: Expr, how: Visibility) -> Expr:
    """Attention whose scores are bounded; the heads of a group are rows of one matmul."""
    batch, heads, length, width = tensor_type(q).shape
    shared, keys = tensor_type(k).shape[1:3]
    assert isinstance(heads, int)
    assert isinstance(shared, int)
    dtype = tensor_type(q).dtype
    q, k, v = (cast_to(node, x, float32) for x in (q, k, v))
    stacked = reshape_to(node, q, (batch, shared, dim_mul(heads // shared, length), width))
    scores = multiplied(node, stacked, transposed(node, k))
    bound = node.scalar_like(how.softcap, scores)
    scores = node.call(op.multiply, scores, node.scalar_like(how.scale / how.softcap, scores))
    scores = node.call(op.multiply, node.call(op.tanh, scores), bound)
    scores = reshape_to(node, scores, (batch, heads, length, keys))
    masks = list(how.added)
    if how.causal:
        masks.append(_causal_mask(node, q, k, how.past))
    if masks:
        scores = node.call(op.add, scores, total_of(node, masks))
    weights = node.call(op.nn.softmax, scores, axis=3)
    weights = reshape_to(node, weights, (batch, shared, dim_mul(heads // shared, length), keys))
    result = multiplied(node, weights, v)
    result = reshape_to(node, result, (batch, heads, length, tensor_type(v).shape[-1]))
    return cast_to(node, result, dtype)
