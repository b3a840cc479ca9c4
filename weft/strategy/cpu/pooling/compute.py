"""The te definitions of separable pooling."""

from __future__ import annotations

from typing import Protocol

from weft import te
from weft.op.nn.pool import PoolAttrs
from weft.topi.layout import Layout
from weft.topi.nn import pool as topi_pool


class AveragePoolAttrs(Protocol):
    """The attributes that ``nn.avg_pool1d``, ``nn.avg_pool2d`` and ``nn.avg_pool3d`` share."""

    @property
    def window(self) -> topi_pool.PoolWindow: ...

    @property
    def layout(self) -> str: ...

    @property
    def count_include_pad(self) -> bool: ...


def max_by_columns(x: te.Tensor, attrs: PoolAttrs) -> te.Tensor:
    """Maxima over windows, with the stage ``pool_columns`` in between."""
    return topi_pool.max_pool(x, attrs.window, Layout.parse(attrs.layout), by_columns=True)


def avg_by_columns(x: te.Tensor, attrs: AveragePoolAttrs) -> te.Tensor:
    """Means over windows, with the stage ``pool_columns`` in between."""
    return topi_pool.avg_pool(x, attrs.window, Layout.parse(attrs.layout), by_columns=True,
                              count_include_pad=attrs.count_include_pad)
