"""MultiHeadAttention and Attention of ONNX Runtime.

Letters of the shapes: B batch, N heads, S queries, L new keys, P past keys, T = P + L keys, D size
of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.onnx.contrib.heads import (
    Visibility,
    attend,
    column,
    hidden_if,
    merge_heads,
    scale_of,
    split_heads,
)
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.linear import multiplied
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import positions, reshape_to
from weft.ir import Dim, Expr, dim_mul, dims_equal
from weft.support.errors import UnsupportedModelError

_FILTER = -10000.0  # ONNX Runtime's default score of a hidden key


def key_mask(node: Node, mask: Expr, batch: Dim, keys: Dim) -> Expr:
    """Attribute ``mask_filter_value`` where the mask hides a key, else 0.

    The mask is 1 for visible keys, (B, T) or (B, S, T); or it holds the number of visible keys of
    each batch row, (B,) or (3 * B + 2,) with more numbers that are not needed; or the end and
    then the start of the visible keys, (2 * B,).
    """
    score = node.attrs.number("mask_filter_value", _FILTER)
    type_ = tensor_type(mask)
    if type_.ndim == 1:
        return hidden_if(node, _beyond(node, mask, batch, keys), score)
    if type_.ndim > 3:
        raise UnsupportedModelError(f"{node.op} with a mask of rank {type_.ndim}",
                                    where=node.span, expected="rank 1 to 3")
    if dims_equal(type_.shape[-1], keys) is False:
        raise node.fail("the mask does not have the length of the keys", expected=str(keys),
                        got=str(type_))
    hidden = node.call(op.less_equal, mask, node.scalar_like(0, mask))
    shape = (*type_.shape[:1], 1, *((1,) if type_.ndim == 2 else ()), *type_.shape[1:])
    return hidden_if(node, reshape_to(node, hidden, shape), score)


def _beyond(node: Node, ends: Expr, batch: Dim, keys: Dim) -> Expr:
    """True for keys from the end on, and before the start, of each batch row; (B, 1, 1, T)."""
    numbers = positions(node, keys, tensor_type(ends).dtype)
    size, hidden = tensor_type(ends).shape[0], None
    if size != batch:
        if not isinstance(batch, int) or size not in (2 * batch, 3 * batch + 2):
            raise node.fail("the mask does not fit the batch", expected=f"{batch} numbers",
                            got=f"{size} numbers")
        if size == 2 * batch:
            starts = _part(node, ends, batch, 2 * batch)
            hidden = node.call(op.less, numbers, column(node, starts))
        ends = _part(node, ends, 0, batch)
    after = node.call(op.greater_equal, numbers, column(node, ends))
    hidden = after if hidden is None else node.call(op.logical_or, hidden, after)
    return reshape_to(node, hidden, (batch, 1, 1, keys))


def _part(node: Node, values: Expr, begin: int, end: int) -> Expr:
    return node.call(op.strided_slice, values, begin=(begin,), end=(end,), strides=(1,), axes=(0,))


_MASKING = ("mask_filter_value", "num_heads", "scale", "unidirectional")
Three = tuple[Expr, Expr, Expr]


@converts(contrib("MultiHeadAttention"), attributes=_MASKING, outputs=3)
def multi_head_attention(node: Node) -> Sequence[Expr]:
    """Inputs: query, key, value, bias, key padding mask, attention bias, past key, past value.

    The outputs are the result, (B, S, N * E), and the keys and values with the past before them.
    """
    if node.has_input(8) or node.has_input(9):
        raise UnsupportedModelError("MultiHeadAttention with a shared buffer or beams",
                                    where=node.span, expected="past keys without free space")
    heads = node.attrs.integer("num_heads", 0)
    q, k, v = _projections(node, heads)
    past: Dim = 0
    if node.has_input(6) and node.has_input(7):
        past = node.shape(6)[2]
        k = node.tuple_call(op.concatenate, [node.input(6), k], axis=2)
        v = node.tuple_call(op.concatenate, [node.input(7), v], axis=2)
    mask = node.input(4) if node.has_input(4) else None
    result = _attended(node, (q, k, v), mask, node.input(5) if node.has_input(5) else None, past)
    return result, k, v


@converts(contrib("Attention"), outputs=2,
          attributes=(*_MASKING, "do_rotary", "past_present_share_buffer", "qkv_hidden_sizes"))
def attention(node: Node) -> Sequence[Expr]:
    """Inputs: x, weights, bias, mask, past, attention bias.

    The weights of query, key and value are joined along the last axis. The outputs are the result
    and the keys and values with the past before them, (2, B, N, T, D).
    """
    if node.attrs.flag("do_rotary") or node.attrs.flag("past_present_share_buffer"):
        raise UnsupportedModelError("Attention with do_rotary or past_present_share_buffer",
                                    where=node.span, expected="0 for both")
    heads, batch = node.attrs.integer("num_heads", 0), node.shape()[0]
    joined = multiplied(node, node.input(0), node.input(1))
    if node.has_input(2):
        joined = node.call(op.add, joined, node.input(2))
    width = tensor_type(joined).shape[-1]
    assert isinstance(width, int)
    sizes = node.attrs.integers("qkv_hidden_sizes") or (width // 3,) * 3
    q, k, v = (split_heads(node, x, heads) for x in _split(node, joined, sizes))
    past: Dim = 0
    if node.has_input(4):
        past = node.shape(4)[3]
        before = node.call(op.split, node.input(4), indices_or_sections=2, axis=0)
        shape = (batch, *node.shape(4)[2:])
        k, v = (
            node.tuple_call(op.concatenate,
                            [reshape_to(node, node.field(before, i), shape), new], axis=2)
            for i, new in enumerate((k, v))
        )
    mask = node.input(3) if node.has_input(3) else None
    result = _attended(node, (q, k, v), mask, node.input(5) if node.has_input(5) else None, past)
    if node.outputs_read < 2:
        return (result,)
    return result, node.tuple_call(op.stack, [k, v], axis=0)


def _attended(node: Node, qkv: Three, mask: Expr | None, bias: Expr | None, past: Dim) -> Expr:
    q, k, v = qkv
    batch, keys = tensor_type(q).shape[0], tensor_type(k).shape[2]
    width = tensor_type(q).shape[-1]
    assert isinstance(width, int)
    added = [] if mask is None else [key_mask(node, mask, batch, keys)]
    added += [] if bias is None else [bias]
    how = Visibility(scale=scale_of(node, width), causal=node.attrs.flag("unidirectional"),
                     past=past, added=added)
    return merge_heads(node, attend(node, q, k, v, how))


def _projections(node: Node, heads: int) -> Three:
    """Query, key and value with their biases, (B, N, S or L, D)."""
    if node.rank() == 5:
        q, k, v = (_unpacked(node, node.input(0), i) for i in range(3))
    elif node.rank(1) == 5:
        q = node.input(0)
        k, v = (_unpacked(node, node.input(1), i) for i in range(2))
    else:
        q, k, v = (node.input(i) for i in range(3))
    if tensor_type(k).ndim == 4:  # keys and values of an encoder, split into heads
        return split_heads(node, _biased(node, q, 0), heads), k, v
    widths = [tensor_type(x).shape[-1] for x in (q, k, v)]
    starts = (0, widths[0], widths[0] + widths[1])
    q, k, v = (split_heads(node, _biased(node, x, start), heads)
               for x, start in zip((q, k, v), starts, strict=True))
    return q, k, v


def _unpacked(node: Node, packed: Expr, index: int) -> Expr:
    """Item ``index`` of axis 3 of (B, S, N, count, D), as (B, S, N * D)."""
    batch, length, heads, _, width = tensor_type(packed).shape
    item = node.call(op.strided_slice, packed, begin=(index,), end=(index + 1,), strides=(1,),
                     axes=(3,))
    return reshape_to(node, item, (batch, length, dim_mul(heads, width)))


def _biased(node: Node, x: Expr, start: Dim) -> Expr:
    """``x`` plus the part of the bias from ``start`` on that has the width of ``x``."""
    if not node.has_input(3):
        return x
    width = tensor_type(x).shape[-1]
    if not isinstance(width, int) or not isinstance(start, int):
        raise UnsupportedModelError(f"{node.op} of a symbolic hidden size", where=node.span)
    part = node.call(op.strided_slice, node.input(3), begin=(start,), end=(start + width,),
                     strides=(1,), axes=(0,))
    return node.call(op.add, x, part)


def _split(node: Node, joined: Expr, sizes: Sequence[int]) -> list[Expr]:
    axis = tensor_type(joined).ndim - 1
    if len(sizes) != 3 or sum(sizes) != tensor_type(joined).shape[-1]:
        raise node.fail("attribute 'qkv_hidden_sizes' does not match the weights",
                        expected=f"3 sizes that sum to {tensor_type(joined).shape[-1]}",
                        got=str(tuple(sizes)))
    parts = node.call(op.split, joined, indices_or_sections=(sizes[0], sizes[0] + sizes[1]),
                      axis=axis)
    return [node.field(parts, i) for i in range(3)]
