"""Pooling layers with torch's arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.module import Module


class _MaxPool(Module):
    axes: ClassVar[int]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding, self.dilation = kernel_size, padding, dilation
        self.stride = kernel_size if stride is None else stride
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        function = getattr(F, f"max_pool{self.axes}d")
        return function(input, self.kernel_size, self.stride, self.padding, self.dilation,
                        self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPool):
    """The maximum of each window of (N, C, L)."""

    axes = 1


class MaxPool2d(_MaxPool):
    """The maximum of each window of (N, C, H, W)."""

    axes = 2


class MaxPool3d(_MaxPool):
    """The maximum of each window of (N, C, D, H, W)."""

    axes = 3


class _AvgPool(Module):
    axes: ClassVar[int]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding, self.ceil_mode = kernel_size, padding, ceil_mode
        self.stride = kernel_size if stride is None else stride
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        function = getattr(F, f"avg_pool{self.axes}d")
        return function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                        self.count_include_pad, self.divisor_override)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L)."""

    axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W)."""

    axes = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W)."""

    axes = 3


class _LPPool(Module):
    axes: ClassVar[int]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        function = getattr(F, f"lp_pool{self.axes}d")
        return function(input, float(self.norm_type), self.kernel_size, self.stride,
                        self.ceil_mode)

    def extra_repr(self) -> str:
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPool):
    """The p-norm of each window of (N, C, L)."""

    axes = 1


class LPPool2d(_LPPool):
    """The p-norm of each window of (N, C, H, W)."""

    axes = 2


class LPPool3d(_LPPool):
    """The p-norm of each window of (N, C, D, H, W)."""

    axes = 3


class _AdaptiveAvgPool(Module):
    axes: ClassVar[int]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, f"adaptive_avg_pool{self.axes}d")(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """(N, C, L) to (N, C, output_size): the means of windows that divide the axis."""

    axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """(N, C, H, W) to (N, C, *output_size)."""

    axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """(N, C, D, H, W) to (N, C, *output_size)."""

    axes = 3


class _AdaptiveMaxPool(Module):
    axes: ClassVar[int]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        function = getattr(F, f"adaptive_max_pool{self.axes}d")
        return function(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """(N, C, L) to (N, C, output_size): the maxima of windows that divide the axis."""

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """(N, C, H, W) to (N, C, *output_size)."""

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """(N, C, D, H, W) to (N, C, *output_size)."""

    axes = 3
