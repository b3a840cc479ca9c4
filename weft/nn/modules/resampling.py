"""Layers that pad, resize or rearrange spatial axes."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.function_layer import FunctionLayer
from weft.nn.modules.module import Module


class Upsample(FunctionLayer, function="interpolate",
               takes="size=None scale_factor=None mode='nearest' align_corners=None "
                     "recompute_scale_factor=None"):
    """Resizes the spatial axes of (N, C, …) to ``size`` or by ``scale_factor``."""

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


class PixelShuffle(FunctionLayer, function="pixel_shuffle", takes="upscale_factor"):
    """(…, C·r², H, W) to (…, C, H·r, W·r)."""


class PixelUnshuffle(FunctionLayer, function="pixel_unshuffle", takes="downscale_factor"):
    """(…, C, H·r, W·r) to (…, C·r², H, W)."""


class ChannelShuffle(FunctionLayer, function="channel_shuffle", takes="groups"):
    """Interleaves the channels of ``groups`` groups."""


class Unfold(FunctionLayer, function="unfold", takes="kernel_size dilation=1 padding=0 stride=1"):
    """(N, C, H, W) to its windows as columns, (N, C times window, windows)."""


class Fold(FunctionLayer, function="fold",
           takes="output_size kernel_size dilation=1 padding=0 stride=1"):
    """Windows as columns to (N, C, *output_size), where they overlap their sum."""


class _Pad(Module):
    """Pads the last ``axes`` axes; ``padding``: one amount, or (before, after) from the last."""

    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    def __init__(self, padding: Any) -> None:
        super().__init__()
        is_one = isinstance(padding, int)
        self.padding = (padding,) * (2 * self.axes) if is_one else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode,
                     self.value if self.mode == "constant" else None)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads the last axis with ``value``."""

    axes = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two axes with ``value``."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three axes with ``value``."""

    axes = 3


class ZeroPad1d(_Pad):
    """Pads the last axis with zeros."""

    axes = 1


class ZeroPad2d(_Pad):
    """Pads the last two axes with zeros."""

    axes = 2


class ZeroPad3d(_Pad):
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
