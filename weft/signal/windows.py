"""Window functions, symmetric or (for spectra) periodic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.dtypes import as_dtype, get_default_dtype
from weft.eager.placement import new_value
from weft.eager.record import wrap
from weft.eager.signature import factory
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _line(count: int, sym: bool) -> np.ndarray:
    """Places from 0 to 1, the last of which a periodic window leaves out."""
    if count < 0:
        raise InvalidInputError("a window has a negative length", got=str(count))
    return np.arange(count) / max(1, count - 1 if sym else count)


def _tensor(values: np.ndarray, dtype: Any) -> Any:
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    if not d.is_floating_point:
        raise InvalidInputError("a window of a dtype that is not floating point", got=repr(d))
    return wrap(new_value(np.ascontiguousarray(values.astype(d.numpy)), d))


def _cosines(M: int, terms: Iterable[float], sym: bool, dtype: Any) -> Any:
    """Alternating sums of cosines; one element is 1."""
    angle = 2 * math.pi * _line(M, sym)
    total = sum((-1) ** k * a * np.cos(k * angle) for k, a in enumerate(terms))
    return _tensor(np.ones(1) if M == 1 else np.broadcast_to(total, (M,)), dtype)


@factory
def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None) -> Tensor:
    """A sum of cosines with these weights and alternating signs."""
    return _cosines(M, a, sym, dtype)


@factory
def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None) -> Tensor:
    """``alpha - (1 - alpha) * cos(x)``."""
    return _cosines(M, (alpha, 1 - alpha), sym, dtype)


@factory
def hamming(M: int, *, sym: bool = True, dtype: Any = None) -> Tensor:
    """The Hamming window."""
    return _cosines(M, (0.54, 0.46), sym, dtype)


@factory
def hann(M: int, *, sym: bool = True, dtype: Any = None) -> Tensor:
    """The Hann window."""
    return _cosines(M, (0.5, 0.5), sym, dtype)


@factory
def blackman(M: int, *, sym: bool = True, dtype: Any = None) -> Tensor:
    """The Blackman window."""
    return _cosines(M, (0.42, 0.5, 0.08), sym, dtype)


@factory
def nuttall(M: int, *, sym: bool = True, dtype: Any = None) -> Tensor:
    """The window of Nuttall with least side lobes, of four terms."""
    return _cosines(M, (0.3635819, 0.4891775, 0.1365995, 0.0106411), sym, dtype)


@factory
def bartlett(M: int, *, sym: bool = True, dtype: Any = None) -> Tensor:
    """A triangle from 0 to 1 and back."""
    x = _line(M, sym)
    return _tensor(np.ones(1) if M == 1 else 1 - np.abs(2 * x - 1), dtype)


def _period(count: int, sym: bool) -> int:
    """The samples of a period, of which a periodic window leaves out the last one."""
    return count if sym or count <= 1 else count + 1


@factory
def cosine(M: int, *, sym: bool = True, dtype: Any = None) -> Tensor:
    """Half a period of a sine."""
    return _tensor(np.sin(math.pi / max(1, _period(M, sym)) * (np.arange(M) + 0.5)), dtype)


@factory
def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True,
                dtype: Any = None) -> Tensor:
    """``exp(-|n - center| / tau)``."""
    if tau <= 0:
        raise InvalidInputError("tau of a window is not positive", got=repr(tau))
    middle = (_period(M, sym) - 1) / 2 if center is None else center
    return _tensor(np.exp(-np.abs(np.arange(M) - middle) / tau), dtype)


@factory
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None) -> Tensor:
    """The normal distribution's bell."""
    if std <= 0:
        raise InvalidInputError("std of a window is not positive", got=repr(std))
    middle = (_period(M, sym) - 1) / 2
    return _tensor(np.exp(-((np.arange(M) - middle) / std) ** 2 / 2), dtype)


@factory
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None) -> Tensor:
    """The Kaiser window, by the Bessel function of order 0."""
    x = np.ones(1) if M == 1 else np.i0(
        beta * np.sqrt(np.maximum(0.0, 1 - (2 * _line(M, sym) - 1) ** 2))) / np.i0(beta)
    return _tensor(np.asarray(x), dtype)


def _window(name: str, function: Any) -> Any:
    """The older form of a window function, whose windows are periodic by default."""

    def call(window_length: int, periodic: bool = True, *args: Any, **named: Any) -> Any:
        extra = dict(zip(_EXTRA.get(name, ()), args, strict=True))
        return function(window_length, sym=not periodic, **extra, **named)

    call.__name__ = call.__qualname__ = f"{name}_window"
    call.__doc__ = function.__doc__
    return call


_EXTRA = {"kaiser": ("beta",)}
bartlett_window, blackman_window, hann_window, kaiser_window = [
    _window(f.__name__, f) for f in (bartlett, blackman, hann, kaiser)]


@factory
def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54,
                   beta: float = 0.46, *, dtype: Any = None) -> Tensor:
    """``alpha - beta * cos(x)``, periodic by default."""
    return _cosines(window_length, (alpha, beta), not periodic, dtype)
