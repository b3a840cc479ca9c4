"""Weights of antialiased resizing: the filter widens when an axis shrinks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_CUBIC = -0.5  # as in Pillow


def antialias_weights(
    old: int, new: int, align_corners: bool, factor: float | None, *, cubic: bool
) -> np.ndarray:
    """The weights (new, old) of the old elements in each new one; rows add up to 1.

    ``factor`` is the scale factor, if it is not the ratio of the sizes. The filter is Keys' cubic
    kernel or a triangle.
    """
    kernel, reach = (_keys, 2.0) if cubic else (_triangle, 1.0)
    if align_corners:
        scale = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        scale = 1 / factor if factor else old / new
    return np.array([_row(i, old, scale, kernel, reach) for i in range(new)])


def _triangle(distance: float) -> float:
    return max(1.0 - abs(distance), 0.0)


def _keys(distance: float) -> float:
    x, a = abs(distance), _CUBIC
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _row(i: int, old: int, scale: float, kernel: Callable[[float], float], reach: float
         ) -> np.ndarray:
    stretch = max(scale, 1.0)
    center = scale * (i + 0.5)
    first = max(math.floor(center - reach * stretch + 0.5), 0)
    end = min(math.floor(center + reach * stretch + 0.5), old)
    row = np.zeros(old)
    row[first:end] = [kernel((j - center + 0.5) / stretch) for j in range(first, end)]
    return row / (row.sum() or 1.0)
