"""Classification losses: cross entropy and negative log likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Dim, DType, RelationContext, TensorType, attr, int64, multilinear, one_of
from weft.ir.expr import Call, Expr, const
from weft.ir.op import Op, OpPattern, define_op, get_op, op_case
from weft.op.batching import aligned
from weft.op.gradients import divided_by_size, known_shape, scalar, tensor_type
from weft.support.dataclass import dataclass
from weft.topi.nn import loss as topi_loss


def _entropy_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    predictions, targets = types
    for arg, type_ in enumerate((predictions, targets)):
        ctx.expect_rank(arg, type_, 2)
        ctx.expect_float(arg, type_)
    ctx.expect_same_dtype(1, targets, predictions.dtype)
    for axis in (0, 1):
        ctx.expect_dim(1, axis, targets.shape[axis], predictions.shape[axis],
                       "the targets do not fit the predictions")
    ctx.output(TensorType((), predictions.dtype))
    return True


@define_op("nn.cross_entropy", relation=_entropy_relation, pattern=OpPattern.OPAQUE, level=10,
           inputs=("predictions", "targets"))
def cross_entropy(predictions: te.Tensor, targets: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """The mean over the batch of -sum(targets * log(predictions)); both are (batch, classes)."""
    return topi_loss.cross_entropy(predictions, targets, is_log=False)


@define_op("nn.cross_entropy_with_logits", relation=_entropy_relation, pattern=OpPattern.OPAQUE,
           level=10, inputs=("predictions", "targets"), traits=multilinear())
def cross_entropy_with_logits(
    predictions: te.Tensor, targets: te.Tensor, _attrs: Attrs
) -> te.Tensor:
    """The mean over the batch of -sum(targets * predictions), for logarithmic predictions."""
    return topi_loss.cross_entropy(predictions, targets, is_log=True)


def _mean_product(logs: np.ndarray, targets: np.ndarray, dtype: Any) -> np.ndarray:
    total = (logs.astype(np.float64) * targets).sum()
    return np.asarray(-total / np.float64(len(logs)), dtype)


for _op in (cross_entropy, cross_entropy_with_logits):
    _op.refer(reduced_form=f"weft.op.reduced_forms:{_op.name.removeprefix('nn.')}")


@cross_entropy.gradient
def _cross_entropy_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    predictions, targets = call.args
    share = _share(call, dy)
    return [share * targets / predictions, share * get_op("log")(predictions)]


@cross_entropy_with_logits.gradient
def _with_logits_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    predictions, targets = call.args
    share = _share(call, dy)
    return [share * targets, share * predictions]


def _share(call: Call, dy: Expr) -> Expr:
    """Minus the gradient of the mean for one element of the batch."""
    batch = known_shape(call.args[0], call)[0]
    if isinstance(batch, int):
        return dy * scalar(-1.0 / max(batch, 1), dy)
    return divided_by_size(-dy, batch, dy)


cross_entropy.spec(
    lambda p, t: _mean_product(np.log(p), t, p.dtype),
    op_case((3, 5), (3, 5), low=0.1, high=1.0), op_case((1, 2), (1, 2), low=0.1, high=1.0),
)
cross_entropy_with_logits.spec(
    lambda p, t: _mean_product(p, t, p.dtype), op_case((3, 5), (3, 5)), op_case((2, 1), (2, 1)),
)


@dataclass(frozen=True, kw_only=True)
class NllLossAttrs(Attrs):
    reduction: str = attr("mean", "reduction of the losses",
                          check=one_of("mean", "sum", "none"),
                          expected='"mean" (weighted), "sum" or "none"')
    ignore_index: int = attr(-100, "class whose elements are ignored")


def _nll_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    predictions, targets, weights = types
    ctx.expect_float(0, predictions)
    ctx.expect_min_rank(0, predictions, 2)
    ctx.expect_int(1, targets)
    ctx.expect_rank(1, targets, predictions.ndim - 1)
    ctx.expect_rank(2, weights, 1)
    ctx.expect_same_dtype(2, weights, predictions.dtype)
    ctx.expect_dim(2, 0, weights.shape[0], predictions.shape[1],
                   "expected one weight per class")
    if predictions.shape[1] == 0:
        ctx.fail("the number of classes is 0", arg=0, axis=1, expected="a size of 1 or more", got=0)
    for axis, size in enumerate((predictions.shape[0], *predictions.shape[2:])):
        ctx.expect_dim(1, axis, targets.shape[axis], size,
                       "the targets do not fit the predictions")
    whole = ctx.attrs_as(NllLossAttrs).reduction == "none"
    ctx.output(TensorType(targets.shape if whole else (), predictions.dtype))
    return True


@define_op("nn.nll_loss", attrs=NllLossAttrs, relation=_nll_relation, pattern=OpPattern.OPAQUE,
           level=10)
def nll_loss(
    predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor, attrs: NllLossAttrs
) -> te.Tensor:
    """-weights[t] * predictions[n, t, ...] with t = targets[n, ...], reduced.

    ``predictions`` are logarithms of probabilities (batch, classes, ...). The mean is weighted,
    without ignored elements. A target that is neither a class nor ignored makes NaN of its loss:
    a program cannot raise for one.
    """
    return topi_loss.nll_loss(predictions, targets, weights, reduction=attrs.reduction,
                              ignore_index=attrs.ignore_index)


def _nll_reference(
    predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray, reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    counts = targets != ignore_index
    found = np.clip(targets, 0, predictions.shape[1] - 1)
    picked = np.take_along_axis(predictions.astype(np.float64), np.expand_dims(found, 1), 1)
    share = np.where(found == targets, weights[found], np.nan)
    share = np.where(counts, share, 0).astype(np.float64)
    losses = -picked.squeeze(1) * share
    if reduction == "none":
        return losses.astype(predictions.dtype)
    total = losses.sum() / (share.sum() if reduction == "mean" else 1.0)
    return np.asarray(total, predictions.dtype)


@nll_loss.expansion
def _expand_nll_loss(call: Call) -> Expr | None:
    """A one-hot row per target selects its prediction and its weight."""
    attrs: Any = call.attrs
    predictions, targets, weights = call.args
    type_, kind = tensor_type(predictions), int64
    targets = get_op("cast")(targets, dtype=kind)  # an unsigned type has no -100 to ignore
    classes = type_.shape[1]
    if not isinstance(classes, int):
        return None
    column = (classes, *(1,) * (type_.ndim - 2))
    numbers = const(np.arange(classes, dtype=kind.numpy).reshape(column))
    # The ignored class is usually out of range; ``counted`` excludes it after the clamp. Other
    # targets out of range weigh NaN.
    found = get_op("minimum")(get_op("maximum")(targets, const(0, kind)), const(classes - 1, kind))
    chosen = get_op("equal")(get_op("expand_dims")(found, axis=1), numbers)
    counted = get_op("not_equal")(get_op("expand_dims")(targets, axis=1),
                                  const(attrs.ignore_index, kind))
    mask = get_op("cast")(get_op("logical_and")(chosen, counted), dtype=type_.dtype)
    is_valid = get_op("logical_or")(get_op("equal")(found, targets), get_op("equal")(
        targets, const(attrs.ignore_index, kind)))
    valid = get_op("where")(is_valid, scalar(1.0, weights), scalar(math.nan, weights))
    share = mask * get_op("reshape")(weights, newshape=column) * get_op("expand_dims")(
        valid, axis=1)
    total = get_op("sum")
    losses = get_op("negative")(total(share * predictions, axis=(1,)))
    if attrs.reduction == "none":
        return losses
    if attrs.reduction == "sum":
        return total(losses)
    return _mean(total(losses), total(share), type_.dtype)


def _mean(losses: Expr, weight: Expr, dtype: DType) -> Expr:
    """The quotient, whose derivative is 0 where nothing counts (as in torch)."""
    nothing = get_op("equal")(weight, const(0.0, dtype))
    mean = losses / get_op("where")(nothing, const(1.0, dtype), weight)
    return get_op("where")(nothing, get_op("annotation.stop_gradient")(losses / weight), mean)


_TARGETS = np.array([1, 0, 4, 2], np.int32)
_PIXELS = np.array([[[0, 1, 2], [2, 2, 1]]], np.int64)
nll_loss.spec(
    _nll_reference,
    op_case((4, 5), _TARGETS, (5,), low=0.1, high=1.0),
    op_case((4, 5), _TARGETS, (5,), low=0.1, high=1.0, reduction="sum", ignore_index=4),
    op_case((1, 3, 2, 3), _PIXELS, (3,), low=0.1, high=1.0, reduction="none", ignore_index=2),
    op_case((1, 3, 2, 3), _PIXELS, (3,), low=0.1, high=1.0),
)


@cross_entropy.batching
@cross_entropy_with_logits.batching
def _entropy_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
) -> Expr:
    """The mean over the rows of each example."""
    predictions, targets = (aligned(a, e, 2) if b else a for a, e, b
                            in zip(args, call.args, is_batched, strict=True))
    is_log = isinstance(call.op, Op) and call.op.name.endswith("with_logits")
    logs = predictions if is_log else get_op("log")(predictions)
    total = get_op("sum")(get_op("multiply")(targets, logs), axis=(1, 2))
    rows = known_shape(call.args[0], call)[0]
    return divided_by_size(get_op("negative")(total), rows, call.args[0])
