"""Regions of interest: pooling, and its derivatives."""

from __future__ import annotations

import math
from typing import Any

from weft import te
from weft.tir import PrimExpr
from weft.topi.upcast import converted, upcast


def align(
    data: Any, rois: Any, out: Any, scale: float, ratio: int, is_max: bool, offset: float
) -> None:
    """``out`` (roi, channel, row, column): the mean (or maximum) of bilinear samples of each bin.

    ``data`` is (batch, channel, height, width), a row of ``rois`` (batch, x0, y0, x1, y1).
    Each side of a bin has ``ratio`` samples, or as many as its length if ``ratio`` is not
    positive. ``offset`` is subtracted from the scaled corners; without it regions have at least
    the size of a pixel.
    """
    height, width = data.shape[2], data.shape[3]
    rows, columns = out.shape[2], out.shape[3]
    for r in range(rois.shape[0]):
        image = int(rois[r, 0])
        image = min(max(image, 0), data.shape[0] - 1)
        x0, y0 = rois[r, 1] * scale - offset, rois[r, 2] * scale - offset
        long, high = rois[r, 3] * scale - offset - x0, rois[r, 4] * scale - offset - y0
        if offset == 0:
            long, high = max(long, 1.0), max(high, 1.0)
        bin_high, bin_long = high / rows, long / columns
        # An infinite region gets no samples, so that the loop terminates.
        is_finite = math.isfinite(bin_high) and math.isfinite(bin_long)
        down = ratio if ratio > 0 else math.ceil(bin_high) if is_finite else 0
        across = ratio if ratio > 0 else math.ceil(bin_long) if is_finite else 0
        count = max(down * across, 1)
        for row in range(rows):
            for column in range(columns):
                for c in range(data.shape[1]):
                    out[r, c, row, column] = -math.inf if is_max and down * across > 0 else 0.0
                for i in range(down):
                    y = y0 + row * bin_high + (i + 0.5) * bin_high / down
                    for j in range(across):
                        x = x0 + column * bin_long + (j + 0.5) * bin_long / across
                        # Samples more than one pixel outside the image are 0.
                        exists = -1.0 <= y <= height and -1.0 <= x <= width
                        py = min(max(y, 0.0), height - 1.0) if exists else 0.0
                        px = min(max(x, 0.0), width - 1.0) if exists else 0.0
                        top, left = int(py), int(px)
                        below, beside = min(top + 1, height - 1), min(left + 1, width - 1)
                        dy, dx = py - top, px - left
                        for c in range(data.shape[1]):
                            value = 0.0
                            if exists:
                                value = (
                                    (1 - dy) * ((1 - dx) * data[image, c, top, left]
                                                + dx * data[image, c, top, beside])
                                    + dy * ((1 - dx) * data[image, c, below, left]
                                            + dx * data[image, c, below, beside]))
                            if is_max:
                                out[r, c, row, column] = max(out[r, c, row, column], value)
                            else:
                                out[r, c, row, column] += value / count


def pool(data: Any, rois: Any, out: Any, scale: float) -> None:
    """``out`` (roi, channel, row, column): the largest element of each bin, 0 for empty ones.

    The corners are rounded to integral pixels, which are inclusive.
    """
    height, width = data.shape[2], data.shape[3]
    rows, columns = out.shape[2], out.shape[3]
    for r in range(rois.shape[0]):
        image = min(max(int(rois[r, 0]), 0), data.shape[0] - 1)
        x0, y0 = math.floor(rois[r, 1] * scale + 0.5), math.floor(rois[r, 2] * scale + 0.5)
        x1, y1 = math.floor(rois[r, 3] * scale + 0.5), math.floor(rois[r, 4] * scale + 0.5)
        high, long = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for row in range(rows):
            top = min(max(math.floor(row * high / rows) + y0, 0), height)
            below = min(max(math.ceil((row + 1) * high / rows) + y0, 0), height)
            for column in range(columns):
                left = min(max(math.floor(column * long / columns) + x0, 0), width)
                right = min(max(math.ceil((column + 1) * long / columns) + x0, 0), width)
                for c in range(data.shape[1]):
                    best = -math.inf
                    for y in range(int(top), int(below)):
                        for x in range(int(left), int(right)):
                            best = max(best, data[image, c, y, x])
                    out[r, c, row, column] = best if best > -math.inf else 0.0


