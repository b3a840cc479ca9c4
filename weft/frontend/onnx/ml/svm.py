"""Converters of models of support vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.ml.naming import (
    as_float,
    class_labels,
    classic,
    floats,
    indices,
    labelled,
)
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.ir.expr import Constant, Expr

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@converts(classic("SVMRegressor"), attributes=(
    "coefficients", "kernel_params", "n_supports", "one_class", "rho", "support_vectors"),
    only={"kernel_type": _KERNELS, "post_transform": ("NONE",)},
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


@converts(classic("SVMClassifier"), attributes=(
    "classlabels_ints", "classlabels_strings", "coefficients", "kernel_params", "prob_a", "prob_b",
    "rho", "support_vectors", "vectors_per_class"),
    only={"kernel_type": _KERNELS, "post_transform": ("NONE",)}, outputs=2,
)  # fmt: skip
def svm_classifier(node: Node) -> Sequence[Expr]:
    """Each pair of classes has a score and one vote; the label with most votes, and the scores.

    Two classes have the scores ``-s`` and ``s``.
    """
    labels = class_labels(node, "classlabels_ints")
    if floats(node, "prob_a").size:
        raise node.unsupported(
            "probabilities that are fitted to the scores of pairs of classes", got="prob_a",
            help="fit SVC(probability=False), or CalibratedClassifierCV around it")
    supports, weights, rho = _pairs_of_classes(node, len(labels))
    similar = _kernel(node, as_float(node), supports)
    scores = node.call(op.nn.dense, similar, Constant(weights, span=node.span))
    scores = node.call(op.add, scores, Constant(rho, span=node.span))
    if len(labels) == 2:
        is_second = node.call(op.less_equal, scores, node.scalar_like(0, scores))
        best = node.call(op.cast, node.call(op.squeeze, is_second, axis=(1,)), dtype="int64")
        scores = node.tuple_call(op.concatenate, [node.call(op.negative, scores), scores], axis=1)
    else:
        best = node.call(op.argmax, _votes(node, scores, len(labels)), axis=(1,))
    return labelled(node, best, labels), scores


def _pairs_of_classes(node: Node, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The support vectors, their weights in each pair of classes, and what is added to its score.

    The coefficients are (classes - 1, vectors): row ``j - 1`` has those of a vector of class ``i``
    against class ``j > i``, row ``i`` those of a vector of class ``j``.
    """
    counts, rho = indices(node, "vectors_per_class"), floats(node, "rho")
    vectors, given = floats(node, "support_vectors"), floats(node, "coefficients")
    pairs, total, width = list(combinations(range(classes), 2)), int(counts.sum()), node.shape()[-1]
    if classes < 2 or len(counts) != classes or node.rank() != 2 or not isinstance(width, int):
        raise node.unsupported("a classifier without support vectors of each class",
                               got=f"{len(counts)} counts for {classes} classes")
    expected = (total * width, (classes - 1) * total, len(pairs))
    if (found := (len(vectors), len(given), len(rho))) != expected:
        raise node.fail("the support vectors, coefficients or rho do not fit the classes",
                        expected=str(expected), got=str(found))
    rows, weights = given.reshape(classes - 1, total), arrays.zeros((len(pairs), total), np.float32)
    ends = np.cumsum(counts)
    for pair, (i, j) in zip(weights, pairs, strict=True):
        for own, other in ((i, j - 1), (j, i)):
            part = slice(ends[own] - counts[own], ends[own])
            pair[part] = rows[other, part]
    return vectors.reshape(total, width), weights, rho


def _votes(node: Node, scores: Expr, classes: int) -> Expr:
    """The votes for each class: a pair votes for its first class where its score is positive."""
    first, second = (arrays.eye(classes, dtype=np.float32)[list(of)]
                     for of in zip(*combinations(range(classes), 2), strict=True))
    above = node.call(op.cast, node.call(op.greater, scores, node.scalar_like(0, scores)),
                      dtype="float32")
    moved = node.call(op.nn.dense, above, Constant((first - second).T.copy(), span=node.span))
    return node.call(op.add, moved, Constant(second.sum(axis=0), span=node.span))


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
