"""nn.batch_norm_training: batch norm by the statistics of the batch, with running averages."""

from __future__ import annotations

import numpy as np

from weft import op, te
from weft.ir import Call, Expr, KnownDim, RelationContext, Tuple, TupleGetItem, attr, dim_product
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.traits import MixedPrecision, OpTraits
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relations import normalize_axis
from weft.op.gradients import (
    align_to_axis,
    attrs_of,
    divided_by_size,
    known_dim,
    known_shape,
    scalar,
    size_value,
    tensor_type,
)
from weft.op.nn.norm import BatchNormAttrs, expect_vector
from weft.support.dataclass import dataclass
from weft.topi.nn import norm as topi


@dataclass(frozen=True, kw_only=True)
class BatchNormTrainingAttrs(BatchNormAttrs):
    # Any number, as in torch: a momentum outside of 0 to 1 extrapolates.
    momentum: float = attr(0.1, "weight of the batch in the running averages")
    unbiased: bool = attr(True, "the running variance divides by the number of elements less 1 "
                                "(torch); otherwise by their number (ONNX)")


def _relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    axis = normalize_axis(ctx, ctx.attrs_as(BatchNormTrainingAttrs).axis, data.ndim)
    names = ("gamma", "beta", "moving_mean", "moving_var")
    sizes = [expect_vector(ctx, i, data, axis, n) for i, n in enumerate(names, start=1)]
    if None in sizes:
        return False
    vector = TensorType((data.shape[axis],), data.dtype)
    ctx.output(TupleType((data, vector, vector, vector, vector)))
    return True


@define_op("nn.batch_norm_training", attrs=BatchNormTrainingAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=1, traits=OpTraits(mixed_precision=MixedPrecision.NEVER),
           results=5)
def batch_norm_training(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, moving_mean: te.Tensor,
    moving_var: te.Tensor, attrs: BatchNormTrainingAttrs,
) -> tuple[te.Tensor, ...]:
    """``data`` normalised by mean and biased variance of each channel of the batch.

    Results: the normalised data, the mean and the biased variance of the batch, and the new moving
    mean and variance: ``(1 - momentum) * old + momentum * that of the batch`` (Ioffe and Szegedy
    2015; the momentum is torch's, which is 1 less that of ONNX).
    """
    return topi.batch_norm_training(
        data, gamma, beta, moving_mean, moving_var, axis=attrs.axis % data.ndim,
        epsilon=attrs.epsilon, center=attrs.center, scale=attrs.scale, momentum=attrs.momentum,
        unbiased=attrs.unbiased,
    )


def _reference(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray,
    axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
    momentum: float = 0.1, unbiased: bool = True,
) -> tuple[np.ndarray, ...]:
    wide = np.moveaxis(data, axis, -1).astype(np.float64)
    rows = wide.reshape(-1, wide.shape[-1])
    with np.errstate(all="ignore"):
        centre = rows.sum(0) / len(rows)
        spread = np.square(rows - centre).sum(0) / len(rows)
        normal = (wide - centre) / np.sqrt(spread + epsilon)
        normal = normal * gamma if scale else normal
        normal = normal + beta if center else normal
        estimate = spread * np.float64(len(rows)) / (len(rows) - 1) if unbiased else spread
    new_mean = (1 - momentum) * mean + momentum * centre
    new_var = (1 - momentum) * var + momentum * estimate
    vectors = [np.asarray(v).astype(data.dtype) for v in (centre, spread, new_mean, new_var)]
    return np.ascontiguousarray(np.moveaxis(normal, -1, axis)).astype(data.dtype), *vectors


batch_norm_training.spec(
    _reference,
    op_case((4, 3, 2, 5), (3,), (3,), (3,), (3,)),
    op_case((6, 4), (4,), (4,), (4,), (4,), axis=-1, momentum=0.9, unbiased=False),
    op_case((2, 5, 3), (3,), (3,), (3,), (3,), axis=2, epsilon=0.01, scale=False, momentum=0.0),
    op_case((5, 2, 3), (2,), (2,), (2,), (2,), center=False, momentum=1.0),
)


