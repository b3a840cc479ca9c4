"""Convolution layers, with torch's arguments, weight layouts and initial values."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.functional.sizes import per_axis
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: sizes, weight, bias and initial values."""

    axes: ClassVar[int]
    transposed: ClassVar[bool] = False
    bias: Parameter | None

    def _build(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any,
        dilation: Any, groups: int, bias: bool, padding_mode: str, device: Any, dtype: Any,
    ) -> None:
        self._check(in_channels, out_channels, groups, padding_mode)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis(kernel_size, self.axes, "kernel_size")
        self.stride = per_axis(stride, self.axes, "stride")
        self.dilation = per_axis(dilation, self.axes, "dilation")
        is_named = isinstance(padding, str)
        self.padding = padding if is_named else per_axis(padding, self.axes, "padding")
        self.padding_mode = padding_mode
        channels = ((in_channels, out_channels // groups) if self.transposed
                    else (out_channels, in_channels // groups))
        self.weight = new_parameter((*channels, *self.kernel_size), dtype, device)
        made = new_parameter((out_channels,), dtype, device) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def _check(self, in_channels: int, out_channels: int, groups: int, padding_mode: str) -> None:
        for name, size in (("in_channels", in_channels), ("out_channels", out_channels)):
            if groups < 1 or size % groups:
                raise ModuleError(f"{name} does not divide into groups", got=size,
                                  expected=f"a multiple of {groups}")
        if padding_mode not in _PADDING_MODES:
            raise ModuleError("unknown padding_mode", got=repr(padding_mode),
                              expected=", ".join(_PADDING_MODES))

    def _amount(self, axis: int) -> int:
        """The padding on each side of a spatial axis."""
        return 0 if isinstance(self.padding, str) else self.padding[axis]

    def reset_parameters(self) -> None:
        """Uniform numbers within 1 / sqrt(fan_in), as in torch."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def extra_repr(self) -> str:
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}")
        if self.padding != (0,) * self.axes:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.axes:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else (
            f"{text}, padding_mode={self.padding_mode}")


class _Conv(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self._build(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                    bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._amounts(), mode=self.padding_mode)
            padding = 0
        function = getattr(F, f"conv{self.axes}d")
        return function(input, self.weight, self.bias, self.stride, padding, self.dilation,
                        self.groups)

    def _amounts(self) -> list[int]:
        """The amounts of ``F.pad``, from the last axis backwards."""
        pairs: list[tuple[int, int]] = []
        for axis in range(self.axes):
            total = self.dilation[axis] * (self.kernel_size[axis] - 1)
            if self.padding == "same":
                pairs.append((total // 2, total - total // 2))
            else:
                amount = self._amount(axis)
                pairs.append((amount, amount))
        return [amount for pair in reversed(pairs) for amount in pair]


class Conv1d(_Conv):
    """(N, C, L) to (N, out_channels, L'); ``weight`` (out, C / groups, k)."""

    axes = 1


class Conv2d(_Conv):
    """(N, C, H, W) to (N, out_channels, H', W'); ``weight`` (out, C / groups, kH, kW)."""

    axes = 2


class Conv3d(_Conv):
    """(N, C, D, H, W) to (N, out_channels, D', H', W')."""

    axes = 3


class _ConvTranspose(_ConvNd):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True,
        dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_mode != "zeros":
            raise ModuleError("a transposed convolution pads with zeros", got=repr(padding_mode))
        self.output_padding = per_axis(output_padding, self.axes, "output_padding")
        self._build(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                    bias, padding_mode, device, dtype)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self.output_padding
        if output_size is not None:
            extra = self._extra(tuple(input.shape), tuple(output_size))
        function = getattr(F, f"conv_transpose{self.axes}d")
        return function(input, self.weight, self.bias, self.stride, self.padding, extra,
                        self.groups, self.dilation)

    def _extra(self, shape: tuple[int, ...], output_size: tuple[int, ...]) -> tuple[int, ...]:
        """The output padding that gives ``output_size``, whose last axes are spatial."""
        found = []
        for axis in range(self.axes):
            least = ((shape[axis - self.axes] - 1) * self.stride[axis] - 2 * self._amount(axis)
                     + self.dilation[axis] * (self.kernel_size[axis] - 1) + 1)
            wanted = output_size[axis - self.axes]
            if not least <= wanted < least + self.stride[axis]:
                raise ModuleError("output_size is not possible", got=wanted,
                                  where=f"spatial axis {axis}",
                                  expected=f"{least} to {least + self.stride[axis] - 1}")
            found.append(wanted - least)
        return tuple(found)


class ConvTranspose1d(_ConvTranspose):
    """The gradient of ``Conv1d``; ``weight`` (C, out / groups, k)."""

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """The gradient of ``Conv2d``; ``weight`` (C, out / groups, kH, kW)."""

    axes = 2


class ConvTranspose3d(_ConvTranspose):
    """The gradient of ``Conv3d``; ``weight`` (C, out / groups, kD, kH, kW)."""

    axes = 3
