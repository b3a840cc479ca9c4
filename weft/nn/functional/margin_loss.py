"""Losses of margins and distances: hinge, ranking, triplets, cosine."""

from __future__ import annotations

from collections.abc import Callable

from weft.eager.emitter import TENSORS, call
from weft.eager.tensor import Tensor
from weft.nn.functional.activation import logsigmoid
from weft.nn.functional.embedding import one_hot, pairwise_distance
from weft.nn.functional.sizes import reduced
from weft.op.composites import losses


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -y (x₁ - x₂) + margin) for targets of 1 or -1."""
    return reduced(losses.margin_ranking(TENSORS, input1, input2, target, margin), reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """X where the target is 1, max(0, margin - x) where it is -1."""
    return reduced(losses.hinge_embedding(TENSORS, input, target, margin), reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + e**(-y x))"""
    return reduced(losses.soft_margin(TENSORS, input, target), reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    found = losses.cosine_embedding(TENSORS, input1, input2, target, margin)
    return reduced(found, reduction)


def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over the other classes of max(0, margin - x[y] + x[i])**p; ``input`` (N, C)."""
    classes = input.shape[-1]
    own = call("equal", one_hot(target, classes), 1)
    picked = call("where", own, input, 0.0).sum(-1, keepdim=True)
    gap = call("nn.relu", input - picked + margin)
    terms = gap if p == 1 else gap.pow(p)
    if weight is not None:
        terms = terms * call("expand_dims", call("take", weight, target, axis=0), axis=-1)
    found = call("where", own, 0.0, terms).sum(-1) * (1 / classes)
    return reduced(found, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of binary cross entropies with logits; ``input`` (N, C)."""
    found = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        found = found * weight
    return reduced(found.mean(-1), reduction)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin), p-norms; ``swap`` (Balntas et al. 2016)."""
    return triplet_margin_with_distance_loss(
        anchor, positive, negative,
        distance_function=lambda x, y: pairwise_distance(x, y, p, eps), margin=margin, swap=swap,
        reduction=reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) for a distance of the caller."""
    distance = pairwise_distance if distance_function is None else distance_function
    found = losses.triplet_margin(TENSORS, anchor, positive, negative, distance, margin, swap)
    return reduced(found, reduction)
