"""Losses of margins and distances: hinge, ranking, triplets, cosine."""

from __future__ import annotations

from collections.abc import Callable

from weft.eager.tensor import Tensor
from weft.nn.functional.activation import logsigmoid, softplus
from weft.nn.functional.calls import call
from weft.nn.functional.embedding import one_hot, pairwise_distance
from weft.nn.functional.sizes import reduced


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -y (x₁ - x₂) + margin) for targets of 1 or -1."""
    return reduced(_above_zero(-target * (input1 - input2) + margin), reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """X where the target is 1, max(0, margin - x) where it is -1."""
    far = _above_zero(margin - input)
    return reduced(call("where", call("equal", target, 1.0), input, far), reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + e**(-y x))"""
    return reduced(softplus(-target * input, threshold=float("inf")), reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    small = 1e-12  # as in torch, added to the squares
    squares = [(x * x).sum(-1) + small for x in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (squares[0] * squares[1]).sqrt()
    far = _above_zero(cosine - margin)
    return reduced(call("where", call("equal", target, 1.0), 1 - cosine, far), reduction)


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
    losses = call("where", own, 0.0, terms).sum(-1) * (1 / classes)
    return reduced(losses, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of binary cross entropies with logits; ``input`` (N, C)."""
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced(losses.mean(-1), reduction)


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
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = call("minimum", far, distance(positive, negative))
    return reduced(_above_zero(near - far + margin), reduction)


def _above_zero(x: Tensor) -> Tensor:
    """max(x, 0) with slope 1 at 0, torch's ``clamp_min``."""
    return call("clip", x, a_min=0.0, a_max=float("inf"))
