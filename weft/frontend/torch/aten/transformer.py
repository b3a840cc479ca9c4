"""Converters of the fused operators that torch.nn uses for transformer layers at inference."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.torch.aten.linear import linear
from weft.frontend.torch.aten.norm import layer_norm
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr
from weft.op.composites import activations

# torch's types of masks (L, S) and (N, S); other masks have the shape of the scores.
_BY_QUERY, _BY_KEY = 0, 1


@converts("_native_multi_head_attention")
def multi_head_attention(
    node: Node, query: Expr, key: Expr, value: Expr, width: int, heads: int, weight: Expr,
    bias: Expr, out_weight: Expr, out_bias: Expr, mask: Expr | None = None,
    need_weights: bool = True, average_weights: bool = True, mask_type: int | None = None,
) -> tuple[Expr, Expr | None]:
    """Query (N, L, width), key and value (N, S, width); the mask is true at hidden positions.

    The second result holds the weights (N, heads, L, S) or their mean over heads (N, L, S).
    """
    projected = [_projected(node, x, i, width, heads, weight, bias)
                 for i, x in enumerate((query, key, value))]
    if mask is not None:
        mask = _hidden(node, mask, mask_type)
    if need_weights:
        weights = _weights(node, projected[0], projected[1], mask)
        mixed = _stacked(node, weights, projected[2], transpose_b=False)
    else:
        weights, mixed = None, _attention(node, projected, mask)
    batch, _, rows, _ = shape_in(mixed)
    joined = node.reshape(node.transpose(mixed, (0, 2, 1, 3)), (batch, rows, width))
    if weights is not None and average_weights:
        weights = node.call(op.mean, weights, axis=(1,), keepdims=False)
    return linear(node, joined, out_weight, out_bias), weights


@converts("_transformer_encoder_layer_fwd")
def encoder_layer(
    node: Node, x: Expr, width: int, heads: int, qkv_weight: Expr, qkv_bias: Expr,
    out_weight: Expr, out_bias: Expr, use_gelu: bool, norm_first: bool, epsilon: float,
    *rest: Any,
) -> Expr:
    """Attention and feed-forward blocks with residuals, with layer norm before or after each."""
    norm_1, norm_2, inner, outer = ((rest[i], rest[i + 1]) for i in (0, 2, 4, 6))
    mask, mask_type = rest[8:10]

    def norm(values: Expr, scale: tuple[Expr, Expr]) -> Expr:
        return layer_norm(node, values, (width,), *scale, epsilon)

    def attend(values: Expr) -> Expr:
        return multi_head_attention(node, values, values, values, width, heads, qkv_weight,
                                    qkv_bias, out_weight, out_bias, mask, False, False,
                                    mask_type)[0]

    def feed(values: Expr) -> Expr:
        hidden = linear(node, values, *inner)
        active = node.composed(activations.gelu, hidden) if use_gelu \
            else node.call(op.nn.relu, hidden)
        return linear(node, active, *outer)

    if norm_first:
        x = node.call(op.add, x, attend(norm(x, norm_1)))
        return node.call(op.add, x, feed(norm(x, norm_2)))
    x = norm(node.call(op.add, x, attend(x)), norm_1)
    return norm(node.call(op.add, x, feed(x)), norm_2)


def _projected(node: Node, x: Expr, part: int, width: int, heads: int, weight: Expr, bias: Expr
               ) -> Expr:
    """Query, key or value (N, heads, rows, width / heads), from one third of weight and bias."""
    own = [node.slice(w, 0, part * width, (part + 1) * width) for w in (weight, bias)]
    batch, rows, _ = shape_in(x)
    split = node.reshape(linear(node, x, *own), (batch, rows, heads, width // heads))
    return node.transpose(split, (0, 2, 1, 3))


def _hidden(node: Node, mask: Expr, mask_type: int | None) -> Expr:
    """The mask, true at hidden positions, in a shape that broadcasts to (N, heads, L, S)."""
    mask, shape = node.cast(mask, "bool"), shape_in(mask)
    if mask_type == _BY_KEY and rank_of(mask) == 2:
        return node.reshape(mask, (shape[0], 1, 1, shape[1]))
    if mask_type == _BY_QUERY and rank_of(mask) == 2:
        return node.reshape(mask, (1, 1, *shape))
    if rank_of(mask) == 4:
        return mask
    raise node.unsupported(f"a mask of type {mask_type} and rank {rank_of(mask)}")


def _attention(node: Node, projected: list[Expr], mask: Expr | None) -> Expr:
    attrs = {"scale": 1 / math.sqrt(shape_in(projected[0])[-1])}
    if mask is None:
        return node.call(op.nn.attention, *projected, **attrs)
    return node.call(op.nn.masked_attention, *projected, node.call(op.logical_not, mask), **attrs)


def _weights(node: Node, query: Expr, key: Expr, mask: Expr | None) -> Expr:
    """The softmax of scaled and masked scores."""
    scale = node.scalar_like(1 / math.sqrt(shape_in(query)[-1]), query)
    scores = _stacked(node, node.call(op.multiply, query, scale), key, transpose_b=True)
    if mask is not None:
        lowest = node.scalar_like(-math.inf, scores)
        scores = node.call(op.where, node.broadcast(mask, shape_in(scores)), lowest, scores)
    return node.call(op.nn.softmax, scores, axis=3)


def _stacked(node: Node, a: Expr, b: Expr, *, transpose_b: bool) -> Expr:
    """Batched matmul of operands (N, heads, rows, columns); 16-bit floats are summed in float32."""
    dtype, batch = dtype_in(a), shape_in(a)[:2]
    wide = "float32" if dtype.bits < 32 else dtype
    stacks = [node.cast(node.reshape(x, (math.prod(batch), *shape_in(x)[2:])), wide)
              for x in (a, b)]
    product = node.call(op.nn.batch_matmul, *stacks, transpose_a=False, transpose_b=transpose_b)
    return node.cast(node.reshape(product, (*batch, *shape_in(product)[1:])), dtype)
