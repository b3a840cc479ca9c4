"""Resampling of images: interpolate, grid_sample, affine_grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError
from weft.topi.image.antialias import antialias_weights


@checked
def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial axes of (N, C, …) to ``size`` or by ``scale_factor``.

    ``mode``: "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" or "area".
    ``recompute_scale_factor`` takes the ratio of the sizes, which are whole, for the factor.
    ``antialias`` widens the filter of "bilinear" and "bicubic" where an axis shrinks.
    """
    axes = input.ndim - 2
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise InvalidInputError("interpolate: align_corners belongs to linear and cubic modes",
                                got=repr(mode))
    if recompute_scale_factor and size is not None:
        raise InvalidInputError("interpolate: recompute_scale_factor needs scale_factor")
    sizes, factors = _sizes(tuple(input.shape[2:]), size, scale_factor)
    if recompute_scale_factor or factors is None:
        factors = tuple(new / old for old, new in zip(input.shape[2:], sizes, strict=True))
    if min(sizes) < 1 or 0 in input.shape[1:]:
        raise InvalidInputError("interpolate: a size is 0", got=f"{tuple(input.shape)} to {sizes}")
    if antialias:
        return _antialiased(input, sizes, factors, mode, bool(align_corners))
    steps = tuple(1 / f for f in factors)
    if mode in ("nearest", "nearest-exact"):
        return _nearest(input, sizes, steps, 0.5 if mode == "nearest-exact" else 0.0)
    if mode == "area" and axes in (1, 2, 3):
        return call(f"nn.adaptive_avg_pool{axes}d", input, output_size=sizes)
    if mode == {1: "linear", 2: "bilinear", 3: "trilinear"}.get(axes):
        return _linear(input, sizes, steps, bool(align_corners))
    if mode == "bicubic" and axes == 2:
        return _cubic(input, sizes, steps, bool(align_corners))
    raise InvalidInputError("interpolate: the mode does not fit the input", got=repr(mode),
                            where=f"an input with {axes} spatial axes")


def _sizes(
    shape: tuple[int, ...], size: Any, scale: Any
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """The new sizes, and the factors if they are given."""
    if (size is None) == (scale is None):
        raise InvalidInputError("interpolate takes either size or scale_factor")
    axes = len(shape)
    given = scale if size is None else size
    each = (given,) * axes if isinstance(given, int | float) else tuple(given)
    if len(each) != axes:
        raise InvalidInputError("interpolate: wrong number of sizes or factors",
                                expected=f"1 or {axes}", got=str(each))
    if size is not None:
        return tuple(int(s) for s in each), None
    return tuple(int(n * f) for n, f in zip(shape, each, strict=True)), each


def _antialiased(
    x: Tensor, sizes: tuple[int, ...], factors: tuple[float, ...], mode: str, align_corners: bool
) -> Tensor:
    """A matmul with a matrix of weights along each axis."""
    if mode not in ("bilinear", "bicubic") or x.ndim != 4:
        raise InvalidInputError("interpolate: antialias is for images",
                                got=f"{mode}, {x.ndim} axes",
                                expected="bilinear or bicubic, 4 axes")
    for axis, (new, factor) in enumerate(zip(sizes, factors, strict=True), start=2):
        weights = antialias_weights(x.shape[axis], new, align_corners, factor,
                                    cubic=mode == "bicubic").astype(x.dtype.numpy)
        x = call("nn.dense", x, weights) if axis == 3 else call("nn.matmul", weights, x)
    return x


def _nearest(
    x: Tensor, sizes: tuple[int, ...], steps: tuple[float, ...], shift: float
) -> Tensor:
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True), start=2):
        # In float32, as torch computes them.
        places = (np.arange(size, dtype=np.float32) + np.float32(shift)) * np.float32(step)
        found = np.minimum(np.floor(places), x.shape[axis] - 1).astype(np.int64)
        if size != x.shape[axis] or step != 1:
            x = call("take", x, found, axis=axis)
    return x


def _places(old: int, new: int, step: float, align_corners: bool) -> np.ndarray:
    """Where in the input the elements of the output lie."""
    if align_corners:
        return np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (np.arange(new) + 0.5) * step - 0.5


