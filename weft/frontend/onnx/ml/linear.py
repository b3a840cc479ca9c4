"""Converters of linear models and of regression by support vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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


@converts(classic("SVMRegressor"), attributes=(
    "coefficients", "kernel_params", "n_supports", "one_class", "rho", "support_vectors"),
    only={"kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID"), "post_transform": ("NONE",)},
)  # fmt: skip
def svm_regressor(node: Node) -> Expr:
    """The sum of kernels with the support vectors, or a linear model without any."""
    count, weights = node.attrs.integer("n_supports", 0), floats(node, "coefficients")
    rho, width = floats(node, "rho"), node.shape()[-1]
    vectors = floats(node, "support_vectors") if count else weights
    rows = max(count, 1)
    if len(rho) != 1 or not isinstance(width, int) or len(vectors) != rows * width \
            or (count and len(weights) != count):
        raise node.fail("the support vectors do not fit the features or coefficients",
                        got=f"{len(vectors)} numbers for {rows} vectors of {width}")
    x = as_float(node)
    supports = vectors.reshape(rows, width)
    if count:
        similar = _kernel(node, x, supports)
        score = node.call(op.nn.dense, similar, Constant(weights.reshape(1, -1), span=node.span))
    else:
        score = node.call(op.nn.dense, x, Constant(supports, span=node.span))
    score = node.call(op.add, score, Constant(rho, span=node.span))
    if not node.attrs.flag("one_class"):
        return score
    one = node.scalar_like(1, score)
    above = node.call(op.greater, score, node.scalar_like(0, score))
    return node.call(op.where, above, one, node.call(op.negative, one))


def _kernel(node: Node, x: Expr, supports: np.ndarray) -> Expr:
    kind = node.attrs.text("kernel_type", "LINEAR")
    params = floats(node, "kernel_params")
    gamma, offset, degree = params if len(params) == 3 else (0.0, 0.0, 3.0)
    product = node.call(op.nn.dense, x, Constant(supports, span=node.span))
    if kind == "LINEAR":
        return product
    if kind == "RBF":
        own = node.call(op.sum, node.call(op.multiply, x, x), axis=(1,), keepdims=True)
        other = Constant(np.square(supports).sum(axis=1), span=node.span)
        twice = node.call(op.multiply, product, node.scalar_like(2, product))
        apart = node.call(op.subtract, node.call(op.add, own, other), twice)
        return node.call(op.exp, node.call(op.multiply, apart, node.scalar_like(-gamma, apart)))
    scaled = node.call(op.multiply, product, node.scalar_like(gamma, product))
    moved = node.call(op.add, scaled, node.scalar_like(offset, product))
    if kind == "SIGMOID":
        return node.call(op.tanh, moved)
    return node.call(op.power, moved, node.scalar_like(degree, product))
