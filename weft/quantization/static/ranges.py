"""Ranges of activations from calibration data, and the scales and zero points that they give.

Each method maps a histogram of the observed values to the range that 8 bits shall cover: what lies
beyond is clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, OptionError
from weft.support.suggestion import did_you_mean

BINS = 2048
_SHRINKS = np.linspace(1.0, 0.1, 91)
LEVELS = 256


class Histogram:
    """How often values fall into ``BINS`` equal parts of a range, which grows with the data."""

    def __init__(self) -> None:
        self.low = self.high = 0.0
        self.counts = np.zeros(BINS)

    def add(self, values: np.ndarray) -> None:
        """Count further values; raises ``InvalidInputError`` for NaN and infinities."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not np.isfinite(low + high):
            raise InvalidInputError("calibration gives values that are not finite",
                                    expected="finite activations", got=f"{low} to {high}",
                                    help="check the calibration data, or the model in float32")
        wanted = (min(low, self.low), max(high, self.high))
        if wanted != (self.low, self.high):
            centres, before = self.centres, self.counts
            self.low, self.high = wanted
            self.counts = self._counted(centres[before > 0], before[before > 0])
        self.counts += self._counted(values.ravel(), None)

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin."""
        width = (self.high - self.low) / BINS
        return self.low + width * (np.arange(BINS) + 0.5)

    def _counted(self, values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        width = (self.high - self.low) / BINS
        if not width:
            return np.zeros(BINS)
        index = np.minimum((values - np.float64(self.low)) / width, BINS - 1).astype(np.int64)
        return np.bincount(index, weights, BINS).astype(np.float64)


# (histogram, percentage) -> the range to cover
Method: TypeAlias = Callable[[Histogram, float], "tuple[float, float]"]


def _minmax(seen: Histogram, _: float) -> tuple[float, float]:
    return seen.low, seen.high


def _percentile(seen: Histogram, percentage: float) -> tuple[float, float]:
    """What is left of the values without the same number of outliers at both ends."""
    below = np.cumsum(seen.counts)
    total, centres = below[-1], seen.centres
    outside = total * (1 - percentage / 100)
    low = centres[min(int(np.searchsorted(below, outside)), BINS - 1)]
    high = centres[min(int(np.searchsorted(below, total - outside)), BINS - 1)]
    return (min(low, 0.0) if seen.low < 0 else 0.0), (max(high, 0.0) if seen.high > 0 else 0.0)


def _least_squares(seen: Histogram, _: float) -> tuple[float, float]:
    """The shrunken range with the smallest squared error of clipping and rounding."""
    return _best(seen, lambda low, high: _squared_error(seen, low, high))


def _squared_error(seen: Histogram, low: float, high: float) -> float:
    scale = (high - low) / (LEVELS - 1)
    clipped = np.clip(seen.centres, low, high)
    # A value is rounded by an error that is uniform within half a step.
    squares = (seen.centres - clipped) ** 2 + scale**2 / 12 * (clipped == seen.centres)
    return float(seen.counts @ squares)


def _divergence(seen: Histogram, _: float) -> tuple[float, float]:
    """The shrunken range whose quantised histogram diverges least from the observed one."""
    return _best(seen, lambda low, high: _kl_of_range(seen, low, high))


def _kl_of_range(seen: Histogram, low: float, high: float) -> float:
    """Kullback-Leibler divergence, with what is clipped counted at the ends (Migacz, 2017)."""
    centres, counts = seen.centres, seen.counts
    inside = (centres >= low) & (centres <= high)
    kept = counts[inside]
    if not kept.sum():
        return float("inf")
    observed = kept.copy()
    observed[0] += counts[centres < low].sum()
    observed[-1] += counts[centres > high].sum()
    level = np.minimum((centres[inside] - low) / (high - low) * LEVELS, LEVELS - 1).astype(int)
    is_used = kept > 0
    totals = np.bincount(level, kept, LEVELS)
    spread = np.where(is_used, totals[level] / np.maximum(
        np.bincount(level, is_used, LEVELS)[level], 1), 0)
    p, q = observed / observed.sum(), spread / spread.sum()
    both = p > 0
    return float(np.sum(p[both] * np.log(p[both] / np.maximum(q[both], 1e-12))))


def _best(seen: Histogram, loss: Callable[[float, float], float]) -> tuple[float, float]:
    ranges = [(seen.low * shrink, seen.high * shrink) for shrink in _SHRINKS]
    return min(ranges, key=lambda ends: loss(*ends))


METHODS: Mapping[str, Method] = {
    "minmax": _minmax, "percentile": _percentile, "mse": _least_squares, "kl": _divergence,
}


@dataclass(frozen=True, slots=True)
class Quantizer:
    """``real = scale * (stored - zero)``, stored as ``dtype``."""

    scale: float
    zero: int
    dtype: str


def method_named(name: str) -> Method:
    """The calibration of that name; raises ``OptionError`` if there is none."""
    if name not in METHODS:
        raise OptionError(f"unknown calibration {name!r}", expected=", ".join(METHODS),
                          help=did_you_mean(name, METHODS))
    return METHODS[name]


def quantizer_of(seen: Histogram, calibration: str, percentage: float, dtype: str) -> Quantizer:
    """Scale and zero point of a tensor: around 0 for int8, else such that 0 is exact."""
    if seen.high == seen.low:
        return Quantizer(1.0, 0, dtype)
    low, high = method_named(calibration)(seen, percentage)
    low, high = min(low, 0.0), max(high, 0.0)
    if dtype == "int8":
        return Quantizer(_positive(max(-low, high) / 127), 0, dtype)
    scale = _positive((high - low) / (LEVELS - 1))
    return Quantizer(scale, round(-low / scale), dtype)


def _positive(scale: float) -> float:
    """The scale as float32 holds it; that of values too small for float32 is the least normal."""
    return float(np.float32(max(scale, np.finfo(np.float32).tiny)))


def weight_scales(weight: np.ndarray, axis: int) -> np.ndarray:
    """The scales of int8 weights around 0: one per channel of ``axis``, or one for -1."""
    others = tuple(i for i in range(weight.ndim) if i != axis) if axis >= 0 else None
    largest = np.abs(weight).max(axis=others)
    scales = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    return np.maximum(scales, np.finfo(np.float32).tiny)


def stored_weight(weight: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
    """The weight as int8."""
    shape = [1] * weight.ndim
    if axis >= 0:
        shape[axis] = -1
    steps = np.rint(weight / scales.reshape(shape if axis >= 0 else ()))
    return np.clip(steps, -127, 127).astype(np.int8)
