"""The Fourier transform on CPUs: a fast transform of each row."""

from __future__ import annotations

from collections.abc import Iterator

from weft import te
from weft.ir import Attrs, Call
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.topi.fourier import fft


def _compute(real: te.Tensor, imaginary: te.Tensor, attrs: Attrs) -> tuple[te.Tensor, ...]:
    return fft(real, imaginary, inverse=attrs.inverse)  # type: ignore[attr-defined]


@strategy("dft", target="cpu", complete=True)
def dft(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Stockham's transform, of any size."""
    yield Implementation("dft.cpu.stockham", schedule_default, compute=_compute,
                         seconds=roofline_seconds(call, target))
