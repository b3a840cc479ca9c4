"""Normalization and dropout, with their inference behaviour."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Dim, Op, OpPattern, RelationContext, attr, define_op, get_op, op_case
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, const
from weft.ir.traits import SENSITIVE, Family, MixedPrecision, OpTraits, in_family
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.relations import identity_relation, normalize_axis
from weft.op.batching import along, along_with_parameters, leading, with_attrs
from weft.op.gradients import align_to_axis, attrs_of, tensor_type
from weft.op.layout_inference import InputLayout, LayoutResult, along_axis, data_layout
from weft.support.dataclass import dataclass
from weft.tir.expr import const as tir_const
from weft.topi import elementwise, indexing
from weft.topi.nn import norm as topi_norm


def expect_vector(
    ctx: RelationContext, arg: int, data: TensorType, axis: int, name: str
) -> Dim | None:
    """Check that argument ``arg`` is a vector along ``axis`` of the data."""
    vector = ctx.tensor(arg)
    if vector is None:
        return None
    ctx.expect_rank(arg, vector, 1)
    ctx.expect_same_dtype(arg, vector, data.dtype)
    return ctx.expect_dim(arg, 0, vector.shape[0], data.shape[axis],
                          f"{name} does not fit the data", why=f" (axis {axis} of the data)")


@dataclass(frozen=True, kw_only=True)
class BatchNormAttrs(Attrs):
    axis: int = attr(1, "axis of the channels")
    epsilon: float = attr(1e-5, "added to the variance", check=lambda e: e >= 0,
                          expected="a number >= 0")
    center: bool = attr(True, "add beta")
    scale: bool = attr(True, "multiply by gamma")


def _batch_norm_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    axis = normalize_axis(ctx, ctx.attrs_as(BatchNormAttrs).axis, data.ndim)
    names = ("gamma", "beta", "moving_mean", "moving_var")
    sizes = [expect_vector(ctx, i, data, axis, n) for i, n in enumerate(names, start=1)]
    if None in sizes:
        return False
    vector = TensorType((data.shape[axis],), data.dtype)
    ctx.output(TupleType((data, vector, vector)))
    return True


@define_op("nn.batch_norm", attrs=BatchNormAttrs, relation=_batch_norm_relation,
           pattern=OpPattern.OPAQUE, level=1, traits=OpTraits(mixed_precision=MixedPrecision.NEVER),
           results=3)
def batch_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, moving_mean: te.Tensor,
    moving_var: te.Tensor, attrs: BatchNormAttrs,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """``data`` normalised by each channel's moving mean and variance, which are returned too."""
    out = topi_norm.batch_norm(
        data, gamma, beta, moving_mean, moving_var, axis=attrs.axis % data.ndim,
        epsilon=attrs.epsilon, center=attrs.center, scale=attrs.scale,
    )
    return out, elementwise.identity(moving_mean), elementwise.identity(moving_var)


def _along(vector: np.ndarray, ndim: int, axis: int) -> np.ndarray:
    shape = [1] * ndim
    shape[axis] = vector.size
    return vector.reshape(shape)


def _affine(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axis: int, center: bool,
            scale: bool) -> np.ndarray:
    x = x * _along(gamma, x.ndim, axis) if scale else x
    return x + _along(beta, x.ndim, axis) if center else x


