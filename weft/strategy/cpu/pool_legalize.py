"""Large windows of maxima as two small ones: first down the columns, then along the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.ir.expr import Call, Expr
from weft.ir.passes import PassContext
from weft.ir.types import Type
from weft.op.nn.pool2d import MaxPool2DAttrs
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize
from weft.topi.nn.conv import full_padding

# From so many positions on, reading them all takes longer than a result in between.
LARGE_WINDOW = 16


@legalize("nn.max_pool2d", target="cpu")
def separate_windows(
    call: Call, types: Sequence[Type], context: PassContext  # noqa: ARG001 - hooks share these
) -> Expr | None:
    """5 x 5 takes 10 readings in place of 25; the largest of maxima is the largest of all."""
    attrs = attrs_of(call, MaxPool2DAttrs)
    height, width = attrs.pool_size
    if min(height, width) < 2 or math.prod(attrs.pool_size) < LARGE_WINDOW:
        return None
    top, left, bottom, right = full_padding(attrs.padding, 2)
    columns = attrs.replace(
        pool_size=(height, 1), strides=(attrs.strides[0], 1), padding=(top, 0, bottom, 0),
        dilation=(attrs.dilation[0], 1),
    )
    rows = attrs.replace(
        pool_size=(1, width), strides=(1, attrs.strides[1]), padding=(0, left, 0, right),
        dilation=(1, attrs.dilation[1]),
    )
    first = call.replace(attrs=columns, checked_type=None)
    return call.replace(args=(first,), attrs=rows, checked_type=None)
