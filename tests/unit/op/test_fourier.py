"""The fast Fourier transform for every kind of size, in one program for all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


@pytest.fixture(scope="module")
def transforms() -> Any:
    """A program of both directions, for all sizes."""
    params = ", ".join(f"%{name}: Tensor[(2, b, n), float64]" for name in "xy")
    return weft.compile(weft.parse(
        f"def @main({params}) {{ (dft(%x, %y), dft(%x, %y, inverse=True)) }}"))


# Of one factor each, powers of two with odd and even exponents, primes and products.
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 12, 49, 97, 64, 360, 1001])
def test_agrees_with_numpy(transforms: Any, size: int) -> None:
    rng = np.random.default_rng(size)
    real, imaginary = rng.standard_normal((2, 2, 3, size))
    parts = [np.asarray(part) for part in transforms(real, imaginary)]
    for found, numpy in ((parts[:2], np.fft.fft), (parts[2:], np.fft.ifft)):
        expected = numpy(real + 1j * imaginary)
        error = np.abs(found[0] + 1j * found[1] - expected).max()
        assert error <= 1e-13 * np.abs(expected).max()
