"""Pooling of regions of interest: roi_align, roi_pool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import te
from weft.ir import OpPattern, RelationContext, TensorType, define_op, op_case
from weft.op.vision.roi_attrs import (
    RoiAlignAttrs,
    RoiPoolAttrs,
    expect_regions,
    from_images,
    to_images,
)
from weft.op.vision.roi_gradients import define_derivatives
from weft.topi.vision import roi as topi
from weft.topi.vision import roi_gradients as linear


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, rois = types
    ctx.output(TensorType(expect_regions(ctx, data, rois), data.dtype))
    return True


@define_op("vision.roi_align", attrs=RoiAlignAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=5)
def roi_align(data: te.Tensor, rois: te.Tensor, attrs: RoiAlignAttrs) -> te.Tensor:
    """The mean (or maximum) of bilinear samples in each bin of each region of interest.

    ``rois`` is (regions, 5): the index of the image and two opposite corners x0, y0, x1, y1.
    """
    images = topi.in_order(data, to_images(attrs.layout))
    pooled = topi.roi_align(images, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
                            ratio=attrs.sample_ratio, mode=attrs.mode, aligned=attrs.aligned)
    return topi.in_order(pooled, from_images(attrs.layout))


@define_op("vision.roi_pool", attrs=RoiPoolAttrs, relation=_relation, pattern=OpPattern.OPAQUE,
           level=5)
def roi_pool(data: te.Tensor, rois: te.Tensor, attrs: RoiPoolAttrs) -> te.Tensor:
    """The maximum in each bin of each region of interest, whose corners are rounded.

    ``rois`` is (regions, 5): the index of the image and two opposite corners x0, y0, x1, y1.
    """
    images = topi.in_order(data, to_images(attrs.layout))
    pooled = topi.roi_pool(images, rois, size=attrs.pooled_size, scale=attrs.spatial_scale)
    return topi.in_order(pooled, from_images(attrs.layout))


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
    images = data.transpose(to_images(attrs.layout)).astype(np.float64)
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
    back = result.transpose(from_images(attrs.layout)).astype(data.dtype)
    return np.ascontiguousarray(back)


def _pool_reference(data: np.ndarray, rois: np.ndarray, **values: Any) -> np.ndarray:
    attrs = RoiPoolAttrs(**values)
    images = data.transpose(to_images(attrs.layout))
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
    return np.ascontiguousarray(result.transpose(from_images(attrs.layout)))


_ROIS = np.array([[0, 1.2, 0.7, 6.3, 5.1], [1, -2.0, 3.0, 4.5, 9.0], [0, 2.0, 2.0, 2.2, 2.1]],
                 np.float32)
_ALIGN_CASES = (
    op_case((2, 3, 7, 8), _ROIS, pooled_size=(2, 3)),
    op_case((2, 2, 7, 8), _ROIS, pooled_size=(2, 2), sample_ratio=2, spatial_scale=0.5,
            aligned=True),
    op_case((2, 6, 5, 2), _ROIS, pooled_size=(2, 1), layout="NHWC", mode="max"),
)
_POOL_CASES = (
    op_case((2, 3, 7, 8), _ROIS, pooled_size=(2, 3)),
    op_case((2, 6, 5, 2), _ROIS, pooled_size=(3, 2), layout="NHWC", spatial_scale=0.5),
)
roi_align.spec(_align_reference, *_ALIGN_CASES)
roi_pool.spec(_pool_reference, *_POOL_CASES)

_align_derivatives = define_derivatives(
    "roi_align", RoiAlignAttrs,
    lambda moving, data, rois, attrs, is_adjoint: linear.roi_align_linear(
        moving, data, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
        ratio=attrs.sample_ratio, mode=attrs.mode, aligned=attrs.aligned, is_adjoint=is_adjoint),
    lambda attrs, is_adjoint: (linear.align_linear, (
        attrs.spatial_scale, attrs.sample_ratio, attrs.mode == "max",
        0.5 if attrs.aligned else 0.0, is_adjoint)),
    _ALIGN_CASES,
)
_pool_derivatives = define_derivatives(
    "roi_pool", RoiPoolAttrs,
    lambda moving, data, rois, attrs, is_adjoint: linear.roi_pool_linear(
        moving, data, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
        is_adjoint=is_adjoint),
    lambda attrs, is_adjoint: (linear.pool_linear, (attrs.spatial_scale, is_adjoint)),
    _POOL_CASES,
)
roi_align_grad, roi_align_tangent = _align_derivatives.grad, _align_derivatives.tangent
roi_pool_grad, roi_pool_tangent = _pool_derivatives.grad, _pool_derivatives.tangent
for _pool, _derivatives in ((roi_align, _align_derivatives), (roi_pool, _pool_derivatives)):
    _pool.gradient(_derivatives.gradient)
    _pool.jvp(_derivatives.jvp)