@batch_norm_training.decomposition
def _decomposition(call: Call) -> Expr:
    """Reductions and arithmetic, which fuse with their neighbours."""
    x, gamma, beta, moving_mean, moving_var = call.args
    attrs, ndim = attrs_of(call, BatchNormTrainingAttrs), tensor_type(x).ndim
    axis = attrs.axis % ndim
    axes = tuple(i for i in range(ndim) if i != axis)
    mean = op.mean(x, axis=axes)
    centred = op.subtract(x, align_to_axis(mean, axis, ndim))
    variance = op.mean(op.multiply(centred, centred), axis=axes)
    factor = op.rsqrt(op.add(variance, scalar(attrs.epsilon, x)))
    factor = op.multiply(factor, gamma) if attrs.scale else factor
    result = op.multiply(centred, align_to_axis(factor, axis, ndim))
    if attrs.center:
        result = op.add(result, align_to_axis(beta, axis, ndim))
    kept, added = scalar(1 - attrs.momentum, x), scalar(attrs.momentum, x)
    share = _estimate_share(attrs, _count(x, axis, call), x)
    moved_mean = op.add(op.multiply(moving_mean, kept), op.multiply(mean, added))
    moved_var = op.add(op.multiply(moving_var, kept), op.multiply(variance, share))
    return Tuple((result, mean, variance, moved_mean, moved_var), span=call.span)


def _count(x: Expr, axis: int, call: Call) -> KnownDim:
    """How many elements each channel has."""
    sizes = tuple(d for i, d in enumerate(known_shape(x, call)) if i != axis)
    return known_dim(dim_product(sizes), call)


@batch_norm_training.gradient
def _gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Two sums per channel and one pass over the data (Ioffe and Szegedy 2015, section 3).

    With ``n`` the normalised data and ``g = gamma * dy``, that of the data is
    ``(g - mean(g) - n * mean(g * n)) / deviation``, plus what arrives at the statistics.
    """
    x, gamma, _beta, _mean, _variance = call.args
    attrs, type_ = attrs_of(call, BatchNormTrainingAttrs), tensor_type(x)
    axis, ndim = attrs.axis % type_.ndim, type_.ndim
    axes = tuple(i for i in range(ndim) if i != axis)
    count = _count(x, axis, call)
    d_out, d_mean, d_var, d_moved_mean, d_moved_var = (TupleGetItem(dy, i) for i in range(5))
    momentum = scalar(attrs.momentum, x)

    def along(vector: Expr) -> Expr:
        return align_to_axis(vector, axis, ndim)

    rest = op.rsqrt(op.add(TupleGetItem(y, 2), scalar(attrs.epsilon, x)))
    centred = op.subtract(x, along(TupleGetItem(y, 1)))
    normal = op.multiply(centred, along(rest))
    for_beta = op.sum(d_out, axis=axes)
    for_gamma = op.sum(op.multiply(d_out, normal), axis=axes)
    mean_out, mean_product = (along(divided_by_size(s, count, x)) for s in (for_beta, for_gamma))
    factor = op.multiply(rest, gamma) if attrs.scale else rest
    drift = op.add(mean_out, op.multiply(normal, mean_product))
    through = op.multiply(op.subtract(d_out, drift), along(factor))
    at_mean = op.add(d_mean, op.multiply(d_moved_mean, momentum))
    at_var = op.add(d_var, op.multiply(d_moved_var, _estimate_share(attrs, count, x)))
    by_var = op.multiply(centred, along(op.multiply(at_var, scalar(2.0, x))))
    from_statistics = op.add(along(divided_by_size(at_mean, count, x)),
                             divided_by_size(by_var, count, x))
    kept = scalar(1 - attrs.momentum, x)
    zero = op.zeros_like
    return [op.add(through, from_statistics),
            for_gamma if attrs.scale else zero(gamma),
            for_beta if attrs.center else zero(_beta),
            op.multiply(d_moved_mean, kept), op.multiply(d_moved_var, kept)]


def _estimate_share(attrs: BatchNormTrainingAttrs, count: KnownDim, like: Expr) -> Expr:
    """The derivative of the moving variance by the biased variance of the batch."""
    if not attrs.unbiased:
        return scalar(attrs.momentum, like)
    if isinstance(count, int):
        return scalar(attrs.momentum * count / (count - 1) if count > 1 else np.nan, like)
    fewer = known_dim(count - 1, like)
    weighted = op.multiply(size_value(count, tensor_type(like).dtype),
                           scalar(attrs.momentum, like))
    return op.divide(weighted, size_value(fewer, tensor_type(like).dtype))
