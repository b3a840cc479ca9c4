"""pad, interpolate, pixel_shuffle: functions that rearrange or resample spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError

_MODES = {"reflect": "reflect", "replicate": "edge"}


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Pad the last axes; ``pad`` holds (before, after) from the last axis backwards.

    ``mode``: "constant" (negative amounts crop), "reflect", "replicate" or "circular".
    """
    amounts = tuple(pad)
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise InvalidInputError("pad: wrong number of amounts", got=str(amounts),
                                expected=f"pairs for at most {input.ndim} axes")
    count = len(amounts) // 2
    pairs = [(0, 0)] * (input.ndim - count)
    pairs += [(amounts[2 * i], amounts[2 * i + 1]) for i in reversed(range(count))]
    if mode == "circular":
        return _circular(input, pairs)
    if mode != "constant" and mode not in _MODES:
        raise InvalidInputError("pad: unknown mode", got=repr(mode),
                                expected="constant, reflect, replicate or circular")
    if any(amount < 0 for amount in amounts):
        input, pairs = _cropped(input, pairs)
    if mode == "constant":
        return call("nn.pad", input, float(value or 0.0), pad_width=tuple(pairs))
    return call("nn.pad", input, 0.0, pad_width=tuple(pairs), pad_mode=_MODES[mode])


def _cropped(x: Tensor, pairs: list[tuple[int, int]]) -> tuple[Tensor, list[tuple[int, int]]]:
    """``x`` without what negative amounts take away, and the other amounts."""
    begin = tuple(max(-before, 0) for before, _ in pairs)
    end = tuple(size - max(-after, 0) for size, (_, after) in zip(x.shape, pairs, strict=True))
    kept = [(max(before, 0), max(after, 0)) for before, after in pairs]
    return call("strided_slice", x, begin=begin, end=end), kept


def _circular(x: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        if before > size or after > size:
            raise InvalidInputError("pad: circular padding exceeds the axis",
                                    where=f"axis {axis}", expected=f"at most {size}",
                                    got=f"{before} and {after}")
        if before or after:
            positions = np.arange(-before, size + after) % size
            x = call("take", x, positions.astype(np.int64), axis=axis)
    return x


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize the spatial axes of (N, C, …) to ``size`` or by ``scale_factor``.

    ``mode``: "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" or "area".
    """
    axes = input.ndim - 2
    sizes, steps = _sizes(tuple(input.shape[2:]), size, scale_factor)
    if mode in ("nearest", "nearest-exact"):
        return _nearest(input, sizes, steps, 0.5 if mode == "nearest-exact" else 0.0)
    if mode == "area":
        return call(f"nn.adaptive_avg_pool{axes}d", input, output_size=sizes)
    if mode == {1: "linear", 2: "bilinear", 3: "trilinear"}.get(axes):
        return _linear(input, sizes, steps, bool(align_corners))
    if mode == "bicubic" and axes == 2:
        return _cubic(input, sizes, steps, bool(align_corners))
    raise InvalidInputError("interpolate: the mode does not fit the input", got=repr(mode),
                            where=f"an input with {axes} spatial axes")


def _sizes(
    shape: tuple[int, ...], size: Any, scale: Any
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The new sizes, and the step in the input for one in the output."""
    if (size is None) == (scale is None):
        raise InvalidInputError("interpolate takes either size or scale_factor")
    axes = len(shape)
    if size is not None:
        sizes = (size,) * axes if isinstance(size, int) else tuple(size)
        return sizes, tuple(old / new for old, new in zip(shape, sizes, strict=True))
    factors = (scale,) * axes if isinstance(scale, int | float) else tuple(scale)
    sizes = tuple(int(n * f) for n, f in zip(shape, factors, strict=True))
    return sizes, tuple(1 / f for f in factors)


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


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The same as ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(…, C·r², H, W) to (…, C, H·r, W·r) (Shi et al. 2016)."""
    *leading, channels, height, width = input.shape
    r = upscale_factor
    if channels % (r * r):
        raise InvalidInputError("pixel_shuffle: wrong number of channels",
                                expected=f"a multiple of {r * r}", got=channels)
    split = input.reshape((-1, channels // (r * r), r, r, height, width))
    mixed = call("transpose", split, axes=(0, 1, 4, 2, 5, 3))
    return mixed.reshape((*leading, channels // (r * r), height * r, width * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(…, C, H·r, W·r) to (…, C·r², H, W)."""
    *leading, channels, height, width = input.shape
    r = downscale_factor
    if height % r or width % r:
        raise InvalidInputError("pixel_unshuffle: the sizes do not divide",
                                expected=f"multiples of {r}", got=f"{height} x {width}")
    split = input.reshape((-1, channels, height // r, r, width // r, r))
    mixed = call("transpose", split, axes=(0, 1, 3, 5, 2, 4))
    return mixed.reshape((*leading, channels * r * r, height // r, width // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the channels of ``groups`` groups (Zhang et al. 2018)."""
    shape = tuple(input.shape)
    split = input.reshape((shape[0], groups, shape[1] // groups, *shape[2:]))
    axes = (0, 2, 1, *range(3, len(shape) + 1))
    return call("transpose", split, axes=axes).reshape(shape)
