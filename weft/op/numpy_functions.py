"""Functions that NumPy lacks, for the references of operators."""

from __future__ import annotations

import math

import numpy as np


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, to a few ulps of float64.

    The series erf x = 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!! (DLMF 7.6.2) has terms of
    one sign, so there is no cancellation; for |x| > 6 the value rounds to 1.
    """
    array = np.asarray(x)
    v = np.clip(array.astype(np.float64), -6.0, 6.0)
    square = v * v
    term = v.copy()
    total = v.copy()
    for n in range(1, _erf_terms(float(np.nanmax(np.abs(v), initial=0.0)))):
        term *= square
        term *= 2.0 / (2 * n + 1)
        total += term
    return np.asarray(total * np.exp(-square) * (2.0 / math.sqrt(math.pi))).astype(array.dtype)


def _erf_terms(x: float) -> int:
    """The number of significant terms of the series for arguments up to ``x``."""
    term, total, n = x, x, 1
    while term > total * 1e-18:
        term *= 2.0 * x * x / (2 * n + 1)
        total += term
        n += 1
    return n


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), computed without overflow."""
    array = np.asarray(x)
    decay = np.exp(-np.abs(array))
    return np.where(array >= 0, 1 / (1 + decay), decay / (1 + decay)).astype(array.dtype)


def truncated_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient, truncated for integers; an integer divided by zero is zero."""
    a, b = np.asarray(a), np.asarray(b)
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    divisor = np.where(b == 0, 1, b)
    quotient = np.trunc(a / divisor) if a.dtype.itemsize < 8 else _exact_quotient(a, divisor)
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The truncated quotient, also of floats."""
    quotient = truncated_divide(a, b)
    return quotient if np.issubdtype(quotient.dtype, np.integer) else np.trunc(quotient)


def _exact_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integer division truncated towards zero, without floating point, which lacks 64 bits."""
    quotient, remainder = np.divmod(a, b)
    return quotient + ((remainder != 0) & ((a < 0) != (b < 0)))
