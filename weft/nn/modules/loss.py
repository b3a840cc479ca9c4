"""Loss layers: one class per loss of ``nn.functional``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.module import Module


class _Loss(Module):
    """Calls ``F.<function>`` with the arguments of the constructor.

    ``order`` names them in torch's order. Tensors among them, such as class weights, are buffers.
    """

    function: ClassVar[str]
    defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, function: str, order: str = "reduction") -> None:
        super().__init_subclass__()
        cls.function = function
        known = inspect.signature(getattr(F, function)).parameters
        chosen = [known[name].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
                  for name in order.split()]
        cls.defaults = {p.name: p.default for p in chosen}
        cls.__signature__ = inspect.Signature(chosen)  # type: ignore[attr-defined] - for help()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        signature: inspect.Signature = type(self).__signature__  # type: ignore[attr-defined]
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if isinstance(value, Tensor) or name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *args: Tensor) -> Tensor:
        options = {name: getattr(self, name) for name in self.defaults}
        return getattr(F, self.function)(*args, **options)


class L1Loss(_Loss, function="l1_loss"):
    """abs(x - y)"""


class MSELoss(_Loss, function="mse_loss"):
    """(x - y)²"""


class SmoothL1Loss(_Loss, function="smooth_l1_loss", order="reduction beta"):
    """Quadratic below beta, linear above."""


class HuberLoss(_Loss, function="huber_loss", order="reduction delta"):
    """Quadratic below delta, linear above."""


class CrossEntropyLoss(_Loss, function="cross_entropy",
                       order="weight ignore_index reduction label_smoothing"):
    """Cross entropy of logits and classes, or probabilities."""


class NLLLoss(_Loss, function="nll_loss", order="weight ignore_index reduction"):
    """Negative log likelihood of log-probabilities and classes."""


class BCELoss(_Loss, function="binary_cross_entropy", order="weight reduction"):
    """Binary cross entropy of probabilities."""


class BCEWithLogitsLoss(_Loss, function="binary_cross_entropy_with_logits",
                        order="weight reduction pos_weight"):
    """Binary cross entropy of logits."""


class KLDivLoss(_Loss, function="kl_div", order="reduction log_target"):
    """Kullback-Leibler divergence of log-probabilities from a target."""


class PoissonNLLLoss(_Loss, function="poisson_nll_loss",
                     order="log_input full eps reduction"):
    """Negative log likelihood of a Poisson distribution."""


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss", order="full eps reduction"):
    """Negative log likelihood of a normal distribution."""


class MarginRankingLoss(_Loss, function="margin_ranking_loss", order="margin reduction"):
    """max(0, -y (x₁ - x₂) + margin)"""


class HingeEmbeddingLoss(_Loss, function="hinge_embedding_loss", order="margin reduction"):
    """x where the target is 1, max(0, margin - x) where it is -1."""


class SoftMarginLoss(_Loss, function="soft_margin_loss"):
    """log(1 + e**(-y x))"""


class CosineEmbeddingLoss(_Loss, function="cosine_embedding_loss", order="margin reduction"):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""


class MultiMarginLoss(_Loss, function="multi_margin_loss", order="p margin weight reduction"):
    """Mean over the other classes of max(0, margin - x[y] + x[i])**p."""


class MultiLabelSoftMarginLoss(_Loss, function="multilabel_soft_margin_loss",
                               order="weight reduction"):
    """The mean over classes of binary cross entropies with logits."""


class TripletMarginLoss(_Loss, function="triplet_margin_loss",
                        order="margin p eps swap reduction"):
    """max(0, d(a, p) - d(a, n) + margin)"""


class TripletMarginWithDistanceLoss(Module):
    """max(0, d(a, p) - d(a, n) + margin) for a distance of the caller."""

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0, swap: bool = False, reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.distance_function = distance_function
        self.margin, self.swap, self.reduction = margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction)


class CosineSimilarity(Module):
    """x₁·x₂ / (|x₁| |x₂|) along ``dim``."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
