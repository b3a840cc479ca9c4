"""Fast Fourier transforms: one program for sizes of any factors, vector passes for fixed sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

_ERRORS = {"float32": 4e-7, "float64": 2e-15}


@pytest.fixture(scope="module")
def transforms() -> Any:
    """A program of both directions, for all sizes."""
    params = ", ".join(f"%{name}: Tensor[(2, b, n), float64]" for name in "xy")
    return weft.compile(weft.parse(
        f"def @main({params}) {{ (dft(%x, %y), dft(%x, %y, inverse=True)) }}"))


# Of one factor each, powers of two with odd and even exponents, primes and products.
@pytest.mark.sample(0.4)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 12, 49, 97, 64, 360, 1001])
def test_agrees_with_numpy(transforms: Any, size: int) -> None:
    rng = np.random.default_rng(size)
    real, imaginary = rng.standard_normal((2, 2, 3, size))
    parts = [np.asarray(part) for part in transforms(real, imaginary)]
    for found, numpy in ((parts[:2], np.fft.fft), (parts[2:], np.fft.ifft)):
        expected = numpy(real + 1j * imaginary)
        error = np.abs(found[0] + 1j * found[1] - expected).max()
        assert error <= 1e-13 * np.abs(expected).max()


@pytest.fixture(scope="module")
def there_and_back() -> Any:
    """Half of the frequencies, the real parts doubled, and their inverse, for all sizes."""
    return weft.compile(weft.parse("""
    def @main(%x: Tensor[(2, n{1..}), float32]) {
      %half = rdft(%x);
      irdft(multiply(%half.0, 2f), %half.1, size=n{1..})
    }"""))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 15, 96])
def test_inverse_of_symbolic_size(there_and_back: Any, size: int) -> None:
    x = np.random.default_rng(size).standard_normal((2, size))
    half = np.fft.rfft(x)
    expected = np.fft.irfft(2 * half.real + 1j * half.imag, size)
    found = there_and_back(x.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _program(shape: tuple[int, ...], dtype: str, call: str = "dft(%x, %y)") -> Any:
    params = ", ".join(f"%{name}: Tensor[{shape}, {dtype}]" for name in "xy" if f"%{name}" in call)
    return weft.compile(weft.parse(f"def @main({params}) {{ {call} }}"))


def _inputs(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(shape[-1]).standard_normal((2, *shape)).astype(dtype)


def _check_call(call: str, shape: tuple[int, ...], dtype: str, expected: Any) -> None:
    """Compare with a function of NumPy; the error is relative to the length of the result."""
    real, imaginary = _inputs(shape, dtype)
    args = (real, imaginary) if "%y" in call else (real,)
    found = _program(shape, dtype, call)(*args)
    parts = [np.asarray(x) for x in found] if isinstance(found, (tuple, list)) else [found, 0]
    wide = real.astype("float64")
    right = expected(wide + 1j * imaginary if "%y" in call else wide)
    error = np.linalg.norm(parts[0] + np.multiply(1j, parts[1]) - right)
    assert error <= _ERRORS[dtype] * np.linalg.norm(right), (call, shape)


def _check(size: int, dtype: str) -> None:
    _check_call("dft(%x, %y)", (3, size), dtype, np.fft.fft)
    _check_call("dft(%x, %y, inverse=True)", (3, size), dtype, np.fft.ifft)
    _check_call("rdft(%x)", (3, size), dtype, np.fft.rfft)
    _check_call(f"irdft(%x, %y, size={size})", (3, size // 2 + 1), dtype,
                lambda x: np.fft.irfft(x, size))


# One pass; two and three, of runs that vectors fill, overlap in, or are shorter than; convolutions.
@pytest.mark.sample(0.4)
@pytest.mark.parametrize(("size", "dtype"), [
    (1, "float32"), (4, "float32"), (13, "float64"), (20, "float32"), (45, "float32"),
    (64, "float64"), (480, "float32"), (37, "float64")])
def test_fixed_sizes_agree_with_numpy(size: int, dtype: str) -> None:
    _check(size, dtype)


# Factors from two tables, at starts that are multiples of the vectors or not.
@pytest.mark.parametrize("size", [16384, 19683])
def test_long_rows_agree_with_numpy(size: int) -> None:
    _check_call("dft(%x, %y)", (1, size), "float32", np.fft.fft)


# Vectors of the last axis: whole and overlapping ones, short ones; a size without passes.
@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("shape", "axis"), [
    ((2, 16, 21), -2), ((2, 18, 3, 5), -3), ((2, 37, 8), -2)])
@pytest.mark.parametrize("inverse", [False, True])
def test_other_axes_agree_with_numpy(shape: tuple[int, ...], axis: int, inverse: bool) -> None:
    numpy = np.fft.ifft if inverse else np.fft.fft
    _check_call(f"dft(%x, %y, axis={axis}, inverse={inverse})", shape, "float32",
                lambda x: numpy(x, axis=axis))


@pytest.mark.sample(0.02, 2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [
    *range(1, 65), 97, 154, 202, 243, 500, 512, 625, 720, 1000, 1024, 1331, 4095, 4097])
def test_every_size_agrees_with_numpy(size: int, dtype: str) -> None:
    _check(size, dtype)


def test_rows_and_threads_do_not_change_bits() -> None:
    shape = (4, 3, 480)
    real, imaginary = _inputs(shape, "float32")
    program = _program(shape, "float32")
    with weft.config(threads=1):
        single = program(real, imaginary)
    with weft.config(threads=2):
        found = [np.asarray(x) for x in program(real, imaginary)]
    alone = _program((1, 480), "float32")(real[2, 1:2].copy(), imaginary[2, 1:2].copy())
    for x, y, z in zip(found, single, alone, strict=True):
        assert np.array_equal(x, np.asarray(y))
        assert np.array_equal(x[2, 1:2], np.asarray(z))