def _linear(
    x: Tensor, sizes: tuple[int, ...], steps: tuple[float, ...], align_corners: bool
) -> Tensor:
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True), start=2):
        old = x.shape[axis]
        if size == old and step == 1:
            continue
        places = np.maximum(_places(old, size, step, align_corners), 0.0)
        low = np.minimum(np.floor(places), old - 1)
        share = places - low
        x = _mixed(x, axis, [low, np.minimum(low + 1, old - 1)], [1 - share, share])
    return x


def _cubic(
    x: Tensor, sizes: tuple[int, ...], steps: tuple[float, ...], align_corners: bool
) -> Tensor:
    """Convolution with Keys' cubic kernel, a = -0.75 (Keys 1981)."""
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True), start=2):
        old = x.shape[axis]
        places = _places(old, size, step, align_corners)
        low = np.floor(places)
        near = np.abs((places - low)[None] - np.arange(-1, 3)[:, None])
        inner = (1.25 * near - 2.25) * near * near + 1
        outer = -0.75 * (((near - 5) * near + 8) * near - 4)
        weights = np.where(near <= 1, inner, outer)
        taps = [np.clip(low + k, 0, old - 1) for k in range(-1, 3)]
        x = _mixed(x, axis, taps, list(weights))
    return x


def _mixed(
    x: Tensor, axis: int, taps: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> Tensor:
    """The sum over taps of ``x`` at these positions of ``axis``, times the weights."""
    tail = (1,) * (x.ndim - axis - 1)
    total: Tensor | None = None
    for positions, weight in zip(taps, weights, strict=True):
        factor = weight.astype(np.float64 if x.dtype.name == "float64" else np.float32)
        term = call("take", x, positions.astype(np.int64), axis=axis) * factor.reshape(-1, *tail)
        total = term if total is None else total + term
    if total is None:
        raise InvalidInputError("interpolate: no taps")
    return total


@checked
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The same as ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@checked
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """``interpolate`` to nearest neighbours."""
    return interpolate(input, size, scale_factor, "nearest")


@checked
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """``interpolate`` by linear interpolation whose corners are aligned."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


@checked
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """``input`` (N, C, …) at the positions ``grid`` (N, …, coordinates), from -1 to 1.

    The first coordinate is along the last axis. ``mode``: "bilinear", "nearest" or, for images,
    "bicubic"; ``padding_mode``: "zeros", "border" or "reflection".
    """
    layout = {4: "NCHW", 5: "NCDHW"}.get(input.ndim)
    if layout is None or grid.ndim != input.ndim:
        raise InvalidInputError("grid_sample takes images or volumes and a grid of as many axes",
                                got=f"{input.ndim} and {grid.ndim} axes")
    if mode == "bicubic" and input.ndim == 5:
        raise InvalidInputError("grid_sample: bicubic is for images", got="volumes")
    last = grid.ndim - 1
    places = call("transpose", grid, axes=(0, last, *range(1, last)))
    return call("image.grid_sample", input, places, method=mode, layout=layout,
                padding_mode=padding_mode, align_corners=bool(align_corners))


@checked
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of ``grid_sample`` for an output of ``size`` under affine maps.

    ``theta`` is (N, 2, 3) for ``size`` (N, C, H, W), (N, 3, 4) for (N, C, D, H, W).
    """
    spatial = tuple(size)[2:]
    axes = len(spatial)
    if axes not in (2, 3) or tuple(theta.shape[1:]) != (axes, axes + 1) or min(spatial) < 1:
        raise InvalidInputError("affine_grid: theta does not fit the size",
                                expected="(N, 2, 3) and 4 sizes, or (N, 3, 4) and 5 sizes",
                                got=f"{tuple(theta.shape)} and {tuple(size)}")
    lines = [_line(count, bool(align_corners)) for count in spatial]
    points = np.meshgrid(*lines, indexing="ij")
    table = np.stack([*(p.ravel() for p in reversed(points)), np.ones(points[0].size)], axis=1)
    found = call("nn.matmul", table.astype(theta.dtype.numpy), theta, transpose_b=True)
    return found.reshape((theta.shape[0], *spatial, axes))


def _line(count: int, align_corners: bool) -> np.ndarray:
    """Positions along an axis: centres of elements, or from -1 to 1."""
    if count == 1:
        return np.zeros(1)
    line = np.linspace(-1, 1, count)
    return line if align_corners else line * (count - 1) / count