def _batch_norm_reference(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray,
    axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> tuple[np.ndarray, ...]:
    deviation = np.sqrt(_along(var, data.ndim, axis).astype(np.float64) + epsilon)
    normal = (data - _along(mean, data.ndim, axis)) / deviation
    out = _affine(normal, gamma, beta, axis, center, scale).astype(data.dtype)
    return out, mean.copy(), var.copy()


def _norm_inputs(*shape: int, axis: int = 1) -> tuple[Any, ...]:
    """The shapes of data and vectors; the variances are constants, to be positive."""
    size = shape[axis]
    return shape, (size,), (size,), (size,), np.linspace(0.5, 2.0, size, dtype=np.float32)


@batch_norm.layout
def _batch_norm_layout(
    attrs: BatchNormAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """As for any function along an axis; the moving statistics stay vectors."""
    result = along_axis(3)(attrs, inputs, types)
    if result is None:
        return None
    return LayoutResult(result.inputs, (result.outputs[0], None, None), result.attrs)


batch_norm.spec(
    _batch_norm_reference,
    op_case(*_norm_inputs(2, 3, 4, 5)),
    op_case(*_norm_inputs(2, 3, 4, axis=-1), axis=-1, epsilon=0.01, scale=False),
    op_case(*_norm_inputs(4, 3), center=False),
)


@batch_norm.inference_form
def _scaled_and_shifted(call: Call) -> Expr:
    """``(x - mean) / sqrt(var + epsilon) * gamma + beta`` as ``x * scale + shift``.

    The two statistics are returned unchanged.
    """
    data, gamma, beta, mean, variance = call.args
    attrs, ndim = attrs_of(call, BatchNormAttrs), tensor_type(data).ndim
    scale = _folded(op.rsqrt, _folded(op.add, variance, const(
        attrs.epsilon, tensor_type(mean).dtype)))
    if attrs.scale:
        scale = _folded(op.multiply, gamma, scale)
    shift = _folded(op.negative, _folded(op.multiply, mean, scale))
    if attrs.center:
        shift = _folded(op.add, beta, shift)
    scale, shift = (_broadcast_along(v, attrs.axis % ndim, ndim) for v in (scale, shift))
    scaled = op.multiply(data, scale, span=call.span)
    return Tuple((op.add(scaled, shift, span=call.span), mean, variance), span=call.span)


def _broadcast_along(vector: Expr, axis: int, ndim: int) -> Expr:
    if isinstance(vector, Constant):
        shape = (*vector.data.shape, *(1,) * (ndim - 1 - axis))
        return Constant(vector.data.reshape(shape), span=vector.span)
    return align_to_axis(vector, axis, ndim)


def _folded(function: Op, *args: Expr) -> Expr:
    """``function`` of vectors: with constant statistics, as in a trained model, a constant."""
    if not all(isinstance(a, Constant) for a in args) or function.reference is None:
        return function(*args, span=args[0].span)  # type: ignore[no-any-return]
    with np.errstate(all="ignore"):
        value = function.reference(*(a.data for a in args))  # type: ignore[attr-defined]
    return Constant(np.asarray(value), span=args[0].span)


@dataclass(frozen=True, kw_only=True)
class LayerNormAttrs(Attrs):
    axis: int = attr(-1, "axis normalised over")
    epsilon: float = attr(1e-5, "added to the variance", check=lambda e: e >= 0,
                          expected="a number >= 0")
    center: bool = attr(True, "add beta")
    scale: bool = attr(True, "multiply by gamma")


def _layer_norm_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    axis = normalize_axis(ctx, ctx.attrs_as(LayerNormAttrs).axis, data.ndim)
    sizes = [expect_vector(ctx, i, data, axis, n) for i, n in ((1, "gamma"), (2, "beta"))]
    ctx.output(data)
    return None not in sizes


@define_op("nn.layer_norm", attrs=LayerNormAttrs, relation=_layer_norm_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=in_family(Family.REDUCTION, SENSITIVE))
def layer_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, attrs: LayerNormAttrs
) -> te.Tensor:
    """``data`` normalised along an axis to mean 0 and variance 1, times gamma, plus beta."""
    return topi_norm.layer_norm(
        data, gamma, beta, axis=attrs.axis % data.ndim, epsilon=attrs.epsilon,
        center=attrs.center, scale=attrs.scale,
    )


def _layer_norm_reference(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axis: int = -1,
    epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> np.ndarray:
    wide = data.astype(np.float64)
    centred = wide - wide.mean(axis=axis, keepdims=True)
    variance = np.square(centred).mean(axis=axis, keepdims=True)
    normal = centred / np.sqrt(variance + epsilon)
    return _affine(normal, gamma, beta, axis, center, scale).astype(data.dtype)


layer_norm.layout(along_axis())
layer_norm.spec(
    _layer_norm_reference,
    op_case((3, 7), (7,), (7,)),
    op_case((2, 3, 4), (3,), (3,), axis=1, epsilon=1e-3),
    op_case((3, 7), (7,), (7,), center=False, scale=False),
)


@layer_norm.expansion
def _layer_norm_expansion(call: Call) -> Expr:
    """The formula of ``layer_norm`` in operators that have gradients."""
    x, gamma, beta = call.args
    attrs, type_ = attrs_of(call, LayerNormAttrs), tensor_type(x)
    axis = attrs.axis % type_.ndim
    # The mean of the squares less the square of the mean would lose digits by cancellation.
    centred = op.subtract(x, op.mean(x, axis=(axis,), keepdims=True))
    variance = op.mean(op.multiply(centred, centred), axis=(axis,), keepdims=True)
    scale = op.rsqrt(op.add(variance, const(attrs.epsilon, type_.dtype)))
    result = op.multiply(centred, scale)
    if attrs.scale:
        result = op.multiply(result, align_to_axis(gamma, axis, type_.ndim))
    return op.add(result, align_to_axis(beta, axis, type_.ndim)) if attrs.center else result


@dataclass(frozen=True, kw_only=True)
class LrnAttrs(Attrs):
    size: int = attr(5, "number of neighbours, including the element",
                     check=lambda n: n > 0, expected="1 or more")
    axis: int = attr(1, "axis of the neighbours")
    bias: float = attr(2.0, "constant of the divisor")
    alpha: float = attr(1e-4, "weight of the mean square")
    beta: float = attr(0.75, "exponent of the divisor")


def _lrn_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is not None:
        ctx.expect_float(0, data)
        normalize_axis(ctx, ctx.attrs_as(LrnAttrs).axis, data.ndim)
    return identity_relation(ctx)


@define_op("nn.lrn", attrs=LrnAttrs, relation=_lrn_relation, pattern=OpPattern.OPAQUE, level=2,
           traits=SENSITIVE)
def lrn(data: te.Tensor, attrs: LrnAttrs) -> te.Tensor:
    """``data`` / (bias + alpha / size * sum of squares of the neighbours)**beta

    Of an even number of neighbours, the larger half follows the element.
    """
    return topi_norm.lrn(data, size=attrs.size, axis=attrs.axis % data.ndim, bias=attrs.bias,
                         alpha=attrs.alpha, beta=attrs.beta)


def _lrn_reference(
    data: np.ndarray, size: int = 5, axis: int = 1, bias: float = 2.0, alpha: float = 1e-4,
    beta: float = 0.75,
) -> np.ndarray:
    before = (size - 1) // 2
    widths = [(0, 0)] * data.ndim
    widths[axis] = (before, size - 1 - before)
    squares = np.square(np.pad(data.astype(np.float64), widths))
    if not data.size:
        return data.copy()
    total = np.lib.stride_tricks.sliding_window_view(squares, size, axis=axis).sum(axis=-1)
    return (data / (bias + alpha / size * total) ** beta).astype(data.dtype)


@lrn.expansion
def _expand_lrn(call: Call) -> Expr | None:
    """The sum over neighbours as a sum of shifted slices of the padded squares."""
    attrs: Any = call.attrs
    x, type_ = call.args[0], tensor_type(call.args[0])
    axis = attrs.axis % type_.ndim
    extent = type_.shape[axis]
    if not isinstance(extent, int):
        return None
    before = (attrs.size - 1) // 2
    widths = [(0, 0)] * type_.ndim
    widths[axis] = (before, attrs.size - 1 - before)
    multiply, add = get_op("multiply"), get_op("add")
    squares = get_op("nn.pad")(multiply(x, x), const(0, type_.dtype), pad_width=widths)
    shifted = (get_op("strided_slice")(squares, begin=(k,), end=(k + extent,), axes=(axis,))
               for k in range(attrs.size))
    total = functools.reduce(add, shifted)
    share = multiply(total, const(attrs.alpha / attrs.size, type_.dtype))
    level = add(share, const(attrs.bias, type_.dtype))
    return get_op("divide")(x, get_op("power")(level, const(attrs.beta, type_.dtype)))


lrn.layout(along_axis())
lrn.spec(
    _lrn_reference,
    op_case((1, 7, 3, 3), size=5, alpha=0.1),
    op_case((2, 4, 3), size=2, axis=-1, bias=1.0, alpha=1.0, beta=0.6),
    op_case((1, 3, 2, 2), size=3, beta=0.5, alpha=0.5),
)


@dataclass(frozen=True, kw_only=True)
class DropoutAttrs(Attrs):
    rate: float = attr(0.5, "fraction of the elements dropped in training",
                       check=lambda r: 0 <= r < 1, expected="0 <= rate < 1")


def _dropout_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    ctx.output(TupleType((data, data)))
    return True


@define_op("nn.dropout", attrs=DropoutAttrs, relation=_dropout_relation,
           pattern=OpPattern.OPAQUE, level=1, inputs=("data",), results=2)
def dropout(data: te.Tensor, _attrs: DropoutAttrs) -> tuple[te.Tensor, te.Tensor]:
    """``data`` unchanged, as in inference, and a mask of ones."""
    mask = indexing.full(data.shape, tir_const(1, data.dtype), "mask")
    return elementwise.identity(data), mask


def _dropout_reference(data: np.ndarray, **_: Any) -> Sequence[np.ndarray]:
    return data.copy(), np.ones_like(data)


@dropout.layout
def _dropout_layout(
    attrs: DropoutAttrs, inputs: tuple[InputLayout, ...], _types: tuple[Type, ...]
) -> LayoutResult | None:
    layout = data_layout(inputs)
    return None if layout is None else LayoutResult((layout,), (layout, layout), attrs)


@dropout.inference_form
def _with_everything_kept(call: Call) -> Expr:
    type_ = tensor_type(call.args[0])
    mask = op.ones(shape=type_.shape, dtype=type_.dtype, span=call.span)
    return Tuple((call.args[0], mask), span=call.span)


dropout.identity(lambda call: call.args[0])
dropout.spec(_dropout_reference, op_case((3, 5)), op_case((2,), rate=0.0))


layer_norm.batching(along_with_parameters("axis"))
layer_norm.refer(column_factors="weft.op.nn.constant_weights:SCALE_AND_SHIFT")
lrn.batching(along("axis"))
dropout.batching(leading)


@batch_norm.batching
def _batch_norm_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """Shared statistics: the batch joins the images; the statistics are returned once each."""
    if any(is_batched[1:]):
        return None
    type_ = tensor_type(call.args[0])
    axis = attrs_of(call, BatchNormAttrs).axis % type_.ndim
    result = with_attrs(call, args, axis=axis + 1)
    channels = tensor_type(call.args[3]).shape
    same = tuple(op.broadcast_to(args[i], shape=(size, *channels)) for i in (3, 4))
    return Tuple((TupleGetItem(result, 0), *same), span=call.span)
lrn.refer(permuted="weft.op.permuted:along_axis")
