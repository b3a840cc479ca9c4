"""Losses of margins and distances: hinge, ranking, triplets, cosine.

``size_average`` and ``reduce`` are torch's older arguments for ``reduction``.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.eager.cell import node_of
from weft.eager.checks import require_classes
from weft.eager.emitter import TENSORS, call
from weft.eager.functions.creation import as_tensor, one_hot
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.activation import logsigmoid
from weft.nn.functional.distance import pairwise_distance
from weft.nn.functional.sizes import promoted, reduced
from weft.op.composites import losses
from weft.support.errors import InvalidInputError


@checked
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """max(0, -y (x₁ - x₂) + margin) for targets of 1 or -1."""
    found = losses.margin_ranking(TENSORS, *promoted(input1, input2, target), margin=margin)
    return reduced(found, reduction, size_average, reduce)


@checked
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """X where the target is 1, max(0, margin - x) where it is -1."""
    found = losses.hinge_embedding(TENSORS, *promoted(input, target), margin=margin)
    return reduced(found, reduction, size_average, reduce)


@checked
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + e**(-y x))"""
    found = losses.soft_margin(TENSORS, *promoted(input, target))
    return reduced(found, reduction, size_average, reduce)


@checked
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    x1, x2 = promoted(input1, input2, to_float=True)
    y = call("cast", target, dtype=x1.dtype.name)
    found = losses.cosine_embedding(TENSORS, x1, x2, y, margin)
    return reduced(found, reduction, size_average, reduce)


@checked
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, margin - x[y] + x[i])**p over other classes, over C; ``input`` (N, C)."""
    if p not in (1, 2):
        raise InvalidInputError("multi_margin_loss: unknown exponent", expected="1 or 2", got=p)
    rows = input.reshape((-1, input.shape[-1] if input.ndim else 1))
    labels, classes = as_tensor(target).reshape((-1,)), rows.shape[1]
    own = call("equal", one_hot(labels, classes), 1)
    picked = call("where", own, rows, 0.0).sum(-1, keepdim=True)
    gap = call("nn.relu", rows - picked + margin)
    terms = gap if p == 1 else gap * gap
    if weight is not None:
        terms = terms * call("expand_dims", call("take", weight, labels, axis=0), axis=1)
    found = call("where", own, 0.0, terms).sum(-1) * (1 / classes)
    if input.ndim < 2 and not target.ndim:
        found = found.reshape(())
    return reduced(found, reduction, size_average, reduce)


@checked
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, 1 - x[y] + x[i]) over labels y and other classes i, over C.

    ``input`` is (N, C) or (C); ``target``, of the same shape, holds labels up to the first -1.
    """
    if tuple(input.shape) != tuple(target.shape):
        raise InvalidInputError("multilabel_margin_loss: the target has another shape",
                                expected=tuple(input.shape), got=tuple(target.shape))
    shape = (-1, input.shape[-1]) if input.ndim else (1, 1)
    x, labels = input.reshape(shape), target.reshape(shape)
    labels = call("cast", labels, dtype="int64")
    counts = call("cumprod", call("cast", labels >= 0, dtype="int64"), axis=1) > 0
    labels = call("where", counts, labels, 0)
    named = call("logical_and", call("equal", one_hot(labels, shape[1]), 1),
                 call("expand_dims", counts, axis=2))
    is_label = call("any", named, axis=1)
    picked = call("gather", x, labels, axis=1)
    gaps = call("expand_dims", x, axis=1) - call("expand_dims", picked, axis=2) + 1.0
    taken = call("logical_and", call("expand_dims", counts, axis=2),
                 call("logical_not", call("expand_dims", is_label, axis=1)))
    terms = call("where", taken, call("nn.relu", gaps), 0.0)
    found = call("sum", terms, axis=(1, 2)) * (1 / max(shape[1], 1))
    require_classes(node_of(found), node_of(labels), x.shape[1])
    return reduced(found if input.ndim > 1 else found.reshape(()), reduction, size_average, reduce)


@checked
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """The mean over classes of binary cross entropies with logits; ``input`` (N, C)."""
    found = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        found = found * weight
    return reduced(found.mean(-1) if found.ndim else found, reduction, size_average, reduce)


@checked
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin), p-norms; ``swap`` (Balntas et al. 2016)."""
    found = losses.triplet_margin(
        TENSORS, *promoted(anchor, positive, negative),
        distance=lambda x, y: pairwise_distance(x, y, p, eps), margin=margin, swap=swap)
    return reduced(found, reduction, size_average, reduce)


@checked
def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) for a distance of the caller."""
    distance = pairwise_distance if distance_function is None else distance_function
    found = losses.triplet_margin(TENSORS, anchor, positive, negative, distance, margin, swap)
    return reduced(found, reduction)
