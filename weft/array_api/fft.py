"""The extension ``fft``: discrete Fourier transforms, frequencies and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.eager.functions import fourier
from weft.eager.tensor import Tensor

__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft",
           "irfft", "irfftn", "rfft", "rfftfreq", "rfftn"]


def _line(transform: Callable[..., Any]) -> Callable[..., Tensor]:
    """A transform along an axis."""
    def function(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
                 ) -> Tensor:
        return transform(x, n, axis, norm)  # type: ignore[no-any-return]

    return _named(function, transform)


def _space(transform: Callable[..., Any]) -> Callable[..., Tensor]:
    """A transform along several axes, by default all."""
    def function(x: Tensor, /, *, s: Sequence[int] | None = None,
                 axes: Sequence[int] | None = None, norm: str = "backward") -> Tensor:
        return transform(x, s, axes, norm)  # type: ignore[no-any-return]

    return _named(function, transform)


def _named(function: Callable[..., Tensor], like: Callable[..., Any]) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = like.__name__
    function.__doc__ = like.__doc__
    return function


fft, ifft, rfft, irfft, hfft, ihfft = map(_line, (
    fourier.fft, fourier.ifft, fourier.rfft, fourier.irfft, fourier.hfft, fourier.ihfft))
fftn, ifftn, rfftn, irfftn = map(_space, (
    fourier.fftn, fourier.ifftn, fourier.rfftn, fourier.irfftn))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``fft`` for samples at distance ``d``."""
    return fourier.fftfreq(n, d, dtype=dtype).to(device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``rfft`` for samples at distance ``d``."""
    return fourier.rfftfreq(n, d, dtype=dtype).to(device=device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Axes rolled by half, so that the frequency 0 is in the middle."""
    return fourier.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of ``fftshift``."""
    return fourier.ifftshift(x, axes)
