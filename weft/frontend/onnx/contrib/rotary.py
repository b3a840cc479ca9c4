"""Rotary position embeddings of ONNX Runtime (RoFormer, Su et al. 2021)."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.contrib.heads import merge_heads, split_heads
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import positions
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
    """Rotate pairs of x (B, N, S, D) by the angles of the positions ``indices`` (B or 1, S).

    The tables are (positions, pairs). Pairs are neighbours if ``interleaved``, else elements i
    and i + pairs; elements after the last pair are not rotated.
    """
    return node.call(op.nn.rotary_embedding, x, indices, cosines, sines, axis=2,
                     interleaved=interleaved)
