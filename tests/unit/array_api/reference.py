"""NumPy as the reference of the array API standard, and the values that its tables single out."""

from __future__ import annotations

from typing import Any

import numpy as np

SPECIAL = np.array([0.0, -0.0, 1, -1, 0.5, -2.5, 1.5, 2.5, 3, np.inf, -np.inf, np.nan, 1e-30, 100,
                    -100])
FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Of the last digits: weft's own polynomials, and sums in another order.
TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 1e-6}, "float64": {"rtol": 1e-12, "atol": 1e-12}}


def check(got: Any, wanted: Any, what: object = "") -> None:
    """The same dtype, shape and values; zeros of one sign."""
    found, expected = np.asarray(got), np.asarray(wanted)
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    if expected.dtype.kind == "c":
        for part in ("real", "imag"):
            check(getattr(found, part), getattr(expected, part), (what, part))
        return
    tolerance = TOLERANCE.get(expected.dtype.name)
    if tolerance is None:
        np.testing.assert_array_equal(found, expected, err_msg=str(what))
        return
    np.testing.assert_allclose(found, expected, err_msg=str(what), **tolerance)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]),
                                  err_msg=str(what))
