"""Pooling layers with torch's arguments."""

from __future__ import annotations

from typing import Any

from weft.eager.tensor import Tensor
from weft.nn.modules.function_layer import FunctionLayer
from weft.nn.modules.module import ModuleError


class _Pool(FunctionLayer):
    """A pool whose stride is its window unless given."""

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        stride = given["stride"]
        return given | {"stride": given["kernel_size"] if stride in (None, ()) else stride}


class _MaxPool(_Pool, takes="kernel_size stride=None padding=0 dilation=1 return_indices=False "
                            "ceil_mode=False"):
    shown = "kernel_size stride padding dilation ceil_mode"


class MaxPool1d(_MaxPool, function="max_pool1d"):
    """The maximum of each window of (N, C, L)."""


class MaxPool2d(_MaxPool, function="max_pool2d"):
    """The maximum of each window of (N, C, H, W)."""


class MaxPool3d(_MaxPool, function="max_pool3d"):
    """The maximum of each window of (N, C, D, H, W)."""


class _AvgPool(_Pool, takes="kernel_size stride=None padding=0 ceil_mode=False "
                            "count_include_pad=True divisor_override=None"):
    shown = "kernel_size stride padding"


class AvgPool1d(_Pool, function="avg_pool1d",
                takes="kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True"):
    """The mean of each window of (N, C, L)."""

    shown = "kernel_size stride padding"


class AvgPool2d(_AvgPool, function="avg_pool2d"):
    """The mean of each window of (N, C, H, W)."""


class AvgPool3d(_AvgPool, function="avg_pool3d"):
    """The mean of each window of (N, C, D, H, W)."""


class _MaxUnpool(_Pool, takes="kernel_size stride=None padding=0"):
    """The inverse of a max pool, by its indices: ``layer(input, indices, output_size=None)``."""

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return super().forward(input, indices, output_size=output_size)


class MaxUnpool1d(_MaxUnpool, function="max_unpool1d"):
    """Maxima of (N, C, L) at their places, zeros elsewhere."""


class MaxUnpool2d(_MaxUnpool, function="max_unpool2d"):
    """Maxima of (N, C, H, W) at their places, zeros elsewhere."""


class MaxUnpool3d(_MaxUnpool, function="max_unpool3d"):
    """Maxima of (N, C, D, H, W) at their places, zeros elsewhere."""


class _FractionalMaxPool(FunctionLayer, takes="kernel_size output_size=None output_ratio=None "
                                              "return_indices=False _random_samples=None"):
    """The maximum over windows of random places, as many as ``output_size`` or its ratio."""

    buffers_of = ("_random_samples",)
    shown = ""

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        if (given["output_size"] is None) == (given["output_ratio"] is None):
            raise ModuleError(f"{type(self).__name__} takes either output_size or output_ratio")
        return given


class FractionalMaxPool2d(_FractionalMaxPool, function="fractional_max_pool2d"):
    """Fractional max pooling of (N, C, H, W) (Graham 2014)."""


class FractionalMaxPool3d(_FractionalMaxPool, function="fractional_max_pool3d"):
    """Fractional max pooling of (N, C, D, H, W)."""


class _LPPool(FunctionLayer, takes="norm_type kernel_size stride=None ceil_mode=False"):
    pass


class LPPool1d(_LPPool, function="lp_pool1d"):
    """The p-norm of each window of (N, C, L)."""


class LPPool2d(_LPPool, function="lp_pool2d"):
    """The p-norm of each window of (N, C, H, W)."""


class LPPool3d(_LPPool, function="lp_pool3d"):
    """The p-norm of each window of (N, C, D, H, W)."""


class AdaptiveAvgPool1d(FunctionLayer, function="adaptive_avg_pool1d", takes="output_size"):
    """(N, C, L) to (N, C, output_size): the means of windows that divide the axis."""


class AdaptiveAvgPool2d(FunctionLayer, function="adaptive_avg_pool2d", takes="output_size"):
    """(N, C, H, W) to (N, C, *output_size)."""


class AdaptiveAvgPool3d(FunctionLayer, function="adaptive_avg_pool3d", takes="output_size"):
    """(N, C, D, H, W) to (N, C, *output_size)."""


class _AdaptiveMaxPool(FunctionLayer, takes="output_size return_indices=False"):
    shown = "output_size"


class AdaptiveMaxPool1d(_AdaptiveMaxPool, function="adaptive_max_pool1d"):
    """(N, C, L) to (N, C, output_size): the maxima of windows that divide the axis."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool, function="adaptive_max_pool2d"):
    """(N, C, H, W) to (N, C, *output_size)."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool, function="adaptive_max_pool3d"):
    """(N, C, D, H, W) to (N, C, *output_size)."""
