"""Resampling in NumPy: the reference of the operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.topi.image.taps import Resampling, fixed_new_size, taps_of


def taps_matrix(axis: Resampling, size: int) -> np.ndarray:
    """The matrix (new size, size) by which resampling multiplies an axis."""
    matrix = np.zeros((fixed_new_size(axis), size))
    for i, row in enumerate(taps_of(axis, size)):
        for position, weight in row:
            matrix[i, position] += weight
    return matrix


def resized(x: np.ndarray, axes: Mapping[int, Resampling], dtype: Any, fill: float) -> np.ndarray:
    """Resample each axis of ``x`` by a matmul."""
    moving = {a: axis for a, axis in axes.items() if not axis.keeps(x.shape[a])}
    interpolates = any(axis.method != "nearest_neighbor" for axis in moving.values())
    result = x.astype(np.float64) if interpolates else x
    outside = beyond(moving, x.shape)
    for a, axis in moving.items():
        along = [1] * x.ndim
        along[a] = fixed_new_size(axis)
        taps = taps_of(axis, x.shape[a])
        taken = [np.take(result, [row[k][0] for row in taps], a) for k in range(len(taps[0]))]
        if interpolates:
            taken = [one * np.array([row[k][1] for row in taps]).reshape(along)
                     for k, one in enumerate(taken)]
        result = sum(taken[1:], taken[0])
    if outside.any():
        result = np.where(outside, np.asarray(fill, result.dtype), result)
    if interpolates and np.issubdtype(dtype, np.integer):
        result = np.rint(result)
    return np.ascontiguousarray(result.astype(dtype))


def beyond(axes: Mapping[int, Resampling], shape: Sequence[int]) -> np.ndarray:
    """The output positions outside the data, which ``tf_crop_and_resize`` allows."""
    found = np.zeros((1,) * len(shape), bool)
    for a, axis in axes.items():
        if axis.transform != "tf_crop_and_resize":
            continue
        positions = [axis.source(float(i), float(shape[a])) for i in range(fixed_new_size(axis))]
        outside = np.array([not 0 <= p <= shape[a] - 1 for p in positions])
        found = found | outside.reshape([-1 if i == a else 1 for i in range(len(shape))])
    return found
