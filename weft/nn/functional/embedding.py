"""Embedding tables: embedding, embedding_bag, one_hot."""

from __future__ import annotations

import numpy as np

from weft.eager.cell import node_of
from weft.eager.checks import require_classes
from weft.eager.emitter import TENSORS, call
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.op.composites import losses, norms
from weft.support.errors import InvalidInputError


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (entries, size) at the indices ``input`` (…): (…, size).

    The row ``padding_idx`` gets no gradient. ``max_norm`` first shortens the rows in ``weight``
    that are used. Raises ``IndexRangeError`` for an index below 0 or not below the entries.
    """
    if scale_grad_by_freq or sparse:
        raise InvalidInputError("embedding: unsupported option",
                                expected="scale_grad_by_freq=False and sparse=False")
    if max_norm is not None:
        _shorten_rows(input, weight, max_norm, norm_type)
    rows = _rows(weight, input)
    if padding_idx is None:
        return rows
    index = padding_idx % weight.shape[0]
    is_padding = call("expand_dims", call("equal", input, index), axis=-1)
    return call("where", is_padding, rows.detach(), rows)


def _rows(weight: Tensor, indices: Tensor) -> Tensor:
    rows = call("take", weight, indices, axis=0)
    require_classes(node_of(rows), node_of(indices), weight.shape[0], what="an index")
    return rows


def _shorten_rows(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that ``input`` names down to the norm ``max_norm``, in place."""
    table = weight.detach()
    powers = call("abs", table).pow(norm_type)
    norms = call("sum", powers, axis=1, keepdims=True).pow(1.0 / norm_type)
    short = table * (max_norm / (norms + 1e-7))
    used = call("zeros", shape=(weight.shape[0],), dtype="float32")
    flat = input.reshape((-1,))
    ones = call("ones", shape=tuple(flat.shape), dtype="float32")
    used = call("scatter_elements", used, flat, ones).reshape((-1, 1))
    is_long = call("logical_and", used > 0, norms > max_norm)
    with no_grad():
        weight.copy_(call("where", is_long, short, table))


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, mode: str = "mean",
    per_sample_weights: Tensor | None = None,
) -> Tensor:
    """Sums, means or maxima of the rows of bags.

    ``input`` is (bags, indices per bag), or one list of indices that ``offsets`` (bags) divide.
    """
    if mode not in ("sum", "mean", "max"):
        raise InvalidInputError("embedding_bag: unknown mode", expected="sum, mean or max",
                                got=repr(mode))
    if per_sample_weights is not None and mode != "sum":
        raise InvalidInputError("embedding_bag: per_sample_weights needs mode='sum'",
                                got=repr(mode))
    rows = _rows(weight, input)
    if per_sample_weights is not None:
        rows = rows * call("expand_dims", per_sample_weights, axis=-1)
    if input.ndim == 2:
        return call(mode, rows, axis=1)
    if offsets is None:
        raise InvalidInputError("embedding_bag: a list of indices needs offsets")
    return _ragged(rows, offsets, mode)


def _ragged(rows: Tensor, offsets: Tensor, mode: str) -> Tensor:
    """Reduce the runs of ``rows`` that begin at ``offsets``; empty runs give zeros."""
    count, bags = rows.shape[0], offsets.shape[0]
    places = np.arange(count, dtype=np.int64)
    bag = call("searchsorted", offsets.to("int64"), places, right=True) - 1
    # membership (bags, rows): the sum over a run is a product with it.
    own = call("equal", call("expand_dims", bag, axis=0),
                np.arange(bags, dtype=np.int64).reshape(-1, 1))
    share = call("cast", own, dtype=rows.dtype.name)
    if mode != "max":
        total = call("nn.matmul", share, rows)
        if mode == "sum":
            return total
        sizes = call("sum", share, axis=1, keepdims=True)
        return total / call("maximum", sizes, 1.0)
    spread = call("where", call("expand_dims", own, axis=-1), call("expand_dims", rows, axis=0),
                   -np.inf)
    largest = call("max", spread, axis=1)
    return call("where", call("isfinite", largest), largest, 0.0)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """(…) to (…, num_classes) of int64; -1 counts the classes, which needs the values.

    Raises ``IndexRangeError`` for a class below 0 or not below ``num_classes``.
    """
    classes = int(tensor.max().item()) + 1 if num_classes < 0 else num_classes
    chosen = call("one_hot", tensor, np.int64(1), np.int64(0), depth=classes)
    require_classes(node_of(chosen), node_of(tensor), classes)
    return chosen


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x₁·x₂ / (max(|x₁|, eps) max(|x₂|, eps)) along ``dim``."""
    return norms.cosine_similarity(TENSORS, x1, x2, dim, eps)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""
    return losses.pairwise_distance(TENSORS, x1, x2, p, eps, keepdim)
