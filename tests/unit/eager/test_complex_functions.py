"""Functions of complex tensors: special values are NumPy's (of C99), gradients torch's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft

# torch's and weft's name -> NumPy's
NAMES = {"exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan",
         "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asin": "arcsin", "acos": "arccos",
         "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-30, 3e18, 100.0, np.inf, -np.inf, np.nan)
NUMBERS = np.array([complex(a, b) for a in PARTS for b in PARTS])
# Values of which C leaves the sign of a zero, or whether it is NaN, to the library.
OPEN = {"exp": lambda z: np.isneginf(z.real) & np.isinf(z.imag),
        "tanh": lambda z: np.isinf(z.real) & np.isinf(z.imag),
        "tan": lambda z: np.isinf(z.real) & np.isinf(z.imag) | ~np.isfinite(z.real),
        "atan": lambda z: np.isnan(z.imag),
        "sinh": lambda z: np.isinf(z.real) & ~np.isfinite(z.imag),
        "sin": lambda z: np.isinf(z.imag) & ~np.isfinite(z.real)}


def _agree(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    near = np.isclose(found, wanted, 1e-12, 1e-300, equal_nan=True)
    return near & ((wanted != 0) | (np.signbit(found) == np.signbit(wanted)))


@pytest.mark.sample(0.15)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_special_values_are_those_of_c(name: str) -> None:
    found = getattr(weft, name)(weft.tensor(NUMBERS)).numpy()
    wanted = getattr(np, NAMES[name])(NUMBERS)
    fits = _agree(found.real, wanted.real) & _agree(found.imag, wanted.imag)
    if name in OPEN:
        fits |= OPEN[name](NUMBERS)
    assert fits.all(), list(zip(NUMBERS[~fits], found[~fits], wanted[~fits], strict=True))[:8]


_PART = st.floats(width=32) | st.sampled_from(PARTS)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(st.lists(st.tuples(_PART, _PART), min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_roots_logarithms_and_lengths_of_any_number(parts: list[tuple[float, float]]) -> None:
    z = np.array([complex(*pair) for pair in parts])
    for name in ("sqrt", "log", "abs"):
        found, wanted = getattr(weft, name)(weft.tensor(z)).numpy(), getattr(np, name)(z)
        assert _agree(found.real, wanted.real).all(), (name, z, found, wanted)
        assert _agree(found.imag, wanted.imag).all(), (name, z, found, wanted)


@pytest.mark.torch
@pytest.mark.sample(0.1)
@pytest.mark.parametrize("name", [*NAMES, "expm1", "log1p", "rsqrt", "reciprocal", "sigmoid",
                                  "sgn", "angle", "log2", "abs"])
def test_gradients_are_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    z = rng.normal(size=30) + 1j * rng.normal(size=30)
    z[:6].imag = 0  # the real axis, where cuts are beside the principal values
    z[:6].real = np.abs(z[:6].real) * 0.3 + 0.05
    if name == "acosh":
        z = z[6:]
    mine, theirs = weft.tensor(z, requires_grad=True), torch.tensor(z, requires_grad=True)
    found, wanted = getattr(weft, name)(mine), getattr(torch, name)(theirs)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-11, 1e-12)
    slopes = rng.normal(size=z.size) + 1j * rng.normal(size=z.size)
    slopes = slopes if wanted.is_complex() else slopes.real.copy()
    found.backward(weft.tensor(slopes))
    wanted.backward(torch.tensor(slopes))
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), 1e-10, 1e-12)
