"""Losses of regression and of probabilities, with torch's signatures.

``size_average`` and ``reduce`` are torch's older arguments for ``reduction``.
"""

from __future__ import annotations

from typing import Any

from weft.amp.autocast import upcast
from weft.eager.cell import node_of
from weft.eager.checks import probabilities
from weft.eager.emitter import TENSORS, call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.sizes import promoted, reduced, reduction_of
from weft.op.composites import losses
from weft.support.errors import InvalidInputError


def _pair(input: Tensor, target: Any, *, to_float: bool = False) -> tuple[Any, ...]:
    return promoted(*upcast(input, target), to_float=to_float)


def _weighted(found: Tensor, weight: Tensor | None, reduction: str, like: Tensor,
              by_weight: bool) -> Tensor:
    """The reduction of losses times weights; ``by_weight`` divides by the sum of the weights."""
    if weight is None:
        return reduced(found, reduction)
    if tuple(weight.shape) != tuple(like.shape):
        raise InvalidInputError("the weights have another shape than the input",
                                expected=tuple(like.shape), got=tuple(weight.shape))
    found = found * weight
    if by_weight and reduction == "mean":
        return found.sum() / weight.sum()
    return reduced(found, reduction)


@checked
def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:
    """(x - y)²; the mean with ``weight`` divides by the sum of the weights."""
    found = losses.squared_error(TENSORS, *_pair(input, target))
    return _weighted(found, weight, reduction_of(reduction, size_average, reduce), input, True)


@checked
def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:
    """abs(x - y); the mean with ``weight`` divides by the sum of the weights."""
    found = losses.absolute_error(TENSORS, *_pair(input, target))
    return _weighted(found, weight, reduction_of(reduction, size_average, reduce), input, True)


@checked
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:
    """(x - y)² / (2 beta) below ``beta``, abs(x - y) - beta / 2 above (Girshick 2015)."""
    if beta < 0:
        raise InvalidInputError("smooth_l1_loss: beta is negative", got=beta)
    found = losses.smooth_l1(TENSORS, *_pair(input, target), beta=beta)
    return reduced(found, reduction, size_average, reduce)


@checked
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """(x - y)² / 2 below ``delta``, delta * (abs(x - y) - delta / 2) above (Huber 1964)."""
    if delta <= 0:
        raise InvalidInputError("huber_loss: delta is not positive", got=delta)
    found = losses.huber(TENSORS, *_pair(input, target), delta=delta)
    return _weighted(found, weight, reduction_of(reduction), input, False)


@checked
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """-(y log(p) + (1 - y) log(1 - p)), whose logarithms are at least -100.

    Where p is 0 or 1, the gradient is torch's, (p - y) / max(p (1 - p), 1e-12).
    """
    if tuple(input.shape) != tuple(target.shape):
        raise InvalidInputError("binary_cross_entropy: the target has another shape",
                                expected=tuple(input.shape), got=tuple(target.shape))
    found = losses.binary_cross_entropy(TENSORS, *upcast(input, target))
    node_of(found).check = probabilities(node_of(input), "binary_cross_entropy: the input")
    found = found if weight is None else found * weight
    return reduced(found, reduction, size_average, reduce)


@checked
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of sigmoid(x), without overflow."""
    if tuple(input.shape) != tuple(target.shape):
        raise InvalidInputError("binary_cross_entropy_with_logits: the target has another shape",
                                expected=tuple(input.shape), got=tuple(target.shape))
    found = losses.binary_cross_entropy_with_logits(TENSORS, *_pair(input, target),
                                                    pos_weight=pos_weight)
    found = found if weight is None else found * weight
    return reduced(found, reduction, size_average, reduce)


@checked
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:
    """Y (log(y) - x) for log-probabilities x; ``reduction="batchmean"`` divides by the batch."""
    found = losses.kl_divergence(TENSORS, *_pair(input, target), log_target=log_target)
    if reduction == "batchmean":
        return found.sum() * (1 / max(input.shape[0] if input.ndim else 1, 1))
    return reduced(found, reduction, size_average, reduce)


@checked
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
    size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """e**x - y x, or x - y log(x + eps); ``full`` adds Stirling's approximation of log(y!)."""
    x, y = _pair(input, target, to_float=True)
    found = losses.poisson_nll(TENSORS, x, y, log_input=log_input, full=full, eps=eps)
    return reduced(found, reduction, size_average, reduce)


@checked
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(v) + (x - y)² / v) / 2 with v = max(var, eps), which gets the gradient of ``var``.

    ``var`` is a number, or a tensor of the shape of ``input``, without its last axis, or with one
    axis of size 1. Negative variances count as ``eps``.
    """
    if isinstance(var, int | float):
        if var < 0:
            raise InvalidInputError("gaussian_nll_loss: the variance is negative", got=var)
        var = call("full_like", input, float(var))
    elif not isinstance(var, Tensor):
        raise InvalidInputError("gaussian_nll_loss: var is a tensor or a number",
                                got=type(var).__name__)
    elif tuple(var.shape) == tuple(input.shape)[:-1]:
        var = call("expand_dims", var, axis=var.ndim)
    elif not _is_variance_of(tuple(var.shape), tuple(input.shape)):
        raise InvalidInputError("gaussian_nll_loss: var does not fit the input",
                                expected=tuple(input.shape), got=tuple(var.shape))
    found = losses.gaussian_nll(TENSORS, *_pair(input, target), variance=var, full=full, eps=eps)
    return reduced(found, reduction)


def _is_variance_of(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a shape is that of the input, or differs in one axis of size 1."""
    if len(shape) != len(whole):
        return False
    others = [own for own, size in zip(shape, whole, strict=True) if own != size]
    return others in ([], [1])