def roi_align(
    data: te.Tensor, rois: te.Tensor, *, size: tuple[int, int], scale: float, ratio: int,
    mode: str, aligned: bool,
) -> te.Tensor:
    """(rois, channels, rows, columns) of data (batch, channels, height, width)."""
    wide, regions = upcast(data), upcast(rois)
    out = te.python_extern(
        [(rois.shape[0], data.shape[1], *size)], [wide, regions], align, [wide.dtype],
        scalars=[scale, ratio, mode == "max", 0.5 if aligned else 0.0], name="roi_align",
    )[0]
    return converted(out, data.dtype)


def roi_pool(
    data: te.Tensor, rois: te.Tensor, *, size: tuple[int, int], scale: float
) -> te.Tensor:
    """(rois, channels, rows, columns) of data (batch, channels, height, width)."""
    wide, regions = upcast(data), upcast(rois)
    out = te.python_extern([(rois.shape[0], data.shape[1], *size)], [wide, regions], pool,
                           [wide.dtype], scalars=[scale], name="roi_pool")[0]
    return converted(out, data.dtype)


def in_order(x: te.Tensor, order: tuple[int, ...]) -> te.Tensor:
    """``x`` transposed; ``x`` itself for the identity permutation."""
    if order == tuple(range(x.ndim)):
        return x

    def element(*index: PrimExpr) -> PrimExpr:
        return x[tuple(index[order.index(a)] for a in range(x.ndim))]

    return te.compute([x.shape[a] for a in order], element, name="in_order")


