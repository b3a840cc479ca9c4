"""NNVM's operators on arrays: padding, slices, indices, broadcasts and normalisation."""

from __future__ import annotations

from weft import op
from weft.compat.symbol.nnvm_ops import FilledAttrs, ReduceAttrs, ShapeAttrs, define
from weft.ir import Attrs, attr, const
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class PadAttrs(Attrs):
    pad_width: tuple[tuple[int, ...], ...] = attr(doc="elements before and after each axis")
    pad_value: float = attr(0.0, "their value")


@dataclass(frozen=True, kw_only=True)
class FullAttrs(FilledAttrs):
    fill_value: float = attr(doc="the value of all elements")


@dataclass(frozen=True, kw_only=True)
class TakeAttrs(Attrs):
    axis: int | None = attr(None, "the axis of the indices; None: of the flat data")


@dataclass(frozen=True, kw_only=True)
class StridedSliceAttrs(Attrs):
    begin: tuple[int, ...] = attr(doc="the first index of each axis")
    end: tuple[int, ...] = attr(doc="the index behind the last of each axis")
    stride: tuple[int, ...] = attr((), "the steps; none: 1")


@dataclass(frozen=True, kw_only=True)
class PreluAttrs(Attrs):
    axis: int = attr(1, "the axis of the channels")


@dataclass(frozen=True, kw_only=True)
class UpsamplingAttrs(Attrs):
    scale: int = attr(doc="the factor of height and width")
    layout: str = attr("NCHW", "the layout of data and result")
    method: str = attr("NEAREST_NEIGHBOR", "NEAREST_NEIGHBOR or BILINEAR")


@dataclass(frozen=True, kw_only=True)
class LrnAttrs(Attrs):
    size: int = attr(5, "how many channels are normalised together")
    axis: int = attr(1, "the axis of the channels")
    bias: float = attr(2.0, "the offset of the divisor")
    alpha: float = attr(1e-4, "the factor of the sum of squares")
    beta: float = attr(0.75, "the exponent of the divisor")


@dataclass(frozen=True, kw_only=True)
class L2NormalizeAttrs(Attrs):
    eps: float = attr(doc="the least divisor")
    axis: tuple[int, ...] = attr((1,), "the axes of the sum")


define("pad", ("data",), lambda a, x: op.nn.pad(
    x[0], op.cast_like(const(a.pad_value), x[0]), pad_width=a.pad_width), PadAttrs)
define("full", (), lambda a, _: op.full(const(a.fill_value, a.dtype), shape=a.shape), FullAttrs)
define("broadcast_to", ("data",), lambda a, x: op.broadcast_to(x[0], shape=a.shape), ShapeAttrs)
define("take", ("data", "indices"), lambda a, x: op.take(x[0], x[1], axis=a.axis), TakeAttrs,
       base=op.take)
define("strided_slice", ("data",), lambda a, x: op.strided_slice(
    x[0], begin=a.begin, end=a.end, strides=a.stride or None), StridedSliceAttrs)
define("argmax", ("data",), lambda a, x: op.argmax(
    x[0], axis=a.axis or None, keepdims=a.keepdims, exclude=a.exclude, dtype="int32"),
    ReduceAttrs)
define("argmin", ("data",), lambda a, x: op.argmin(
    x[0], axis=a.axis or None, keepdims=a.keepdims, exclude=a.exclude, dtype="int32"),
    ReduceAttrs)
define("prelu", ("data", "alpha"), lambda a, x: op.nn.prelu(x[0], x[1], axis=a.axis), PreluAttrs)
define("upsampling", ("data",), lambda a, x: op.nn.upsampling(
    x[0], scale_h=float(a.scale), scale_w=float(a.scale), layout=a.layout,
    method=a.method.lower()), UpsamplingAttrs)
define("lrn", ("data",), lambda a, x: op.nn.lrn(
    x[0], size=a.size, axis=a.axis, bias=a.bias, alpha=a.alpha, beta=a.beta), LrnAttrs)
define("l2_normalize", ("data",), lambda a, x: op.nn.l2_normalize(x[0], eps=a.eps, axis=a.axis),
       L2NormalizeAttrs)
