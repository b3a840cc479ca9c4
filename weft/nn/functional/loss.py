"""Losses with torch's signatures: classification and regression."""

from __future__ import annotations

import math

from weft.amp.autocast import upcast
from weft.eager.cell import node_of
from weft.eager.checks import require_classes
from weft.eager.emitter import TENSORS, call
from weft.eager.tensor import Tensor
from weft.nn.functional.activation import log_softmax
from weft.nn.functional.sizes import along, reduced
from weft.op.composites import losses
from weft.support.errors import InvalidInputError


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, …) or (C) and classes (N, …) or probabilities (N, C, …).

    ``label_smoothing`` mixes the target with the uniform distribution. The mean over classes is
    weighted by ``weight`` (C) and leaves out ``ignore_index``; that over probabilities divides by
    N. Raises ``IndexRangeError`` for a class out of range that is not ``ignore_index``.
    """
    input, weight = upcast(input, weight)
    axis = 1 if input.ndim > 1 else 0
    logs = log_softmax(input, axis)
    if target.dtype.is_floating_point:
        return _of_probabilities(logs, target, axis, weight, reduction, label_smoothing)
    if label_smoothing == 0:
        return nll_loss(logs, target, weight, ignore_index, reduction)
    return _smoothed(logs, target, axis, weight, ignore_index, reduction, label_smoothing)


def _of_probabilities(
    logs: Tensor, target: Tensor, axis: int, weight: Tensor | None, reduction: str,
    smoothing: float,
) -> Tensor:
    if tuple(logs.shape) != tuple(target.shape):
        raise InvalidInputError("cross_entropy: probabilities have the shape of the input",
                                expected=tuple(logs.shape), got=tuple(target.shape))
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[axis]
    terms = logs * target
    if weight is not None:
        terms = terms * along(weight, axis, logs.ndim)
    found = -call("sum", terms, axis=axis)
    if reduction != "mean":
        return reduced(found, reduction)
    count = math.prod(s for i, s in enumerate(logs.shape) if i != axis)
    return found.sum() * (1 / count)


def _smoothed(
    logs: Tensor, target: Tensor, axis: int, weight: Tensor | None, ignore_index: int,
    reduction: str, smoothing: float,
) -> Tensor:
    counts = call("not_equal", target, ignore_index)
    weighted = logs if weight is None else logs * along(weight, axis, logs.ndim)
    uniform = call("where", counts, -call("sum", weighted, axis=axis), 0.0)
    picked = nll_loss(logs, target, weight, ignore_index, "none")
    found = picked * (1 - smoothing) + uniform * (smoothing / logs.shape[axis])
    if reduction != "mean":
        return reduced(found, reduction)
    total, share = found.sum(), _total_weight(logs, target, weight, counts)
    nothing = share == 0  # whose mean is no number, with a gradient of 0
    mean = total / call("where", nothing, 1.0, share)
    return call("where", nothing, (total / share).detach(), mean)


def _total_weight(
    logs: Tensor, target: Tensor, weight: Tensor | None, counts: Tensor
) -> Tensor:
    """The weights of the classes of all targets that count."""
    shares = call("cast", counts, dtype=logs.dtype.name)
    if weight is not None:
        shares = shares * call("take", weight, target, axis=0)
    return shares.sum()


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-weight[t] * input[n, t, …] for log-probabilities (N, C, …) or (C) and classes (N, …).

    Raises ``IndexRangeError`` for a class out of range that is not ``ignore_index``.
    """
    input, weight = upcast(input, weight)
    if input.ndim == 1:
        input, target = call("expand_dims", input, axis=0), target.reshape((1,))
        result = nll_loss(input, target, weight, ignore_index, reduction)
        return result.reshape(()) if reduction == "none" else result
    if weight is None:
        weight = call("ones", shape=(input.shape[1],), dtype=input.dtype.name)
    if reduction not in ("mean", "sum", "none"):
        raise InvalidInputError("unknown reduction", expected="mean, sum or none",
                                got=repr(reduction))
    loss = call("nn.nll_loss", input, target, weight, reduction=reduction,
                ignore_index=ignore_index)
    require_classes(node_of(loss), node_of(target), input.shape[1], ignore_index)
    return loss


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - y)²"""
    return reduced(losses.squared_error(TENSORS, *upcast(input, target)), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """abs(x - y)"""
    return reduced(losses.absolute_error(TENSORS, *upcast(input, target)), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """(x - y)² / (2 beta) below ``beta``, abs(x - y) - beta / 2 above (Girshick 2015)."""
    return reduced(losses.smooth_l1(TENSORS, *upcast(input, target), beta=beta), reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """(x - y)² / 2 below ``delta``, delta * (abs(x - y) - delta / 2) above (Huber 1964)."""
    return reduced(losses.huber(TENSORS, *upcast(input, target), delta=delta), reduction)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(y log(p) + (1 - y) log(1 - p)), whose logarithms are at least -100.

    Where p is 0 or 1, the gradient is torch's, (p - y) / max(p (1 - p), 1e-12).
    """
    found = losses.binary_cross_entropy(TENSORS, *upcast(input, target))
    return reduced(found if weight is None else found * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of sigmoid(x), without overflow."""
    found = losses.binary_cross_entropy_with_logits(TENSORS, *upcast(input, target),
                                                    pos_weight=pos_weight)
    return reduced(found if weight is None else found * weight, reduction)


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Y (log(y) - x) for log-probabilities x; ``reduction="batchmean"`` divides by the batch."""
    found = losses.kl_divergence(TENSORS, *upcast(input, target), log_target=log_target)
    if reduction == "batchmean":
        return found.sum() * (1 / max(input.shape[0], 1))
    return reduced(found, reduction)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """e**x - y x, or x - y log(x + eps); ``full`` adds Stirling's approximation of log(y!)."""
    found = losses.poisson_nll(TENSORS, *upcast(input, target), log_input=log_input, full=full,
                               eps=eps)
    return reduced(found, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(v) + (x - y)² / v) / 2 with v = max(var, eps), which gets the gradient of ``var``."""
    if not isinstance(var, Tensor):
        raise InvalidInputError("gaussian_nll_loss: var is a tensor", got=type(var).__name__)
    if var.ndim == input.ndim - 1:
        var = call("expand_dims", var, axis=-1)
    found = losses.gaussian_nll(TENSORS, *upcast(input, target), variance=var, full=full, eps=eps)
    return reduced(found, reduction)
