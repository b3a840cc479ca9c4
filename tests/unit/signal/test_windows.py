"""Window functions, by closed forms and NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.signal import windows
from weft.support.errors import InvalidInputError


@pytest.mark.parametrize(("name", "reference", "extra"), [
    ("hann", np.hanning, {}), ("hamming", np.hamming, {}), ("blackman", np.blackman, {}),
    ("bartlett", np.bartlett, {}), ("kaiser", lambda n: np.kaiser(n, 12.0), {}),
    ("general_hamming", np.hamming, {"alpha": 0.54}),
    ("general_cosine", np.blackman, {"a": (0.42, 0.5, 0.08)})])
def test_windows_of_numpy(name, reference, extra):
    for count in (0, 1, 5, 8):
        found = getattr(windows, name)(count, **extra, dtype=weft.float64)
        np.testing.assert_allclose(found.numpy(), reference(count), atol=1e-12)


def test_periodic_windows_leave_the_last_element_out():
    np.testing.assert_allclose(windows.hann(4, sym=False).numpy(), np.hanning(5)[:4], atol=1e-7)
    np.testing.assert_allclose(weft.hann_window(4).numpy(), np.hanning(5)[:4], atol=1e-7)
    np.testing.assert_allclose(weft.kaiser_window(4, False, 3.0).numpy(), np.kaiser(4, 3.0),
                               atol=1e-6)


@pytest.mark.parametrize("name", ["cosine", "gaussian", "exponential", "hann"])
def test_a_window_of_one_element_is_one(name):
    for sym in (True, False):
        np.testing.assert_allclose(getattr(windows, name)(1, sym=sym).numpy(), [1.0])


def test_bells():
    found = windows.gaussian(5, std=2.0).numpy()
    np.testing.assert_allclose(found, np.exp(-np.arange(-2, 3) ** 2 / 8), rtol=1e-6)
    found = windows.exponential(5, tau=2.0).numpy()
    np.testing.assert_allclose(found, np.exp(-np.abs(np.arange(-2, 3)) / 2), rtol=1e-6)


def test_windows_refuse_what_they_cannot_be():
    with pytest.raises(InvalidInputError, match="negative length"):
        windows.hann(-1)
    with pytest.raises(InvalidInputError, match="floating point"):
        windows.hann(3, dtype=weft.int64)
