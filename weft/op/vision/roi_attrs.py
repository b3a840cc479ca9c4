"""Attributes and types of the pooling of regions of interest."""

from __future__ import annotations

from typing import Any

from weft.ir import Attrs, RelationContext, Shape, TensorType, attr, one_of
from weft.op.nn.conv import positive
from weft.support.dataclass import dataclass

_AXES = "NCHW"


def _layout_attr() -> Any:
    return attr("NCHW", "layout of the data and the result", check=one_of("NCHW", "NHWC"),
                expected='"NCHW" or "NHWC"')


def _size_attr() -> Any:
    return attr(doc="height and width of the results", check=positive,
                expected="two numbers >= 1")


@dataclass(frozen=True, kw_only=True)
class RoiPoolAttrs(Attrs):
    pooled_size: tuple[int, int] = _size_attr()
    spatial_scale: float = attr(1.0, "pixels of the data per unit of the regions",
                                check=lambda s: s > 0, expected="a number > 0")
    layout: str = _layout_attr()


@dataclass(frozen=True, kw_only=True)
class RoiAlignAttrs(RoiPoolAttrs):
    sample_ratio: int = attr(-1, "samples along each side of a bin; its length in pixels if not "
                             "positive")
    mode: str = attr("avg", "reduction of the samples of a bin", check=one_of("avg", "max"),
                     expected='"avg" or "max"')
    aligned: bool = attr(False, "pixel centres are at half coordinates")


def expect_regions(
    ctx: RelationContext, data: TensorType, rois: TensorType, *, first: int = 0
) -> Shape:
    """The shape of the result for data at argument ``first`` and regions after it, checked."""
    attrs = ctx.attrs_as(RoiPoolAttrs)
    for arg, (type_, rank) in enumerate(((data, 4), (rois, 2)), start=first):
        ctx.expect_rank(arg, type_, rank)
        ctx.expect_float(arg, type_)
    ctx.expect_dim(first + 1, 1, rois.shape[1], 5, "expected five numbers per region",
                   why=" (image, x0, y0, x1, y1)")
    sizes = dict(zip(attrs.layout, data.shape, strict=True))
    for letter in "NHW":
        if sizes[letter] == 0:
            ctx.fail("cannot pool an empty axis", arg=first,
                     axis=attrs.layout.index(letter),
                     expected="a size of 1 or more", got=0)
    sizes |= {"N": rois.shape[0], "H": attrs.pooled_size[0], "W": attrs.pooled_size[1]}
    return tuple(sizes[a] for a in attrs.layout)


def to_images(layout: str) -> tuple[int, ...]:
    """The order of axes that makes images of ``layout`` NCHW."""
    return tuple(layout.index(a) for a in _AXES)


def from_images(layout: str) -> tuple[int, ...]:
    """The order of axes that makes NCHW images ones of ``layout``."""
    return tuple(_AXES.index(a) for a in layout)
