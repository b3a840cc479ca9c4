"""Converters of attention: softmax(q k^T * scale + mask) v."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import op
from weft.frontend.torch.node import Node, dtype_in, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("scaled_dot_product_attention")
def scaled_dot_product_attention(
    node: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, dropout: float,
    is_causal: bool, scale: float | None = None, enable_gqa: bool = False,
) -> Expr:
    """Query (…, heads, L, E), key (…, heads, S, E), value (…, heads, S, V).

    With ``enable_gqa`` several heads of the query share one of key and value. A row that allows
    nothing is all zeros.
    """
    if dropout:
        raise node.unsupported("dropout", help="export the model in eval mode: model.eval()")
    query, key, value = _same_batch(node, (query, key, value), shares_heads=enable_gqa)
    factor = 1 / math.sqrt(shape_in(query)[-1]) if scale is None else scale
    attrs: dict[str, Any] = {"scale": factor, "causal": is_causal, "undefined": "zero_if_hidden"}
    if mask is None:
        return node.call(op.nn.attention, query, key, value, **attrs)
    return node.call(op.nn.masked_attention, query, key, value, _float_or_bool(node, mask),
                     **attrs)


def _same_batch(
    node: Node, operands: tuple[Expr, Expr, Expr], *, shares_heads: bool
) -> tuple[Expr, ...]:
    """Query, key and value of equal leading sizes, but for the heads where they are shared."""
    own = 3 if shares_heads else 2  # trailing axes that do not broadcast
    shapes = [shape_in(x) for x in operands]
    batch = np.broadcast_shapes(*(shape[:-own] for shape in shapes))
    return tuple(
        x if shape[:-own] == batch else node.broadcast(x, (*batch, *shape[-own:]))
        for x, shape in zip(operands, shapes, strict=True))


def _float_or_bool(node: Node, mask: Expr) -> Expr:
    """The mask as the operator takes it: truth values, or numbers to add."""
    dtype = dtype_in(mask)
    return mask if dtype.is_bool or dtype.is_float else node.cast(mask, "float32")


@converts("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    node: Node, query: Expr, key: Expr, value: Expr, dropout: float, is_causal: bool,
    mask: Expr | None = None, scale: float | None = None, *_options: Any,
) -> tuple[Expr]:
    """What torch traces on a CPU; the logarithms of the sums, for gradients, are not computed."""
    return (scaled_dot_product_attention(node, query, key, value, mask, dropout, is_causal,
                                         scale),)
