"""Loss layers: one class per loss of ``nn.functional``."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.function_layer import FunctionLayer
from weft.nn.modules.linear import Linear
from weft.nn.modules.module import Module, ModuleError

_OLD = "size_average=None reduce=None"  # torch's arguments of before ``reduction``
_REDUCTION = f"{_OLD} reduction='mean'"


class _Loss(FunctionLayer):
    """Class weights are buffers; ``size_average`` and ``reduce`` choose the reduction if given."""

    buffers_of = ("weight", "pos_weight")
    kept = ("size_average", "reduce")
    shown = ""

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        values = dict(given)
        average, reduce = (values.pop(name, None) for name in self.kept)
        if average is not None or reduce is not None:
            is_mean = average is None or average
            values["reduction"] = ("none" if reduce is False else "mean" if is_mean else "sum")
        return values


class L1Loss(_Loss, function="l1_loss", takes=_REDUCTION):
    """abs(x - y)"""


class MSELoss(_Loss, function="mse_loss", takes=_REDUCTION):
    """(x - y)²"""


class SmoothL1Loss(_Loss, function="smooth_l1_loss", takes=f"{_REDUCTION} beta=1.0"):
    """Quadratic below beta, linear above."""


class HuberLoss(_Loss, function="huber_loss", takes="reduction='mean' delta=1.0"):
    """Quadratic below delta, linear above."""


_CLASSES = "weight=None size_average=None ignore_index=-100 reduce=None reduction='mean'"


class CrossEntropyLoss(_Loss, function="cross_entropy", takes=f"{_CLASSES} label_smoothing=0.0"):
    """Cross entropy of logits and classes, or probabilities."""


class NLLLoss(_Loss, function="nll_loss", takes=_CLASSES):
    """Negative log likelihood of log-probabilities and classes."""


class BCELoss(_Loss, function="binary_cross_entropy", takes=f"weight=None {_REDUCTION}"):
    """Binary cross entropy of probabilities."""


class BCEWithLogitsLoss(_Loss, function="binary_cross_entropy_with_logits",
                        takes=f"weight=None {_REDUCTION} pos_weight=None"):
    """Binary cross entropy of logits."""


class KLDivLoss(_Loss, function="kl_div", takes=f"{_REDUCTION} log_target=False"):
    """Kullback-Leibler divergence of log-probabilities from a target."""


class PoissonNLLLoss(_Loss, function="poisson_nll_loss",
                     takes="log_input=True full=False size_average=None eps=1e-8 reduce=None "
                           "reduction='mean'"):
    """Negative log likelihood of a Poisson distribution."""


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss",
                      takes="* full=False eps=1e-6 reduction='mean'"):
    """Negative log likelihood of a normal distribution."""


class MarginRankingLoss(_Loss, function="margin_ranking_loss", takes=f"margin=0.0 {_REDUCTION}"):
    """max(0, -y (x₁ - x₂) + margin)"""


class HingeEmbeddingLoss(_Loss, function="hinge_embedding_loss",
                         takes=f"margin=1.0 {_REDUCTION}"):
    """x where the target is 1, max(0, margin - x) where it is -1."""


class SoftMarginLoss(_Loss, function="soft_margin_loss", takes=_REDUCTION):
    """log(1 + e**(-y x))"""


class CosineEmbeddingLoss(_Loss, function="cosine_embedding_loss",
                          takes=f"margin=0.0 {_REDUCTION}"):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""


class MultiMarginLoss(_Loss, function="multi_margin_loss",
                      takes=f"p=1 margin=1.0 weight=None {_REDUCTION}"):
    """Mean over the other classes of max(0, margin - x[y] + x[i])**p."""


class MultiLabelSoftMarginLoss(_Loss, function="multilabel_soft_margin_loss",
                               takes=f"weight=None {_REDUCTION}"):
    """The mean over classes of binary cross entropies with logits."""


class TripletMarginLoss(_Loss, function="triplet_margin_loss",
                        takes=f"margin=1.0 p=2.0 eps=1e-6 swap=False {_REDUCTION}"):
    """max(0, d(a, p) - d(a, n) + margin)"""


class TripletMarginWithDistanceLoss(
    _Loss, function="triplet_margin_with_distance_loss",
    takes="* distance_function=None margin=1.0 swap=False reduction='mean'",
):
    """max(0, d(a, p) - d(a, n) + margin) for a distance of the caller."""


class MultiLabelMarginLoss(_Loss, function="multilabel_margin_loss", takes=_REDUCTION):
    """The sum of max(0, 1 - x[y] + x[i]) over labels y and other classes i, over the classes."""


class CTCLoss(_Loss, function="ctc_loss", takes="blank=0 reduction='mean' zero_infinity=False"):
    """Connectionist temporal classification (Graves et al. 2006)."""


class CosineSimilarity(FunctionLayer, function="cosine_similarity", takes="dim=1 eps=1e-8"):
    """x₁·x₂ / (|x₁| |x₂|) along ``dim``."""

    shown = ""


class PairwiseDistance(FunctionLayer, function="pairwise_distance",
                       takes="p=2.0 eps=1e-6 keepdim=False"):
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""

    shown = ""


class LinearCrossEntropyLoss(Module):
    """The cross entropy of ``linear(input)`` and classes, or probabilities.

    With ``out_features`` the layer has ``num_classes`` logits at each of these positions.
    ``options``, torch's way to compute in chunks, has no effect here.
    """

    weight: Tensor | None

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
        bias: bool = False, device: Any = None, dtype: Any = None, reduction: str = "mean",
        weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: Any = None,
    ) -> None:
        super().__init__()
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ModuleError("LinearCrossEntropyLoss: wrong shape of the class weights",
                              expected=(num_classes,), got=tuple(weight.shape))
        self.register_buffer("weight", weight)
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.reduction, self.label_smoothing = reduction, label_smoothing
        self.ignore_index, self.options = ignore_index, options
        count = num_classes * math.prod(self.out_features)
        self.linear = Linear(in_features, count, bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape((*shape, -1)), target,
            linear_bias=None if bias is None else bias.reshape(shape), weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing)
