"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.export.onnx.call import CallWriter
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir.dtype import float32
from weft.topi.nn.conv import SPATIAL_AXES, side_padding

_OF_AXES = {1: "1d", 2: "2d", 3: "3d"}


def _to_layout(c: CallWriter, name: str, have: str, want: str) -> str:
    """``name`` with the axes that ``have`` names in the order of ``want``."""
    return c.transposed(name, [have.index(letter) for letter in want])


def is_whole(*layouts: str) -> bool:
    """Whether no axis of the layouts is split into blocks."""
    return all(layout.isalpha() and layout.isupper() for layout in layouts)


def pads_of(padding: Sequence[int], axes: int) -> list[int]:
    """ONNX's order: all befores, then all afters."""
    before, after = zip(*side_padding(padding, axes), strict=True)
    return [*before, *after]


@writes("nn.conv1d", "nn.conv2d", "nn.conv3d")
def conv(c: CallWriter) -> Value | None:
    a = c.attrs
    out = a.out_layout or a.data_layout
    if not is_whole(a.data_layout, a.kernel_layout, out):
        return c.no_form(f"layouts {a.data_layout} and {a.kernel_layout}")
    want = c.result.dtype
    wide = want if want.is_float else float32
    if not want.is_float:
        return c.no_form("convolutions of integers")
    data, kernel = (c.as_dtype(n, t.dtype, wide) for n, t in zip(c.inputs, c.types, strict=True))
    images = "NC" + a.spatial
    found = c.emit("Conv", _to_layout(c, data, a.data_layout, images),
                   _to_layout(c, kernel, a.kernel_layout, "OI" + a.spatial),
                   strides=list(a.strides), dilations=list(a.dilation), group=a.groups,
                   pads=pads_of(a.padding, len(a.spatial)))
    return _to_layout(c, found, images, out)


@writes("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(c: CallWriter) -> Value | None:
    a = c.attrs
    out = a.out_layout or a.data_layout
    if not is_whole(a.data_layout, a.kernel_layout, out) or not c.result.dtype.is_float:
        return c.no_form("transposed convolutions of integers and in blocks")
    images = "NC" + a.spatial
    data, kernel = (c.as_dtype(n, t.dtype, c.result.dtype)
                    for n, t in zip(c.inputs, c.types, strict=True))
    found = c.emit("ConvTranspose", _to_layout(c, data, a.data_layout, images),
                   _to_layout(c, kernel, a.kernel_layout, "IO" + a.spatial),
                   strides=list(a.strides), dilations=list(a.dilation), group=a.groups,
                   output_padding=list(a.output_padding),
                   pads=pads_of(a.padding, len(a.spatial)))
    return _to_layout(c, found, images, out)


@writes(*(f"nn.{kind}_pool{n}" for kind in ("max", "avg") for n in _OF_AXES.values()))
def pool(c: CallWriter) -> Value | None:
    a = c.attrs
    if not is_whole(a.layout):
        return c.no_form(f"layout {a.layout}")
    if not c.dtype.is_float:
        return c.no_form("pooling of integers")
    is_max = c.name.startswith("nn.max")
    images = "NC" + SPATIAL_AXES[len(a.pool_size)]
    further: dict[str, Any] = {} if is_max else {"count_include_pad": int(a.count_include_pad)}
    found = c.emit("MaxPool" if is_max else "AveragePool",
                   _to_layout(c, c.inputs[0], a.layout, images), kernel_shape=list(a.pool_size),
                   strides=list(a.strides), dilations=list(a.dilation), ceil_mode=int(a.ceil_mode),
                   pads=pads_of(a.padding, len(a.pool_size)), **further)
    return _to_layout(c, found, images, a.layout)


@writes(*(f"nn.global_{kind}_pool{n}" for kind in ("max", "avg") for n in _OF_AXES.values()))
def global_pool(c: CallWriter) -> Value | None:
    layout = c.attrs.layout
    if not is_whole(layout) or not c.dtype.is_float or not {"N", "C"} <= set(layout):
        return c.no_form(f"layout {layout} of {c.dtype}")
    is_max = "max" in c.name
    images = "NC" + SPATIAL_AXES[len(layout) - 2]
    found = c.emit("GlobalMaxPool" if is_max else "GlobalAveragePool",
                   _to_layout(c, c.inputs[0], layout, images))
    return _to_layout(c, found, images, layout)
