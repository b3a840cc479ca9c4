"""The NumPy meaning of convolution and pooling windows, shared by references.

Images are (N, C, spatial axes…), kernels (O, I, spatial axes…), with one to three spatial axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.topi.layout import Layout, transform_array
from weft.topi.nn.conv import data_axes


def windows(
    x: np.ndarray, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> np.ndarray:
    """The windows of ``x`` as (N, C, outputs…, taps…), without a copy."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    axes = tuple(range(2, 2 + len(spans)))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    steps = tuple(slice(None, None, step) for step in (*strides, *dilation))
    return view[(slice(None), slice(None), *steps)]


def pad_spatial(x: np.ndarray, padding: Sequence[int], value: float = 0.0) -> np.ndarray:
    """``x`` with elements of ``value`` around it: all numbers before the data, then all after."""
    half = len(padding) // 2
    widths = ((0, 0), (0, 0), *zip(padding[:half], padding[half:], strict=True))
    return np.pad(x, widths, constant_values=value)


def conv_reference(
    data: np.ndarray,
    kernel: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Convolution as one GEMM for each group, in float64 or int64.

    ``padding`` has all numbers before the axes, then all after them.
    """
    wide = np.int64 if np.issubdtype(data.dtype, np.integer) else np.float64
    taps = windows(pad_spatial(data.astype(wide), padding), kernel.shape[2:], strides, dilation)
    spatial = len(strides)
    n, sizes = taps.shape[0], taps.shape[2:2 + spatial]
    out_channels, group_size = kernel.shape[:2]
    result = np.empty((n, out_channels, *sizes), wide)
    outputs = out_channels // groups
    positions = tuple(range(2, 2 + spatial))
    for g in range(groups):
        group = taps[:, g * group_size:(g + 1) * group_size]
        order = (0, *positions, 1, *(p + spatial for p in positions))
        columns = group.transpose(order).reshape(n * math.prod(sizes), math.prod(kernel.shape[1:]))
        rows = kernel[g * outputs:(g + 1) * outputs].reshape(outputs, columns.shape[1]).astype(wide)
        sums = (columns @ rows.T).reshape(n, *sizes, outputs)
        result[:, g * outputs:(g + 1) * outputs] = np.moveaxis(sums, -1, 1)
    return result


def unblocked_images(x: np.ndarray, layout: Layout, spatial: str) -> np.ndarray:
    """``x`` of ``layout`` as (N, C, spatial axes…)."""
    return transform_array(x, layout, data_axes(spatial))


def images_in(x: np.ndarray, layout: Layout, spatial: str) -> np.ndarray:
    """(N, C, spatial axes…) in ``layout``."""
    return transform_array(x, data_axes(spatial), layout)
