"""Scales of groups: by their extremes, or searched for the least (weighted) squared error."""

from __future__ import annotations

import numpy as np

from weft.support.dataclass import dataclass
from weft.topi.nn.block_encode import Encoding, encoding_of

# Scales as shares of those that reach the extremes: a smaller scale clips outliers.
_SHARES = np.linspace(0.55, 1.05, 21)
_ROUNDS = 3  # of least squares, after the search
_CHUNK = 1 << 19  # elements whose scales are searched at a time


@dataclass(frozen=True, slots=True)
class Groups:
    """Scales, and offsets of formats that have them, float32 [N, groups], as stored."""

    encoding: Encoding
    scales: np.ndarray
    offsets: np.ndarray | None

    def rounded(self, values: np.ndarray, group: slice | np.ndarray | int) -> np.ndarray:
        """The nearest values that ``group`` can hold: of values [N, ...] of scales [N, ...]."""
        scale = self.scales[:, group]
        offset = None if self.offsets is None else self.offsets[:, group]
        return nearest(self.encoding, values, scale, offset)


def nearest(encoding: Encoding, values: np.ndarray, scale: np.ndarray, offset: np.ndarray | None
            ) -> np.ndarray:
    """Values of the codes nearest to ``values``; all arrays broadcast."""
    return levels_of(encoding, values, scale, offset) * scale + (0 if offset is None else offset)


def levels_of(encoding: Encoding, values: np.ndarray, scale: np.ndarray, offset: np.ndarray | None
              ) -> np.ndarray:
    """The levels of the codes nearest to ``values``, before scale and offset."""
    centred = values if offset is None else values - offset
    unit = centred / np.where(scale == 0, np.float32(1), scale)
    if encoding.zero is not None:  # evenly spaced: quicker than a table
        levels = encoding.levels
        return np.clip(np.rint(unit), levels[0], levels[-1])
    return encoding.levels[encoding.codes(unit)]


def groups_of(matrix: np.ndarray, format: str, *, search: bool, weights: np.ndarray | None = None
              ) -> Groups:
    """Scales for the rows of ``matrix`` [N, K]: of the extremes, or searched.

    ``weights`` [K] are those of the squared errors in the search, such as mean squares of inputs.
    """
    encoding = encoding_of(format)
    rows, depth = matrix.shape
    values = matrix.reshape(rows, -1, encoding.elements)
    importance = None if weights is None else _importance(weights, depth, encoding.elements)
    scales = np.empty(values.shape[:2], np.float32)
    offsets = np.empty_like(scales) if encoding.has_offset else None
    step = max(_CHUNK // max(depth, 1), 1)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        scale, offset = _extremes(encoding, values[part])
        if search:
            scale, offset = _searched(encoding, values[part], importance, scale, offset)
        scales[part] = scale
        if offsets is not None and offset is not None:
            offsets[part] = offset
    return Groups(encoding, scales, offsets)


def _importance(weights: np.ndarray, depth: int, elements: int) -> np.ndarray:
    """Weights of errors [1, groups, elements], none of them zero."""
    shifted = weights.astype(np.float32) + np.float32(1e-2 * float(weights.mean()) + 1e-12)
    return (shifted / shifted.mean()).reshape(1, depth // elements, elements)


def _stored(encoding: Encoding, values: np.ndarray) -> np.ndarray:
    """As the format stores scales: a scale that would round to zero is the smallest number."""
    limit = float(np.finfo(encoding.scale_dtype).max)
    return np.clip(values, -limit, limit).astype(encoding.scale_dtype).astype(np.float32)


def _nonzero(encoding: Encoding, scale: np.ndarray) -> np.ndarray:
    """Scales as stored, where groups of zeros have the scale 1."""
    stored = _stored(encoding, scale)
    smallest = np.float32(np.finfo(encoding.scale_dtype).smallest_subnormal)
    stored = np.where((stored == 0) & (scale != 0), np.copysign(smallest, scale), stored)
    return np.where(stored == 0, np.float32(1), stored)


def _extremes(encoding: Encoding, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    high, low = values.max(-1), values.min(-1)
    if encoding.has_offset:
        return _nonzero(encoding, (high - low) / encoding.extreme), _stored(encoding, low)
    one_sided = encoding.extreme < 0  # -8 to 7: the extreme is at -8, whatever its sign
    extreme = np.where(-low > high, low, high) if one_sided else np.maximum(high, -low)
    return _nonzero(encoding, extreme / encoding.extreme), None


def _searched(encoding: Encoding, values: np.ndarray, weights: np.ndarray | None,
              scale: np.ndarray, offset: np.ndarray | None
              ) -> tuple[np.ndarray, np.ndarray | None]:
    """The best of many shares of ``scale``, each improved by least squares."""
    best = _Best(encoding, values, weights)
    best.offer(scale, offset)
    top = float(encoding.levels[-1])
    signs = (1.0, encoding.extreme / top) if encoding.extreme < 0 < top else (1.0,)
    for sign in signs:  # -8 to 7: the extreme at the end of either side
        for share in _SHARES:
            tried = _nonzero(encoding, scale * np.float32(share * sign))
            moved = offset
            if offset is not None:  # keep the middle of the range
                moved = _stored(encoding, offset + (scale - tried) * np.float32(top / 2))
            best.offer(tried, moved)
    for _ in range(_ROUNDS):
        best.offer(*best.solved())
    return best.scale, best.offset


class _Best:
    """The scales (and offsets) with the least weighted squared error among those offered."""

    def __init__(self, encoding: Encoding, values: np.ndarray, weights: np.ndarray | None) -> None:
        self.encoding, self.values, self.weights = encoding, values, weights
        self.scale: np.ndarray = np.empty(0)
        self.offset: np.ndarray | None = None
        self._error: np.ndarray | None = None

    def offer(self, scale: np.ndarray, offset: np.ndarray | None) -> None:
        at = None if offset is None else offset[..., None]
        rest = nearest(self.encoding, self.values, scale[..., None], at) - self.values
        rest *= rest
        if self.weights is not None:
            rest *= self.weights
        error = rest.sum(-1)
        if self._error is None:
            self.scale, self.offset, self._error = scale, offset, error
            return
        better = error < self._error
        self.scale = np.where(better, scale, self.scale)
        if offset is not None and self.offset is not None:
            self.offset = np.where(better, offset, self.offset)
        self._error = np.minimum(error, self._error)

    def solved(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The solution of weighted least squares for the codes of the best scales."""
        at = None if self.offset is None else self.offset[..., None]
        levels = levels_of(self.encoding, self.values, self.scale[..., None], at)
        weights = np.float32(1) if self.weights is None else self.weights
        mean_level = mean_value = np.float32(0)
        if self.offset is not None:
            total = np.broadcast_to(weights, levels.shape).sum(-1, keepdims=True)
            mean_level = (weights * levels).sum(-1, keepdims=True) / total
            mean_value = (weights * self.values).sum(-1, keepdims=True) / total
        centred = weights * (levels - mean_level)
        square = (centred * (levels - mean_level)).sum(-1)
        dot = (centred * (self.values - mean_value)).sum(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = dot / square
        scale = np.where(np.isfinite(scale) & (scale != 0), scale, self.scale)
        scale = _nonzero(self.encoding, scale)
        if self.offset is None:
            return scale, None
        return scale, _stored(self.encoding, (mean_value - mean_level * scale[..., None])[..., 0])
