"""AWQ (Lin et al., 2023): inputs with large activations get a finer grid, by scales per channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.quantization.weight_only.gram import Gram
from weft.quantization.weight_only.scales import groups_of, nearest

_EXPONENTS = np.linspace(0, 1, 11)
_ROWS = 256  # of a matrix, whose errors choose the exponent


def channel_scales(matrices: Sequence[np.ndarray], format: str, gram: Gram) -> np.ndarray | None:
    """Factors [K] of weights that read one tensor, whose output error is the least.

    The data is to be divided by them. They are powers of the mean magnitudes of the inputs;
    ``None`` if none is better than no factors.
    """
    magnitudes = gram.magnitudes / max(gram.rows, 1)
    best, least = None, np.inf
    for exponent in _EXPONENTS:
        factors = _normalised(magnitudes ** exponent)
        error = sum(_error(matrix, format, factors, gram) for matrix in matrices)
        if error < least:
            best, least = factors if exponent else None, error
    return best


def _normalised(values: np.ndarray) -> np.ndarray:
    """Positive factors whose largest and smallest are as far from 1, float32."""
    bounded = np.maximum(values, max(float(values.max()), 1e-12) * 1e-4)
    return (bounded / np.sqrt(bounded.max() * bounded.min())).astype(np.float32)


def _error(matrix: np.ndarray, format: str, factors: np.ndarray, gram: Gram) -> float:
    """The squared output error of some rows of ``matrix``, with scales as they will be searched."""
    rows = matrix[::max(len(matrix) // _ROWS, 1)]
    scaled = rows * factors
    groups = groups_of(scaled, format, search=True, weights=gram.diagonal / factors ** 2)
    offset = None if groups.offsets is None else groups.offsets[..., None]
    values = nearest(groups.encoding, scaled.reshape(len(rows), -1, groups.encoding.elements),
                     groups.scales[..., None], offset)
    return gram.norm(values.reshape(rows.shape) / factors - rows) ** 2 * len(matrix) / len(rows)
