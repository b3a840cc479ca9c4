"""Converter of TfIdfVectorizer, which counts n-grams of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Constant, Expr
from weft.op.composites.terms import Term
from weft.support.errors import UnsupportedModelError


@converts("TfIdfVectorizer", since=9, attributes=(
    "max_gram_length", "max_skip_count", "min_gram_length", "mode", "ngram_counts",
    "ngram_indexes", "pool_int64s", "weights"))  # fmt: skip
def tf_idf_vectorizer(node: Node) -> Expr:
    """Count the n-grams of the pool in every row of tokens; the result is [rows, columns].

    ``ngram_counts`` gives the start in the pool of the n-grams of each length, ``ngram_indexes``
    the column of each n-gram. Up to ``max_skip_count`` tokens are skipped between the tokens of an
    n-gram.
    """
    indexes = node.attrs.integers("ngram_indexes") or ()
    if not indexes or min(indexes) < 0:
        raise node.fail("invalid attribute 'ngram_indexes'", got=str(indexes))
    flat = node.rank() == 1
    x = reshape_to(node, node.input(0), (1, *node.shape())) if flat else node.input(0)
    width = max(indexes) + 1
    total = Term(node, _zeros(node, x, width))
    done = 0
    for length, grams in _pool(node):
        columns = indexes[done : done + len(grams)]
        done += len(grams)
        shortest = node.attrs.integer("min_gram_length", 1)
        if shortest <= length <= node.attrs.integer("max_gram_length", 1) and len(grams):
            # A matmul with a 0/1 matrix moves the counts to their columns.
            matrix = arrays.zeros((len(grams), width), np.float32)
            matrix[arrays.arange(len(grams)), list(columns)] = 1
            counts = _counted(node, x, grams)
            total = total + Term(node, node.call(op.nn.matmul, counts.expr,
                                                 Constant(matrix, span=node.span)))  # fmt: skip
    result = _weighted(node, total, width)
    return reshape_to(node, result, (width,)) if flat else result


def _pool(node: Node) -> list[tuple[int, np.ndarray]]:
    """Return the n-grams of each length, as rows of a matrix."""
    pool = np.array(node.attrs.integers("pool_int64s") or (), np.int64)
    starts = list(node.attrs.integers("ngram_counts") or ())
    bounds = [*starts, len(pool)]
    if not len(pool) or bounds != sorted(bounds) or (starts and starts[0] < 0):
        raise node.fail("ngram_counts does not divide the pool of n-grams",
                        got=f"{len(pool)} tokens, {starts}")
    result = []
    for length, (begin, end) in enumerate(pairwise(bounds), start=1):
        if (end - begin) % length:
            raise node.fail(f"the pool ends within an n-gram of length {length}")
        result.append((length, pool[begin:end].reshape(-1, length)))
    return result


def _counted(node: Node, x: Expr, grams: np.ndarray) -> Term:
    """Count each n-gram in each row, over all skip distances; 1-grams only have one."""
    length = grams.shape[1]
    furthest = node.attrs.integer("max_skip_count", 0) + 1 if length > 1 else 1
    total = Term(node, _zeros(node, x, len(grams)))
    size = tensor_type(x).shape[1]
    for distance in range(1, furthest + 1):
        windows = int(size) - distance * (length - 1)  # type: ignore[call-overload]
        if windows < 1:
            break
        total = total + Term(node, _matches(node, x, grams, distance, windows))
    return total


def _matches(node: Node, x: Expr, grams: np.ndarray, distance: int, windows: int) -> Expr:
    equal: Expr | None = None
    for position in range(grams.shape[1]):
        start = position * distance
        tokens = node.call(op.strided_slice, x, begin=(start,), end=(start + windows,),
                           strides=(1,), axes=(1,))  # fmt: skip
        tokens = node.call(op.expand_dims, tokens, axis=2, num_newaxis=1)
        wanted = node.constant(grams[:, position], tensor_type(x).dtype)
        same = node.call(op.equal, tokens, wanted)
        equal = same if equal is None else node.call(op.logical_and, equal, same)
    if equal is None:
        raise node.fail("an n-gram is empty")
    return node.call(op.sum, node.call(op.cast, equal, dtype="float32"), axis=(1,))


def _zeros(node: Node, x: Expr, width: int) -> Expr:
    rows, size = tensor_type(x).shape if len(tensor_type(x).shape) == 2 else (None, None)
    if not isinstance(rows, int) or not isinstance(size, int):
        raise UnsupportedModelError("TfIdfVectorizer of rows of symbolic size", where=node.span,
                                    got=str(tensor_type(x)))  # fmt: skip
    return Constant(arrays.zeros((rows, width), np.float32), span=node.span)


def _weighted(node: Node, counts: Term, width: int) -> Expr:
    mode = node.attrs.one_of("mode", "TF", ("TF", "IDF", "TFIDF"))
    if mode == "TF":
        return counts.expr
    weights: Sequence[float] = node.attrs.numbers("weights") or (1.0,) * width
    if len(weights) != width:
        raise node.fail("wrong number of weights", expected=str(width), got=str(len(weights)))
    factor = Term(node, node.constant(weights, "float32"))
    if mode == "TFIDF":
        return (counts * factor).expr
    found = node.call(op.cast, (counts > 0).expr, dtype="float32")
    return (Term(node, found) * factor).expr
