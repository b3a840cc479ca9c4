"""NNVM's neural network layers: dense, convolution, pooling and batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.compat.symbol.nnvm_ops import define
from weft.ir import Attrs, Expr, NoAttrs, Op, TupleGetItem, attr
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class DenseAttrs(Attrs):
    units: int = attr(doc="the size of the last axis of the result")
    use_bias: bool = attr(True, "whether there is a bias")


@dataclass(frozen=True, kw_only=True)
class Conv2dAttrs(Attrs):
    channels: int = attr(doc="the channels of the result")
    kernel_size: tuple[int, ...] = attr(doc="height and width of the kernel")
    strides: tuple[int, ...] = attr((1, 1), "the strides")
    padding: tuple[int, ...] = attr((0, 0), "the padding: two or four sizes")
    dilation: tuple[int, ...] = attr((1, 1), "the dilation")
    groups: int = attr(1, "the number of groups")
    layout: str = attr("NCHW", "the layout of data and result")
    kernel_layout: str = attr("OIHW", "the layout of the weight")
    use_bias: bool = attr(True, "whether there is a bias")


@dataclass(frozen=True, kw_only=True)
class Pool2dAttrs(Attrs):
    pool_size: tuple[int, ...] = attr(doc="height and width of the window")
    strides: tuple[int, ...] = attr((1, 1), "the strides")
    padding: tuple[int, ...] = attr((0, 0), "the padding: two or four sizes")
    layout: str = attr("NCHW", "the layout of data and result")
    ceil_mode: bool = attr(False, "whether the size of the result is rounded up")


@dataclass(frozen=True, kw_only=True)
class BatchNormAttrs(Attrs):
    axis: int = attr(1, "the axis of the channels")
    epsilon: float = attr(1e-5, "added to the variance")
    center: bool = attr(True, "whether beta is added")
    scale: bool = attr(True, "whether the result is multiplied by gamma")


def _dense(attrs: DenseAttrs, args: Sequence[Expr]) -> Expr:
    made = op.nn.dense(args[0], args[1], units=attrs.units)
    return op.nn.bias_add(made, args[2]) if attrs.use_bias else made


def _conv2d(attrs: Conv2dAttrs, args: Sequence[Expr]) -> Expr:
    made = op.nn.conv2d(
        args[0], args[1], channels=attrs.channels, kernel_size=attrs.kernel_size,
        strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
        groups=attrs.groups, data_layout=attrs.layout, kernel_layout=attrs.kernel_layout)
    return op.nn.bias_add(made, args[2], axis=attrs.layout.index("C")) if attrs.use_bias else made


def _with_bias(attrs: Any) -> tuple[str, ...]:
    return ("data", "weight", "bias") if attrs.use_bias else ("data", "weight")


def _batch_norm(attrs: BatchNormAttrs, args: Sequence[Expr]) -> Expr:
    return op.nn.batch_norm(*args, axis=attrs.axis, epsilon=attrs.epsilon, center=attrs.center,
                            scale=attrs.scale)


def _pool(name: str, base: Op) -> None:
    define(name, ("data",), lambda a, x: base(
        x[0], pool_size=a.pool_size, strides=a.strides, padding=a.padding, layout=a.layout,
        ceil_mode=a.ceil_mode), Pool2dAttrs)


define("dense", _with_bias, _dense, DenseAttrs)
define("conv2d", _with_bias, _conv2d, Conv2dAttrs)
define("batch_norm", ("data", "gamma", "beta", "moving_mean", "moving_var"),
       lambda a, x: TupleGetItem(_batch_norm(a, x), 0), BatchNormAttrs)
_pool("max_pool2d", op.nn.max_pool2d)
_pool("avg_pool2d", op.nn.avg_pool2d)
define("global_max_pool2d", ("data",), lambda _, x: op.nn.global_max_pool2d(x[0]), NoAttrs)
define("global_avg_pool2d", ("data",), lambda _, x: op.nn.global_avg_pool2d(x[0]), NoAttrs)
