"""Reductions, running sums, and the order of elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.tflite.node import Node
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Constant, Expr
from weft.ir.op import Op

_REDUCTIONS: dict[str, Op] = {
    "MEAN": op.mean, "SUM": op.sum, "REDUCE_MAX": op.max, "REDUCE_MIN": op.min,
    "REDUCE_PROD": op.prod, "REDUCE_ANY": op.any, "REDUCE_ALL": op.all}


@converts(*_REDUCTIONS)
def reduce(node: Node) -> Expr:
    axes = node.axes(tuple(dict.fromkeys(a % max(node.rank(), 1)
                                         for a in node.ints(1, "the axes"))), node.rank())
    if not axes:
        return node.input(0)
    x, dtype = node.input(0), node.dtype()
    made = node.call(_REDUCTIONS[node.op], x, axis=axes, keepdims=bool(node.option("KeepDims")))
    return node.cast(made, dtype)


@converts("ARG_MAX", "ARG_MIN")
def arg_reduce(node: Node) -> Expr:
    operator: Op = op.argmax if node.op == "ARG_MAX" else op.argmin
    return node.call(operator, node.input(0), dtype=node.result_dtype(),
                     axis=(node.axis(node.integer(1, "the axis"), node.rank()),))


@converts("TOPK_V2")
def top_k(node: Node) -> Sequence[Expr]:
    dtype = node.result_dtype(1)
    made = node.call(op.topk, node.input(0), k=node.integer(1, "k"), axis=-1, dtype=dtype)
    return node.fields(made, 2)


@converts("CUMSUM")
def cumsum(node: Node) -> Expr:
    return node.call(op.cumsum, node.input(0), axis=node.axis(node.integer(1, "the axis"),
                                                              node.rank()),
                     exclusive=bool(node.option("Exclusive")), reverse=bool(node.option("Reverse")))


@converts("UNIQUE")
def unique(node: Node) -> Sequence[Expr]:
    """Values in order of first occurrence, and the index of each element among them."""
    made = node.call(op.unique, node.input(0), is_sorted=False)
    values, _, inverse, *_ = node.fields(made, 4)
    return values, node.cast(inverse, node.result_dtype(1))


@converts("BUCKETIZE")
def bucketize(node: Node) -> Expr:
    """The number of boundaries that are at most the element."""
    boundaries = np.asarray(node.option("Boundaries", ()), np.float32)
    x = node.cast(node.input(0), "float32")
    made = node.call(op.searchsorted, Constant(boundaries, span=node.span), x, right=True)
    return node.cast(made, node.result_dtype())


@converts("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(node: Node) -> Sequence[Expr]:
    """Operands: boxes, scores, most results, IoU and score thresholds, sigma of soft scores.

    Results are padded with zeros to the most; their number is the last result.
    """
    boxes, scores = node.input(0), node.input(1)
    most = node.integer(2, "the number of results")
    overlap, least = (float(node.array(i, "a threshold").reshape(())) for i in (3, 4))
    if node.op.endswith("V5") and float(node.array(5, "sigma").reshape(())):
        raise node.unsupported("soft suppression (sigma above 0)")
    (count,) = node.fixed(node.shape(0)[:1], "the number of boxes")
    rows = node.tuple_call(op.concatenate, [node.reshape(scores, (count, 1)), boxes], axis=1)
    data = node.reshape(rows, (1, count, 5))
    valid = node.call(op.vision.get_valid_counts, data, score_threshold=least, id_index=-1,
                      score_index=0)
    amount, kept, indices = node.fields(valid, 3)
    made = node.call(op.vision.non_max_suppression, kept, amount, indices,
                     node.constant(most, "int32"), node.constant(overlap, "float32"),
                     coord_start=1, score_index=0, id_index=-1)
    chosen, total = node.fields(made, 2)
    flat = node.call(op.strided_slice, node.reshape(chosen, (-1,)), begin=(0,), end=(most,))
    lacking = most - min(most, count)
    if lacking:
        flat = node.call(op.nn.pad, flat, node.scalar_like(-1, flat), pad_width=((0, lacking),))
    total = node.reshape(node.cast(total, "int32"), ())
    total = node.call(op.minimum, total, node.constant(most, "int32"))
    valid_rows = node.call(op.greater_equal, flat, node.scalar_like(0, flat))
    selected = node.cast(node.call(op.maximum, flat, node.scalar_like(0, flat)), "int32")
    if node.op.endswith("V4"):
        return selected, total
    picked = node.call(op.take, scores, selected, axis=0)
    zero = node.scalar_like(0, scores)
    return selected, node.call(op.where, valid_rows, picked, zero), total
