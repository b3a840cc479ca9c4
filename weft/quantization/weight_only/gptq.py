"""GPTQ (Frantar et al., 2022): columns are rounded in turn, the rest makes up for their errors."""

from __future__ import annotations

import numpy as np

from weft.quantization.weight_only.gram import Gram
from weft.quantization.weight_only.scales import Groups, groups_of
from weft.support.errors import InvalidInputError

_COLUMNS = 128  # whose errors reach the columns after them at once
_TRIES = 6  # each with ten times the damping, for Hessians that are not positive definite


def gptq(matrix: np.ndarray, format: str, gram: Gram, *, damping: float, act_order: bool
         ) -> tuple[np.ndarray, Groups]:
    """The values of ``matrix`` [N, K] in the format, and the scales that they have.

    Scales are those of the least error weighted by the mean squares of inputs, chosen before:
    so columns may be taken in any order, that of their inputs' squares with ``act_order``.
    """
    groups = groups_of(matrix, format, search=True, weights=gram.diagonal)
    order = np.argsort(-gram.diagonal, kind="stable") if act_order \
        else np.arange(matrix.shape[1])
    upper = _inverse_factor(gram.products[np.ix_(order, order)], damping)
    rest = np.ascontiguousarray(matrix[:, order].T, dtype=np.float32)  # a column is a row here
    out = np.empty_like(rest)
    group = order // groups.encoding.elements
    for first in range(0, len(order), _COLUMNS):
        part = slice(first, min(first + _COLUMNS, len(order)))
        errors = _round_columns(rest[part], out[part], upper[part, part], groups, group[part])
        rest[part.stop:] -= upper[part, part.stop:].T @ errors
    values = np.empty_like(matrix, dtype=np.float32)
    values[:, order] = out.T
    return values, groups


def _round_columns(rest: np.ndarray, out: np.ndarray, upper: np.ndarray, groups: Groups,
                   group: np.ndarray) -> np.ndarray:
    """Round the columns ``rest`` in turn; the result is their errors over the diagonal."""
    errors = np.empty_like(rest)
    for i in range(len(rest)):
        out[i] = groups.rounded(rest[i], int(group[i]))
        errors[i] = (rest[i] - out[i]) / upper[i, i]
        if i + 1 < len(rest):
            rest[i + 1:] -= np.outer(upper[i, i + 1:], errors[i])
    return errors


def _inverse_factor(hessian: np.ndarray, damping: float) -> np.ndarray:
    """The upper factor U of the damped inverse: inverse = U^T U."""
    wide = hessian.astype(np.float64)
    diagonal = np.einsum("ii->i", wide)
    mean = float(diagonal.mean())
    if not np.isfinite(mean):
        raise InvalidInputError("the calibration data of a layer is not finite",
                                expected="finite activations", got="NaN or infinity")
    diagonal[diagonal <= 0] = mean or 1.0  # inputs that are always zero
    for _ in range(_TRIES):
        diagonal += damping * (mean or 1.0)
        try:
            inverse = np.linalg.inv(wide)
            return np.linalg.cholesky((inverse + inverse.T) / 2).T.astype(np.float32)
        except np.linalg.LinAlgError:
            damping *= 10
    raise InvalidInputError("the second moments of a layer's data have no inverse",
                            help="pass more calibration data, or a larger damping=")
