"""Pooling over windows of images."""

from __future__ import annotations

from weft.ir import attr, op_case
from weft.op.nn.conv import padding_attr, steps_attr
from weft.op.nn.pool import (
    PADDING_DOC,
    PoolAttrs,
    count_include_pad_attr,
    define_avg_pool,
    define_max_pool,
    size_attr,
)
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class MaxPool2DAttrs(PoolAttrs):
    pool_size: tuple[int, int] = size_attr(2, "height and width of the window")
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps")
    padding: tuple[int, ...] = padding_attr(2, PADDING_DOC)
    layout: str = attr("NCHW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class AvgPool2DAttrs(MaxPool2DAttrs):
    count_include_pad: bool = count_include_pad_attr()


_CASES = (
    op_case((1, 2, 6, 7), pool_size=(2, 3), strides=(2, 2)),
    op_case((2, 2, 7, 7), pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    op_case((1, 2, 7, 6), pool_size=(3, 3), strides=(2, 2), padding=(0, 1, 1, 0), ceil_mode=True),
    op_case((1, 1, 9, 8), pool_size=(2, 3), dilation=(2, 2), padding=(1, 2)),
    op_case((1, 2, 5, 5, 4), pool_size=(3, 3), strides=(2, 2), layout="NCHW4c", padding=(1, 1)),
    op_case((1, 5, 6, 3), pool_size=(2, 2), strides=(3, 2), layout="NHWC", ceil_mode=True),
)

max_pool2d = define_max_pool("nn.max_pool2d", MaxPool2DAttrs, (
    *_CASES,
    op_case((1, 2, 4, 4), pool_size=(2, 2), padding=(1, 1), dtypes="int32", low=-9, high=9),
))
avg_pool2d = define_avg_pool("nn.avg_pool2d", AvgPool2DAttrs, (
    *_CASES,
    op_case((1, 2, 6, 7), pool_size=(3, 3), padding=(1, 1), count_include_pad=True),
    op_case((1, 1, 6, 6), pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True,
            count_include_pad=True),
    op_case((1, 1, 8, 7), pool_size=(2, 2), strides=(3, 3), dilation=(2, 2), padding=(1, 1),
            ceil_mode=True, count_include_pad=True),
))
