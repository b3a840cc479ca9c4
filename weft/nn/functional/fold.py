"""Sliding windows as columns: unfold, fold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.sizes import per_axis, with_batch, without_batch
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError


@dataclass(frozen=True)
class _Windows:
    """Windows of an image of ``size`` after padding."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def counts(self) -> tuple[int, ...]:
        return tuple((s - d * (k - 1) - 1) // step + 1 for s, k, step, d in
                     zip(self.size, self.kernel, self.stride, self.dilation, strict=True))

    def positions(self) -> np.ndarray:
        """The place in the flat image of each element (row) of each window (column)."""
        found = np.zeros((1, 1), np.int64)
        for size, taps, step, spread, count in zip(
                self.size, self.kernel, self.stride, self.dilation, self.counts(), strict=True):
            along = np.arange(taps)[:, None] * spread + np.arange(count)[None, :] * step
            both = found[:, None, :, None] * size + along[None, :, None, :]
            found = both.reshape(found.shape[0] * taps, found.shape[1] * count)
        return found


def _windows(
    what: str, size: tuple[int, ...], kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[_Windows, tuple[int, ...]]:
    pads = per_axis(padding, 2, "padding")
    padded = tuple(s + 2 * p for s, p in zip(size, pads, strict=True))
    windows = _Windows(padded, per_axis(kernel_size, 2, "kernel_size"),
                       per_axis(stride, 2, "stride"), per_axis(dilation, 2, "dilation"))
    if min((*windows.kernel, *windows.stride, *windows.dilation)) < 1 or min(pads) < 0:
        raise InvalidInputError(f"{what}: kernel_size, stride and dilation are at least 1")
    if min(windows.counts()) < 1:
        raise InvalidInputError(f"{what}: the window is larger than the padded image",
                                expected=f"at most {padded}", got=windows.kernel)
    return windows, pads


@checked
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The windows of (N, C, H, W) as columns: (N, C · kernel elements, windows)."""
    x, has_batch = with_batch(input, 4, "unfold")
    batch, channels, *size = x.shape
    windows, pads = _windows("unfold", tuple(size), kernel_size, dilation, padding, stride)
    if any(pads):
        zero = False if x.dtype.name == "bool" else 0
        x = call("nn.pad", x, call("full", zero, shape=(), dtype=x.dtype.name),
                 pad_width=((0, 0), (0, 0), *((p, p) for p in pads)))
    taps, count = math.prod(windows.kernel), math.prod(windows.counts())
    flat = x.reshape((batch, channels, math.prod(windows.size)))
    found = call("take", flat, windows.positions().reshape(-1), axis=2)
    return without_batch(found.reshape((batch, channels * taps, count)), has_batch)


@checked
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns (N, C · kernel elements, windows) added up to images (N, C, H, W)."""
    x, has_batch = with_batch(input, 3, "fold")
    size = per_axis(output_size, 2, "output_size")
    windows, pads = _windows("fold", size, kernel_size, dilation, padding, stride)
    taps, count = math.prod(windows.kernel), math.prod(windows.counts())
    batch, rows, columns = x.shape
    if rows % taps or columns != count:
        raise InvalidInputError("fold: the columns do not fit", got=tuple(x.shape),
                                expected=f"(N, C * {taps}, {count})")
    shape = (batch, rows // taps, math.prod(windows.size))
    parts = x.reshape((*shape[:2], taps * count))
    where = np.broadcast_to(windows.positions().reshape(-1), tuple(parts.shape))
    zeros = call("zeros", shape=shape, dtype=x.dtype.name)
    total = call("scatter_elements", zeros, np.ascontiguousarray(where), parts, axis=2,
                 reduction="add")
    image = total.reshape((*shape[:2], *windows.size))
    if any(pads):
        image = call("strided_slice", image, begin=pads, axes=(2, 3),
                     end=tuple(p + s for p, s in zip(pads, size, strict=True)))
    return without_batch(image, has_batch)
