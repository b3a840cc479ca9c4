"""Rotary position embeddings of ONNX Runtime (RoFormer, Su et al. 2021)."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.contrib.heads import column, merge_heads, split_heads
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.positions import positions
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError


@converts(contrib("RotaryEmbedding"), attributes=(
    "interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"))
def rotary_embedding(node: Node) -> Expr:
    """Inputs: x (B, S, N * D) or (B, N, S, D), positions, tables of cosines and sines.

    The positions are (B, S), or (1,): that of the first query. ``is_packed_batching`` concerns
    the memory of other devices alone.
    """
    if node.attrs.number("scale", 1.0) != 1.0:
        raise UnsupportedModelError("RotaryEmbedding with a scale", where=node.span, expected="1")
    x, merged = node.input(0), node.rank() == 3
    if merged:
        x = split_heads(node, x, _heads(node))
    indices = node.input(1)
    if node.rank(1) == 1:
        steps = positions(node, tensor_type(x).shape[2], tensor_type(indices).dtype)
        indices = node.call(op.expand_dims, node.call(op.add, steps, indices), axis=0,
                            num_newaxis=1)
    rotated = rotate(node, x, indices, node.input(2), node.input(3),
                     interleaved=node.attrs.flag("interleaved"))
    return merge_heads(node, rotated) if merged else rotated


def _heads(node: Node) -> int:
    """Attribute ``num_heads``; without it, a table row is half of a head."""
    heads = node.attrs.integer("num_heads", 0)
    if heads:
        return heads
    width, half = node.shape()[-1], node.shape(2)[-1]
    if not isinstance(width, int) or not isinstance(half, int) or not half:
        raise UnsupportedModelError("RotaryEmbedding of a symbolic width", where=node.span)
    return width // (2 * half)


def rotate(node: Node, x: Expr, indices: Expr, cosines: Expr, sines: Expr, *,
           interleaved: bool) -> Expr:
    """Rotate pairs of x (B, N, S, D) by the angles of ``indices`` (B or 1, S).

    The tables are (positions, R / 2); the last D - R elements of a head stay as they are. Pairs
    are neighbours if ``interleaved``, else elements i and i + R / 2.
    """
    width, half = tensor_type(x).shape[-1], tensor_type(cosines).shape[-1]
    if not isinstance(width, int) or not isinstance(half, int) or 2 * half > width:
        raise node.fail("the tables are wider than a head", expected=f"at most {width} / 2",
                        got=str(half))
    cos, sin = (
        node.call(op.expand_dims, node.call(op.take, table, indices, axis=0, mode="clip"),
                  axis=1, num_newaxis=1)
        for table in (cosines, sines)
    )
    selected = _part(node, x, 0, 2 * half)
    batch, heads, length, _ = tensor_type(x).shape
    if interleaved:
        pairs = reshape_to(node, selected, (batch, heads, length, half, 2))
        first, second = (node.call(op.squeeze, _part(node, pairs, i, i + 1), axis=(4,))
                         for i in (0, 1))
    else:
        first, second = _part(node, selected, 0, half), _part(node, selected, half, 2 * half)
    real = node.call(op.subtract, node.call(op.multiply, first, cos),
                     node.call(op.multiply, second, sin))
    imaginary = node.call(op.add, node.call(op.multiply, first, sin),
                          node.call(op.multiply, second, cos))
    if interleaved:
        joined = node.tuple_call(op.concatenate, [column(node, real), column(node, imaginary)],
                                 axis=4)
        parts = [reshape_to(node, joined, (batch, heads, length, 2 * half))]
    else:
        parts = [real, imaginary]
    if 2 * half < width:
        parts.append(_part(node, x, 2 * half, width))
    return parts[0] if len(parts) == 1 else node.tuple_call(op.concatenate, parts, axis=3)


def _part(node: Node, x: Expr, begin: int, end: int) -> Expr:
    """Elements ``begin`` to ``end`` of the last axis."""
    axis = tensor_type(x).ndim - 1
    if (begin, end) == (0, tensor_type(x).shape[axis]):
        return x
    return node.call(op.strided_slice, x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))
