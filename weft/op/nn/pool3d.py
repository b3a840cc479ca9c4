"""Pooling over windows of volumes."""

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
class MaxPool3DAttrs(PoolAttrs):
    pool_size: tuple[int, int, int] = size_attr(3, "depth, height and width of the window")
    strides: tuple[int, int, int] = steps_attr(3, "steps along depth, height and width")
    dilation: tuple[int, int, int] = steps_attr(3, "distance of the taps")
    padding: tuple[int, ...] = padding_attr(3, PADDING_DOC)
    layout: str = attr("NCDHW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class AvgPool3DAttrs(MaxPool3DAttrs):
    count_include_pad: bool = count_include_pad_attr()


_CASES = (
    op_case((1, 2, 4, 5, 6), pool_size=(2, 3, 2), strides=(2, 1, 2)),
    op_case((1, 1, 5, 4, 5), pool_size=(3, 3, 3), strides=(2, 2, 2), padding=(1, 1, 1),
            ceil_mode=True),
    op_case((1, 1, 4, 4, 5), pool_size=(2, 2, 2), dilation=(1, 2, 3), padding=(0, 1, 1, 1, 0, 0)),
    op_case((1, 2, 2, 3, 3, 4), pool_size=(2, 2, 2), layout="NCDHW4c"),
)

max_pool3d = define_max_pool("nn.max_pool3d", MaxPool3DAttrs, (
    *_CASES,
    op_case((1, 1, 3, 3, 3), pool_size=(2, 2, 2), padding=(1,), dtypes="int32", low=-9, high=9),
))
avg_pool3d = define_avg_pool("nn.avg_pool3d", AvgPool3DAttrs, (
    *_CASES, op_case((1, 1, 3, 4, 4), pool_size=(3, 3, 3), padding=(1,), count_include_pad=True),
))
