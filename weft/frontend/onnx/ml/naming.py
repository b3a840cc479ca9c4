"""The domain of classic machine learning, and what its converters share."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.ir.expr import Constant, Expr

DOMAIN = "ai.onnx.ml"
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def classic(op_type: str) -> str:
    """The registry name of an operator of the domain."""
    return f"{DOMAIN}::{op_type}"


def as_float(node: Node, index: int = 0) -> Expr:
    """An input as float32, in which these operators compute."""
    x = node.input(index)
    return x if tensor_type(x).dtype.name == "float32" else node.call(op.cast, x, dtype="float32")


def floats(node: Node, name: str) -> np.ndarray:
    """A list of floats, empty if it is not given."""
    return np.array(node.attrs.numbers(name) or (), np.float32)


def indices(node: Node, name: str, count: int | None = None, below: int | None = None
            ) -> np.ndarray:
    """A list of integers, of ``count`` elements that are at least 0 and less than ``below``."""
    found = np.array(node.attrs.integers(name) or (), np.int64)
    if count is not None and len(found) != count:
        raise node.fail(f"attribute {name!r} has the wrong length", expected=str(count),
                        got=str(len(found)))
    if below is not None and len(found) and not (found.min() >= 0 and found.max() < below):
        raise node.fail(f"attribute {name!r} is out of range", expected=f"0 to {below - 1}",
                        got=f"{found.min()} to {found.max()}")
    return found


def class_labels(node: Node, name: str = "classlabels_int64s") -> np.ndarray:
    """The integers that name the classes; texts are refused."""
    for texts in ("classlabels_strings", "classlabels_stringes"):
        if node.attrs.texts(texts):
            raise node.unsupported(
                "its class labels are strings, which are no tensors", got=texts,
                help="train with integers as classes, and map them to names after the call")
    found = indices(node, name)
    if not len(found):
        raise node.fail(f"attribute {name!r} is missing")
    return found


def labelled(node: Node, positions: Expr, labels: np.ndarray) -> Expr:
    """The labels at positions."""
    return node.call(op.take, Constant(labels, span=node.span), positions, axis=0)


def transformed(node: Node, scores: Expr, kind: str) -> Expr:
    """Scores [samples, classes] after ``post_transform``."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return node.call(op.sigmoid, scores)
    if kind == "SOFTMAX":
        return node.call(op.nn.softmax, scores, axis=-1)
    if kind == "SOFTMAX_ZERO":
        return _softmax_of_nonzero(node, scores)
    raise node.unsupported(f"post_transform {kind}")


def _softmax_of_nonzero(node: Node, scores: Expr) -> Expr:
    """A softmax among scores other than zero, which stay zero."""
    zero = node.scalar_like(0, scores)
    is_zero = node.call(op.equal, scores, zero)
    most = node.call(op.max, scores, axis=(-1,), keepdims=True)
    raised = node.call(op.exp, node.call(op.subtract, scores, most))
    kept = node.call(op.where, is_zero, zero, raised)
    total = node.call(op.sum, kept, axis=(-1,), keepdims=True)
    return node.call(op.divide, kept, node.call(op.maximum, total,
                                                node.scalar_like(1e-30, scores)))


def both_classes(node: Node, score: Expr, kind: str, *, is_probability: bool) -> Expr:
    """The scores [samples, 2] of two classes from that of the second one, [samples, 1]."""
    if kind == "LOGISTIC" and not is_probability:
        first = node.call(op.sigmoid, node.call(op.negative, score))
        return node.tuple_call(op.concatenate, [first, node.call(op.sigmoid, score)], axis=1)
    if kind not in ("NONE", "LOGISTIC"):
        raise node.unsupported(f"post_transform {kind} of one score")
    first = node.call(op.subtract, node.scalar_like(1, score), score) if is_probability \
        else node.call(op.negative, score)
    return node.tuple_call(op.concatenate, [first, score], axis=1)
