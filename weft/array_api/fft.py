"""The extension ``fft``: Fourier transforms of real arrays' frequencies and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.eager.functions import fourier
from weft.eager.tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


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
