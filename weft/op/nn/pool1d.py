"""Pooling over windows of signals."""

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
class MaxPool1DAttrs(PoolAttrs):
    pool_size: tuple[int] = size_attr(1, "width of the window")
    strides: tuple[int] = steps_attr(1, "step along the width")
    dilation: tuple[int] = steps_attr(1, "distance of the taps")
    padding: tuple[int, ...] = padding_attr(1, PADDING_DOC)
    layout: str = attr("NCW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class AvgPool1DAttrs(MaxPool1DAttrs):
    count_include_pad: bool = count_include_pad_attr()


_CASES = (
    op_case((1, 2, 7), pool_size=(3,), strides=(2,)),
    op_case((2, 3, 8), pool_size=(3,), strides=(2,), padding=(1, 0), ceil_mode=True),
    op_case((1, 1, 9), pool_size=(2,), dilation=(3,), padding=(1,)),
    op_case((1, 2, 5, 4), pool_size=(2,), layout="NCW4c"),
    op_case((0, 2, 5), pool_size=(2,)),
)

max_pool1d = define_max_pool("nn.max_pool1d", MaxPool1DAttrs, (
    *_CASES, op_case((1, 2, 4), pool_size=(2,), padding=(1,), dtypes="int32", low=-9, high=9),
))
avg_pool1d = define_avg_pool("nn.avg_pool1d", AvgPool1DAttrs, (
    *_CASES, op_case((1, 2, 6), pool_size=(3,), padding=(1,), count_include_pad=True),
))
