"""Converters of linear models."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.onnx.ml.naming import (
    POST_TRANSFORMS,
    as_float,
    both_classes,
    class_labels,
    classic,
    floats,
    labelled,
    transformed,
)
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.ir.expr import Constant, Expr


def _scores(node: Node, count: int) -> Expr:
    """``x W^T + b`` for coefficients of ``count`` rows."""
    weights, bias = floats(node, "coefficients"), floats(node, "intercepts")
    width = node.shape()[-1]
    if node.rank() != 2 or not isinstance(width, int) or len(weights) != count * width:
        raise node.fail("the coefficients do not fit the features", got=str(len(weights)),
                        expected=f"{count} x {width}")
    rows = Constant(weights.reshape(count, width), span=node.span)
    found = node.call(op.nn.dense, as_float(node), rows)
    if not len(bias):
        return found
    if len(bias) != count:
        raise node.fail("attribute 'intercepts' has the wrong length", expected=str(count),
                        got=str(len(bias)))
    return node.call(op.add, found, Constant(bias, span=node.span))


@converts(classic("LinearRegressor"), attributes=("coefficients", "intercepts", "targets"),
          only={"post_transform": POST_TRANSFORMS})
def linear_regressor(node: Node) -> Expr:
    scores = _scores(node, node.attrs.integer("targets", 1))
    return transformed(node, scores, node.attrs.text("post_transform", "NONE"))


@converts(classic("LinearClassifier"), attributes=(
    "coefficients", "intercepts", "classlabels_ints", "classlabels_strings", "multi_class"),
    only={"post_transform": POST_TRANSFORMS}, outputs=2)  # fmt: skip
def linear_classifier(node: Node) -> Sequence[Expr]:
    """The label of the highest score, and the scores; a single row is that of the second class."""
    labels = class_labels(node, "classlabels_ints")
    kind = node.attrs.text("post_transform", "NONE")
    count = max(1, len(floats(node, "intercepts"))) if len(labels) == 2 else len(labels)
    scores = _scores(node, count)
    if count == 1:
        above = node.call(op.greater, scores, node.scalar_like(0, scores))
        best = node.call(op.cast, node.call(op.squeeze, above, axis=(1,)), dtype="int64")
        score = node.call(op.sigmoid, scores) if kind == "LOGISTIC" else scores
        found = both_classes(node, score, "NONE", is_probability=True)
        return labelled(node, best, labels), found
    best = node.call(op.argmax, scores, axis=(1,))
    return labelled(node, best, labels), transformed(node, scores, kind)
