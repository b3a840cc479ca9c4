"""The NumPy meaning of convolution and pooling windows, shared by references."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.topi.layout import Layout, transform_array

NCHW = Layout.parse("NCHW")
OIHW = Layout.parse("OIHW")


def windows(
    x: np.ndarray, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> np.ndarray:
    """The windows of ``x`` (N, C, H, W) as (N, C, oh, ow, kh, kw), without a copy."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    return view[:, :, ::strides[0], ::strides[1], ::dilation[0], ::dilation[1]]


def pad_spatial(x: np.ndarray, padding: Sequence[int], value: float = 0.0) -> np.ndarray:
    """``x`` (N, C, H, W) with (top, left, bottom, right) elements of ``value``."""
    top, left, bottom, right = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def conv2d_nchw(
    data: np.ndarray,
    kernel: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Convolution as one matrix product for each group and image, summed in float64 or int64."""
    wide = np.int64 if np.issubdtype(data.dtype, np.integer) else np.float64
    taps = windows(pad_spatial(data.astype(wide), padding), kernel.shape[2:], strides, dilation)
    n, _, oh, ow = taps.shape[:4]
    out_channels, group_size = kernel.shape[:2]
    result = np.empty((n, out_channels, oh, ow), wide)
    outputs = out_channels // groups
    for g in range(groups):
        part = taps[:, g * group_size:(g + 1) * group_size]
        columns = part.transpose(0, 2, 3, 1, 4, 5).reshape(n * oh * ow, kernel[0].size)
        rows = kernel[g * outputs:(g + 1) * outputs].reshape(outputs, kernel[0].size).astype(wide)
        product = (columns @ rows.T).reshape(n, oh, ow, outputs)
        result[:, g * outputs:(g + 1) * outputs] = product.transpose(0, 3, 1, 2)
    return result


def in_nchw(x: np.ndarray, layout: Layout) -> np.ndarray:
    return transform_array(x, layout, NCHW)


def from_nchw(x: np.ndarray, layout: Layout) -> np.ndarray:
    return transform_array(x, NCHW, layout)
