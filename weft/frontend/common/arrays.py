"""NumPy's functions that make arrays, for sizes that a model decides.

Each asks the allocation budget before it computes: ``UnsupportedModelError`` if the array would be
too large. Front ends make arrays by these functions alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.support.allocation import check_allocation

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Sizes = Sequence[int] | int


def zeros(shape: Sizes, dtype: DTypeLike = np.float64) -> np.ndarray:
    return np.zeros(_granted(shape, dtype), dtype)


def ones(shape: Sizes, dtype: DTypeLike = np.float64) -> np.ndarray:
    return np.ones(_granted(shape, dtype), dtype)


def full(shape: Sizes, value: Any, dtype: DTypeLike | None = None) -> np.ndarray:
    return np.full(_granted(shape, dtype or np.asarray(value).dtype), value, dtype)


def empty(shape: Sizes, dtype: DTypeLike) -> np.ndarray:
    return np.empty(_granted(shape, dtype), dtype)


def arange(start: float, stop: float | None = None, step: float = 1,
           dtype: DTypeLike | None = None) -> np.ndarray:
    """As ``np.arange``; the default dtype of whole numbers is int64."""
    first, last = (0, start) if stop is None else (start, stop)
    if math.isfinite(first) and math.isfinite(last) and step:
        count = max(0, math.ceil((last - first) / step))
        _granted(count, dtype or np.int64)
    return np.arange(first, last, step, dtype=dtype)


def linspace(start: Any, stop: Any, count: int) -> np.ndarray:
    _granted(count, np.float64)
    return np.linspace(start, stop, count)


def eye(rows: int, columns: int | None = None, k: int = 0,
        dtype: DTypeLike = np.float64) -> np.ndarray:
    width = rows if columns is None else columns
    _granted((rows, width), dtype)
    k = max(-rows, min(k, width))  # NumPy takes 64-bit numbers alone
    return np.eye(rows, width, k, dtype)


def tri(rows: int, columns: int, dtype: DTypeLike = np.float64) -> np.ndarray:
    _granted((rows, columns), dtype)
    return np.tri(rows, columns, dtype=dtype)


def repeat(array: np.ndarray, count: int) -> np.ndarray:
    """Each element of ``array`` ``count`` times, in one dimension."""
    _granted(array.size * max(count, 0), array.dtype)
    return np.repeat(array, count)


def spread(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A copy of ``array``, broadcast to ``shape``."""
    _granted(shape, array.dtype)
    return np.broadcast_to(array, shape).copy()


def _granted(shape: Sizes, dtype: DTypeLike) -> tuple[int, ...]:
    sizes = (operator.index(shape),) if not isinstance(shape, Sequence) \
        else tuple(map(operator.index, shape))
    check_allocation(sizes, np.dtype(dtype).itemsize)
    return sizes
