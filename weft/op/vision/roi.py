"""Pooling of regions of interest: roi_align, roi_pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import te
from weft.ir.attrs import Attrs, attr, one_of
from weft.ir.op import OpPattern, case, define_op
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.op.nn.conv import positive
from weft.op.relations import attrs_as, expect_dim, expect_float, expect_rank, tensors_known
from weft.topi.vision import roi as topi

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


def _relation(ctx: RelationContext) -> bool:
    types = tensors_known(ctx, 2)
    if types is None:
        return False
    data, rois = types
    attrs = attrs_as(ctx, RoiPoolAttrs)
    for arg, (type_, rank) in enumerate(((data, 4), (rois, 2))):
        expect_rank(ctx, arg, type_, rank)
        expect_float(ctx, arg, type_)
    expect_dim(ctx, 1, 1, rois.shape[1], 5, "expected five numbers per region",
               why=" (image, x0, y0, x1, y1)")
    sizes = dict(zip(attrs.layout, data.shape, strict=True))
    for letter in "NHW":
        if sizes[letter] == 0:
            ctx.fail("cannot pool an empty axis", arg=0, axis=attrs.layout.index(letter),
                     expected="a size of 1 or more", got=0)
    sizes |= {"N": rois.shape[0], "H": attrs.pooled_size[0], "W": attrs.pooled_size[1]}
    ctx.output(TensorType(tuple(sizes[a] for a in attrs.layout), data.dtype))
    return True


def _to_images(layout: str) -> tuple[int, ...]:
    return tuple(layout.index(a) for a in _AXES)


def _from_images(layout: str) -> tuple[int, ...]:
    return tuple(_AXES.index(a) for a in layout)


@define_op("vision.roi_align", attrs=RoiAlignAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=5)
def roi_align(data: te.Tensor, rois: te.Tensor, attrs: RoiAlignAttrs) -> te.Tensor:
    """The mean (or maximum) of bilinear samples in each bin of each region of interest.

    ``rois`` is (regions, 5): the index of the image and two opposite corners x0, y0, x1, y1.
    """
    images = topi.in_order(data, _to_images(attrs.layout))
    pooled = topi.roi_align(images, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
                            ratio=attrs.sample_ratio, mode=attrs.mode, aligned=attrs.aligned)
    return topi.in_order(pooled, _from_images(attrs.layout))


@define_op("vision.roi_pool", attrs=RoiPoolAttrs, relation=_relation, pattern=OpPattern.OPAQUE,
           level=5)
def roi_pool(data: te.Tensor, rois: te.Tensor, attrs: RoiPoolAttrs) -> te.Tensor:
    """The maximum in each bin of each region of interest, whose corners are rounded.

    ``rois`` is (regions, 5): the index of the image and two opposite corners x0, y0, x1, y1.
    """
    images = topi.in_order(data, _to_images(attrs.layout))
    pooled = topi.roi_pool(images, rois, size=attrs.pooled_size, scale=attrs.spatial_scale)
    return topi.in_order(pooled, _from_images(attrs.layout))


def _bilinear(image: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Samples (channels, len(y), len(x)) of an image; 0 beyond one pixel around it."""
    _, height, width = image.shape

    def matrix(p: np.ndarray, size: int) -> np.ndarray:
        at = np.clip(p, 0, size - 1)
        low = at.astype(int)
        share = at - low
        rows = np.zeros((len(p), size))
        rows[np.arange(len(p)), low] += 1 - share
        rows[np.arange(len(p)), np.minimum(low + 1, size - 1)] += share
        return rows * ((p >= -1) & (p <= size))[:, None]

    return matrix(y, height) @ image @ matrix(x, width).T


def _align_reference(data: np.ndarray, rois: np.ndarray, **values: Any) -> np.ndarray:
    attrs = RoiAlignAttrs(**values)
    images = data.transpose(_to_images(attrs.layout)).astype(np.float64)
    rows, columns = attrs.pooled_size
    result = np.zeros((len(rois), images.shape[1], rows, columns))
    offset = 0.5 if attrs.aligned else 0.0
    for r, (number, *corners) in enumerate(rois.astype(np.float64)):
        x0, y0, x1, y1 = np.array(corners) * attrs.spatial_scale - offset
        long, high = (x1 - x0, y1 - y0) if attrs.aligned else (max(x1 - x0, 1), max(y1 - y0, 1))
        down, across = ((attrs.sample_ratio,) * 2 if attrs.sample_ratio > 0
                        else (math.ceil(high / rows), math.ceil(long / columns)))
        y = y0 + (np.arange(rows * down) + 0.5) * high / (rows * down)
        x = x0 + (np.arange(columns * across) + 0.5) * long / (columns * across)
        samples = _bilinear(images[int(number)], y, x).reshape(-1, rows, down, columns, across)
        reduce = np.mean if attrs.mode == "avg" else np.max
        result[r] = reduce(samples, axis=(2, 4))
    back = result.transpose(_from_images(attrs.layout)).astype(data.dtype)
    return np.ascontiguousarray(back)


def _pool_reference(data: np.ndarray, rois: np.ndarray, **values: Any) -> np.ndarray:
    attrs = RoiPoolAttrs(**values)
    images = data.transpose(_to_images(attrs.layout))
    rows, columns = attrs.pooled_size
    result = np.zeros((len(rois), images.shape[1], rows, columns), data.dtype)
    for r, (number, *corners) in enumerate(rois.astype(np.float64)):
        x0, y0, x1, y1 = (math.floor(c * attrs.spatial_scale + 0.5) for c in corners)
        high, long = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for i, j in np.ndindex(rows, columns):
            top, below = y0 + i * high // rows, y0 - (-(i + 1) * high // rows)
            left, right = x0 + j * long // columns, x0 - (-(j + 1) * long // columns)
            bin_ = images[int(number), :, max(top, 0):max(below, 0), max(left, 0):max(right, 0)]
            if bin_.size:
                result[r, :, i, j] = bin_.max(axis=(1, 2))
    return np.ascontiguousarray(result.transpose(_from_images(attrs.layout)))


_ROIS = np.array([[0, 1.2, 0.7, 6.3, 5.1], [1, -2.0, 3.0, 4.5, 9.0], [0, 2.0, 2.0, 2.2, 2.1]],
                 np.float32)
roi_align.spec(
    _align_reference,
    case((2, 3, 7, 8), _ROIS, pooled_size=(2, 3)),
    case((2, 2, 7, 8), _ROIS, pooled_size=(2, 2), sample_ratio=2, spatial_scale=0.5,
         aligned=True),
    case((2, 6, 5, 2), _ROIS, pooled_size=(2, 1), layout="NHWC", mode="max"),
)
roi_pool.spec(
    _pool_reference,
    case((2, 3, 7, 8), _ROIS, pooled_size=(2, 3)),
    case((2, 6, 5, 2), _ROIS, pooled_size=(3, 2), layout="NHWC", spatial_scale=0.5),
)
