"""GroupQueryAttention of ONNX Runtime: grouped heads over a key and value cache.

Letters of the shapes: B batch, N heads of queries, M heads of keys, S new positions, P positions of
the past buffers, T total positions, D size of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.onnx.contrib.heads import (
    Visibility,
    attend,
    column,
    merge_heads,
    scale_of,
    split_heads,
)
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.contrib.norms import rms_norm
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import known_sizes, positions, reshape_to
from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir import Constant, Dim, Expr, Tuple, dim_add, dim_max, dim_sub, dims_equal, int64
from weft.support.dataclass import dataclass
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


_INPUTS = {"query": 0, "key": 1, "value": 2, "past_key": 3, "past_value": 4, "seqlens_k": 5,
           "total_sequence_length": 6, "cos_cache": 7, "sin_cache": 8, "position_ids": 9,
           "attention_bias": 10, "q_norm_weight": 14, "k_norm_weight": 15}
_REFUSED = {"head_sink": 11, "k_scale": 12, "v_scale": 13}


@dataclass(frozen=True)
class _Rows:
    """The new rows, split into heads, and where they start in the cache.

    ``start`` (B,) is the position of the first new row of each batch row; ``lengths`` (B,) the
    number of positions with the new rows.
    """

    q: Expr
    k: Expr
    v: Expr
    start: Expr
    lengths: Expr


@converts(contrib("GroupQueryAttention"), outputs=3, attributes=(
    "causal", "do_rotary", "local_window_size", "num_heads", "kv_num_heads", "qk_norm_epsilon",
    "rotary_interleaved", "scale", "softcap"), only={
    "k_quant_type": ("NONE",), "kv_cache_bit_width": (0,), "qk_output": (0,),
    "sliding_window_cache": (0,), "smooth_softmax": (-1, 0), "v_quant_type": ("NONE",)})
def group_query_attention(node: Node) -> Sequence[Expr]:
    """Write the new keys and values into the past ones, and attend to all of them.

    ``seqlens_k`` is data: the number of valid positions of each batch row minus one. The buffers
    of the results have ``total_sequence_length`` positions, or those of the past if they are more
    (a buffer that past and present share). If this input is data, the declared sizes of the results
    say whether they share.
    """
    for name, index in _REFUSED.items():
        if node.has_input(index):
            raise UnsupportedModelError(f"GroupQueryAttention with input {name!r}",
                                        where=node.span)
    rows = _rows(node)
    window = node.attrs.integer("local_window_size", -1)
    softcap = node.attrs.number("softcap", 0.0)
    bias = _optional(node, "attention_bias")
    causal = node.attrs.flag("causal", True)
    width = tensor_type(rows.q).shape[-1]
    scale = scale_of(node, width if isinstance(width, int) else 1)
    if not node.has_input(_INPUTS["past_key"]) and bias is None and window < 0 and not softcap:
        # All rows start at position 0, so the mask does not depend on data.
        result = attend(node, rows.q, rows.k, rows.v, Visibility(scale=scale, causal=causal))
        return merge_heads(node, result), rows.k, rows.v
    keys, values = _caches(node, rows)
    extras = Tuple(() if bias is None else (bias,), span=node.span)
    result = node.call(
        op.nn.cached_attention, rows.q, keys, values, rows.lengths, extras, scale=scale,
        causal=causal, window=window if window > 0 else None, softcap=softcap,
        extras=() if bias is None else ("bias",))
    return merge_heads(node, result), keys, values


def _optional(node: Node, name: str) -> Expr | None:
    index = _INPUTS[name]
    return node.input(index) if node.has_input(index) else None


def _rows(node: Node) -> _Rows:
    q, k, v = _projections(node)
    batch, _, length, _ = tensor_type(q).shape
    given = reshape_to(node, node.input(_INPUTS["seqlens_k"]), (batch,))
    given = cast_to(node, given, int64)
    # In a batch of prompts, shorter ones start at 0 too; their last rows are padding.
    new = node.size(length)
    start = node.call(op.subtract, node.call(op.add, given, node.constant(1, "int64")), new)
    start = node.call(op.maximum, start, node.constant(0, "int64"))
    lengths = node.call(op.add, start, new)
    weights = [_optional(node, f"{letter}_norm_weight") for letter in "qk"]
    epsilon = node.attrs.number("qk_norm_epsilon", 1e-6)
    q, k = (x if weight is None else rms_norm(node, x, weight, epsilon)
            for x, weight in zip((q, k), weights, strict=True))
    if node.attrs.flag("do_rotary"):
        indices = _optional(node, "position_ids")
        if indices is None:
            indices = node.call(op.add, column(node, start), positions(node, length))
        tables = [node.input(_INPUTS[name]) for name in ("cos_cache", "sin_cache")]
        interleaved = node.attrs.flag("rotary_interleaved")
        q, k = (rotate(node, x, indices, *tables, interleaved=interleaved) for x in (q, k))
    return _Rows(q, k, v, start, lengths)


def _projections(node: Node) -> tuple[Expr, Expr, Expr]:
    """Query, key and value split into heads; without a key, the query holds all three."""
    heads, shared = node.attrs.integer("num_heads", 0), node.attrs.integer("kv_num_heads", 0)
    if heads < 1 or shared < 1 or heads % shared:
        raise node.fail("the heads do not divide into groups", got=f"{heads} and {shared}")
    if node.has_input(1):
        q, k, v = (node.input(i) for i in range(3))
    else:
        total = node.shape()[-1]
        if not isinstance(total, int) or total % (heads + 2 * shared):
            raise node.fail("the heads do not divide the packed width", got=str(total))
        width = total // (heads + 2 * shared)
        parts = node.call(op.split, node.input(0), axis=2, indices_or_sections=(
            heads * width, (heads + shared) * width))
        q, k, v = (node.field(parts, i) for i in range(3))
    return split_heads(node, q, heads), split_heads(node, k, shared), split_heads(node, v, shared)


def _caches(node: Node, rows: _Rows) -> tuple[Expr, Expr]:
    if not node.has_input(_INPUTS["past_key"]):
        return rows.k, rows.v
    capacity = _total(node)
    keys, values = (
        node.call(op.nn.cache_update, _extended(node, node.input(_INPUTS[name]), capacity), new,
                  rows.start)
        for name, new in (("past_key", rows.k), ("past_value", rows.v))
    )
    return keys, values


def _total(node: Node) -> Dim:
    """The number of positions in the results; at least those of the past.

    ``total_sequence_length`` may be data. The past and the new positions are then all there is,
    unless the model declares that the result has the size of the past: a buffer that both share.
    """
    index = _INPUTS["total_sequence_length"]
    if isinstance(node.inputs[index], (Constant, ShapeValue)):
        return node.dim(index, "total_sequence_length")
    held, declared = node.shape(_INPUTS["past_key"])[2], (*node.declared, None, None)[1]
    if declared is None or len(declared) != 4:
        raise UnsupportedModelError(
            "GroupQueryAttention with a total_sequence_length that is data", where=node.span,
            expected="a constant, a size, or declared sizes of the present keys and values",
            help="it decides the shape of the present keys and values")
    if declared[2] is not None and dims_equal(declared[2], held):
        return held
    return dim_add(held, node.shape()[1])


def _extended(node: Node, past: Expr, total: Dim) -> Expr:
    """``past`` (B, M, P, D) with free positions after it, if the total needs them."""
    held = tensor_type(past).shape[2]
    (free,) = known_sizes(node, (dim_sub(dim_max(held, total), held),))
    if free == 0:
        return past
    zero = node.scalar_like(0, past)
    return node.call(op.nn.pad, past, zero, pad_width=((0, 0), (0, 0), (0, free), (0, 0)))
