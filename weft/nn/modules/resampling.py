"""Layers that pad, resize or rearrange spatial axes."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.module import Module


class Upsample(Module):
    """Resizes the spatial axes of (N, C, …) to ``size`` or by ``scale_factor``."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        given = (f"size={self.size}" if self.size is not None
                 else f"scale_factor={self.scale_factor}")
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes (N, C, H, W) to nearest neighbours."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes (N, C, H, W) by linear interpolation whose corners are aligned."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(Module):
    """(…, C·r², H, W) to (…, C, H·r, W·r)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(…, C, H·r, W·r) to (…, C·r², H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of ``groups`` groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class _Pad(Module):
    """Pads the last ``axes`` axes; ``padding``: one amount, or (before, after) from the last."""

    axes: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        is_one = isinstance(padding, int)
        self.padding = (padding,) * (2 * self.axes) if is_one else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """Pads the last axis with ``value``."""

    axes = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two axes with ``value``."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three axes with ``value``."""

    axes = 3


class ZeroPad1d(_ZeroPad):
    """Pads the last axis with zeros."""

    axes = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two axes with zeros."""

    axes = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three axes with zeros."""

    axes = 3


class ReflectionPad1d(_Pad):
    """Pads the last axis with its reflection."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last two axes with their reflection."""

    axes, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last three axes with their reflection."""

    axes, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last axis with its edge."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pads the last two axes with their edges."""

    axes, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pads the last three axes with their edges."""

    axes, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Pads the last axis with its other end."""

    axes, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pads the last two axes with their other ends."""

    axes, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Pads the last three axes with their other ends."""

    axes, mode = 3, "circular"
