"""Operations of the evaluator that differ from Python's and NumPy's operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.dtype import int64
from weft.tir.expr import wrap


def converted(value: Any, dtype: np.dtype) -> Any:
    return np.asarray(value).astype(dtype)[()]


def reinterpreted(value: Any, dtype: np.dtype) -> Any:
    return np.asarray(value).view(dtype)[()]


def wrapped(value: Any) -> Any:
    """A Python integer wrapped to int64."""
    return value if -(2**63) <= value < 2**63 else wrap(value, int64)


def floordiv(a: Any, b: Any) -> Any:
    """Division by zero gives 0, as in NumPy; the smallest integer by -1 is itself."""
    return np.floor_divide(a, b)


def floormod(a: Any, b: Any) -> Any:
    return np.remainder(a, b)


def truncated(a: Any, b: Any) -> Any:
    down: Any = np.floor_divide(a, b)
    opposite = ((np.asarray(a) < 0) != (np.asarray(b) < 0)) & (np.asarray(b) != 0)
    return np.where(opposite & (down * b != a), down + down.dtype.type(1), down)[()]


def ramp(base: Any, stride: Any, lanes: int, dtype: np.dtype) -> np.ndarray:
    return (base + np.arange(lanes, dtype=dtype) * stride).astype(dtype)


def shuffled(vectors: tuple[Any, ...], indices: list[int]) -> Any:
    picked = np.concatenate([np.atleast_1d(v) for v in vectors])[indices]
    return picked if len(indices) > 1 else picked[0]


HELPERS = (converted, reinterpreted, wrapped, floordiv, floormod, truncated, ramp, shuffled)