def align_linear(
    moving: Any, data: Any, rois: Any, out: Any, scale: float, ratio: int, is_max: bool,
    offset: float, is_adjoint: bool,
) -> None:
    """``out`` from ``moving``, by the samples that ``topi.vision.roi.align`` takes of ``data``.

    ``moving`` is a tangent of the data, or with ``is_adjoint`` a gradient of the result.
    """
    height, width = data.shape[2], data.shape[3]
    rows = moving.shape[2] if is_adjoint else out.shape[2]
    columns = moving.shape[3] if is_adjoint else out.shape[3]
    out[:] = 0.0
    for r in range(rois.shape[0]):
        image = min(max(int(rois[r, 0]), 0), data.shape[0] - 1)
        x0, y0 = rois[r, 1] * scale - offset, rois[r, 2] * scale - offset
        long, high = rois[r, 3] * scale - offset - x0, rois[r, 4] * scale - offset - y0
        if offset == 0:
            long, high = max(long, 1.0), max(high, 1.0)
        bin_high, bin_long = high / rows, long / columns
        is_finite = math.isfinite(bin_high) and math.isfinite(bin_long)
        down = ratio if ratio > 0 else math.ceil(bin_high) if is_finite else 0
        across = ratio if ratio > 0 else math.ceil(bin_long) if is_finite else 0
        count = 1 if is_max else down * across
        for c in range(data.shape[1]):
            for row in range(rows):
                for column in range(columns):
                    best, winner = -math.inf, -1  # found by sweep 0
                    for sweep in range(0 if is_max else 1, 2):
                        for k in range(down * across):
                            if sweep == 1 and is_max and k != winner:
                                continue
                            y = y0 + row * bin_high + (k // across + 0.5) * bin_high / down
                            x = x0 + column * bin_long + (k % across + 0.5) * bin_long / across
                            exists = -1.0 <= y <= height and -1.0 <= x <= width
                            py = min(max(y, 0.0), height - 1.0) if exists else 0.0
                            px = min(max(x, 0.0), width - 1.0) if exists else 0.0
                            top, left = int(py), int(px)
                            below, beside = min(top + 1, height - 1), min(left + 1, width - 1)
                            dy, dx = py - top, px - left
                            if sweep == 0:
                                value = (
                                    (1 - dy) * ((1 - dx) * data[image, c, top, left]
                                                + dx * data[image, c, top, beside])
                                    + dy * ((1 - dx) * data[image, c, below, left]
                                            + dx * data[image, c, below, beside])
                                ) if exists else 0.0
                                if value > best:
                                    best, winner = value, k
                            elif exists and is_adjoint:
                                share = moving[r, c, row, column] / count
                                out[image, c, top, left] += share * (1 - dy) * (1 - dx)
                                out[image, c, top, beside] += share * (1 - dy) * dx
                                out[image, c, below, left] += share * dy * (1 - dx)
                                out[image, c, below, beside] += share * dy * dx
                            elif exists:
                                out[r, c, row, column] += (
                                    (1 - dy) * ((1 - dx) * moving[image, c, top, left]
                                                + dx * moving[image, c, top, beside])
                                    + dy * ((1 - dx) * moving[image, c, below, left]
                                            + dx * moving[image, c, below, beside])) / count


def pool_linear(
    moving: Any, data: Any, rois: Any, out: Any, scale: float, is_adjoint: bool
) -> None:
    """As ``align_linear``, by the elements that ``topi.vision.roi.pool`` takes of ``data``."""
    height, width = data.shape[2], data.shape[3]
    rows = moving.shape[2] if is_adjoint else out.shape[2]
    columns = moving.shape[3] if is_adjoint else out.shape[3]
    out[:] = 0.0
    for r in range(rois.shape[0]):
        image = min(max(int(rois[r, 0]), 0), data.shape[0] - 1)
        x0, y0 = math.floor(rois[r, 1] * scale + 0.5), math.floor(rois[r, 2] * scale + 0.5)
        x1, y1 = math.floor(rois[r, 3] * scale + 0.5), math.floor(rois[r, 4] * scale + 0.5)
        high, long = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for row in range(rows):
            top = min(max(math.floor(row * high / rows) + y0, 0), height)
            below = min(max(math.ceil((row + 1) * high / rows) + y0, 0), height)
            for column in range(columns):
                left = min(max(math.floor(column * long / columns) + x0, 0), width)
                right = min(max(math.ceil((column + 1) * long / columns) + x0, 0), width)
                for c in range(data.shape[1]):
                    best, down, across = -math.inf, -1, -1
                    for y in range(int(top), int(below)):
                        for x in range(int(left), int(right)):
                            if data[image, c, y, x] > best:
                                best, down, across = data[image, c, y, x], y, x
                    if down >= 0 and is_adjoint:
                        out[image, c, down, across] += moving[r, c, row, column]
                    elif down >= 0:
                        out[r, c, row, column] = moving[image, c, down, across]


def roi_align_linear(
    moving: te.Tensor, data: te.Tensor, rois: te.Tensor, *, size: tuple[int, int], scale: float,
    ratio: int, mode: str, aligned: bool, is_adjoint: bool,
) -> te.Tensor:
    """``align_linear`` as an extern stage; images are (batch, channels, height, width)."""
    wide = [upcast(x) for x in (moving, data, rois)]
    shape = data.shape if is_adjoint else (rois.shape[0], data.shape[1], *size)
    out = te.python_extern(
        [shape], wide, align_linear, [wide[1].dtype],
        scalars=[scale, ratio, mode == "max", 0.5 if aligned else 0.0, is_adjoint],
        name="roi_align_grad" if is_adjoint else "roi_align_tangent",
    )[0]
    return converted(out, data.dtype)


def roi_pool_linear(
    moving: te.Tensor, data: te.Tensor, rois: te.Tensor, *, size: tuple[int, int], scale: float,
    is_adjoint: bool,
) -> te.Tensor:
    """``pool_linear`` as an extern stage; images are (batch, channels, height, width)."""
    wide = [upcast(x) for x in (moving, data, rois)]
    shape = data.shape if is_adjoint else (rois.shape[0], data.shape[1], *size)
    out = te.python_extern([shape], wide, pool_linear, [wide[1].dtype],
                           scalars=[scale, is_adjoint],
                           name="roi_pool_grad" if is_adjoint else "roi_pool_tangent")[0]
    return converted(out, data.dtype)
