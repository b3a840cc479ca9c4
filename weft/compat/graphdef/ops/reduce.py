"""Reductions along axes, and positions of the largest elements."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir import DType, Expr
from weft.op.composites import norms

REDUCTIONS = {"All": op.all, "Any": op.any, "Max": op.max, "Mean": op.mean, "Min": op.min,
              "Prod": op.prod, "Sum": op.sum}


def _axes(node: Node) -> tuple[int, ...]:
    return node.axes(node.ints(1, "the axes"), node.rank())


@converts(*REDUCTIONS, inputs=2, attributes=("keep_dims",))
def reduce(node: Node) -> Expr:
    axes = _axes(node)
    if not axes:
        return node.input(0)
    return node.call(REDUCTIONS[node.op], node.input(0), axis=axes,
                     keepdims=node.attr("keep_dims", bool, default=False))


@converts("EuclideanNorm", inputs=2, attributes=("keep_dims",))
def euclidean_norm(node: Node) -> Expr:
    return node.composed(norms.p_norm, node.input(0), 2.0, _axes(node),
                         node.attr("keep_dims", bool, default=False))


@converts("L2Loss", inputs=1)
def l2_loss(node: Node) -> Expr:
    total = node.call(op.sum, node.call(op.multiply, node.input(0), node.input(0)))
    return node.call(op.multiply, total, node.scalar_like(0.5, total))


@converts("ArgMax", "ArgMin", inputs=2, attributes=("output_type",))
def arg_reduce(node: Node) -> Expr:
    operator = op.argmax if node.op == "ArgMax" else op.argmin
    dtype = node.attr("output_type", DType, DType.of("int64"))
    return node.call(operator, node.input(0), axis=(node.axis(node.integer(1, "the axis")),),
                     dtype=dtype)


@converts("TopKV2", "TopK", inputs=(1, 2), attributes=("sorted", "k", "index_type"),
          outputs=("values", "indices"))
def top_k(node: Node) -> Sequence[Expr]:
    count = node.attr("k", int) if node.op == "TopK" else node.integer(1, "k")
    dtype = node.attr("index_type", DType, DType.of("int32"))
    result = node.call(op.topk, node.input(0), k=count, axis=-1, dtype=dtype)
    return node.fields(result, 2)


@converts("InTopKV2", "InTopK", inputs=(2, 3), attributes=("k",), outputs=("precision",))
def in_top_k(node: Node) -> Expr:
    """Whether fewer than k predictions are larger than that of the target."""
    count = node.attr("k", int) if node.op == "InTopK" else node.integer(2, "k")
    predictions, targets = node.input(0), node.input(1)
    columns = node.call(op.expand_dims, targets, axis=1)
    own = node.call(op.gather, predictions, columns, axis=1)
    larger = node.call(op.cast, node.call(op.greater, predictions, own), dtype="int32")
    return node.call(op.less, node.call(op.sum, larger, axis=(1,)), node.constant(count))
