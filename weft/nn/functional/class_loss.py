"""Losses of classes: cross entropy, negative log likelihood, connectionist temporal classification.

``size_average`` and ``reduce`` are torch's older arguments for ``reduction``.
"""

from __future__ import annotations

import math

from weft.amp.autocast import upcast
from weft.eager.cell import node_of
from weft.eager.checks import require_classes
from weft.eager.emitter import call
from weft.eager.functions.creation import as_tensor
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.activation import log_softmax
from weft.nn.functional.conv import linear
from weft.nn.functional.sizes import along, reduced, reduction_of
from weft.support.errors import InvalidInputError


@checked
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, …) or (C) and classes (N, …) or probabilities (N, C, …).

    ``label_smoothing`` mixes the target with the uniform distribution. The mean over classes is
    weighted by ``weight`` (C) and leaves out ``ignore_index``; that over probabilities divides by
    N. Raises ``IndexRangeError`` for a class out of range that is not ``ignore_index``.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if not 0 <= label_smoothing <= 1:
        raise InvalidInputError("cross_entropy: label_smoothing is out of range",
                                expected="0 to 1", got=label_smoothing)
    (input, weight), target = upcast(input, weight), as_tensor(target)
    axis = 1 if input.ndim > 1 else 0
    logs = log_softmax(input, axis)
    if target.dtype.is_floating_point:
        return _of_probabilities(logs, target, axis, weight, reduction, label_smoothing)
    if label_smoothing == 0:
        return _picked(logs, target, weight, ignore_index, reduction)
    return _smoothed(logs, _classes(target), axis, weight, ignore_index, reduction,
                     label_smoothing)


@checked
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: object = None,  # noqa: ARG001 - torch's
) -> Tensor:
    """``cross_entropy`` of ``linear(input, linear_weight, linear_bias)``.

    ``linear_weight`` is (C, …, in features). Torch's ``options``, which divide the computation into
    chunks, do not change the result and are ignored.
    """
    classes, *others, features = linear_weight.shape
    flat = None if linear_bias is None else linear_bias.reshape((-1,))
    logits = linear(input, linear_weight.reshape((-1, features)), flat)
    if others:
        logits = logits.reshape((input.shape[0], classes, *others))
    return cross_entropy(logits, target, weight, ignore_index=-100 if ignore_index is None
                         else ignore_index, reduction=reduction, label_smoothing=label_smoothing)


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
    return found.sum() * (1 / count if count else math.nan)


def _smoothed(
    logs: Tensor, target: Tensor, axis: int, weight: Tensor | None, ignore_index: int,
    reduction: str, smoothing: float,
) -> Tensor:
    counts = call("not_equal", target, ignore_index)
    weighted = logs if weight is None else logs * along(weight, axis, logs.ndim)
    uniform = call("where", counts, -call("sum", weighted, axis=axis), 0.0)
    picked = _picked(logs, target, weight, ignore_index, "none")
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


@checked
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:
    """-weight[t] * input[n, t, …] for log-probabilities (N, C, …) or (C) and classes (N, …).

    Raises ``IndexRangeError`` for a class out of range that is not ``ignore_index``.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    input, weight = upcast(input, weight)
    return _picked(input, as_tensor(target), weight, ignore_index, reduction)


def _classes(target: Tensor) -> Tensor:
    """Labels of any integer dtype as int64."""
    name = target.dtype.name
    return target if name in ("int64", "int32") else call("cast", target, dtype="int64")


def _picked(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    target = _classes(target)
    if input.ndim == 1:
        input, target = call("expand_dims", input, axis=0), target.reshape((1,))
        result = _picked(input, target, weight, ignore_index, reduction)
        return result.reshape(()) if reduction == "none" else result
    if input.ndim < 1 or (input.shape[0], *input.shape[2:]) != tuple(target.shape):
        raise InvalidInputError("the target does not fit the input", got=tuple(target.shape),
                                expected=f"one class for each row of {tuple(input.shape)}")
    if weight is None:
        weight = call("ones", shape=(input.shape[1],), dtype=input.dtype.name)
    loss = call("nn.nll_loss", input, target, weight, reduction=reduction,
                ignore_index=ignore_index)
    require_classes(node_of(loss), node_of(target), input.shape[1], ignore_index)
    return loss
