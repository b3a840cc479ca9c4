"""The least time that the kernels of a compiled model could take on this machine.

Of each kernel the larger of two counts: its arithmetic at the measured FMA peak (a Winograd
convolution counts the multiplications that it makes), and its traffic at the measured bandwidth of
the level of the memory hierarchy that holds the data (the roofline, Williams et al., 2009). Weights
are read once per call, so they come from the level that holds all data of the model; the other
operands were just written, and come from the level that holds those of the kernel. Elementwise
functions count as one operation an element, so the limit of kernels full of them is low.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.bandwidth import read_bandwidth
from benchmarks.peak import fma_peak
from weft.runtime.manifest import Manifest
from weft.runtime.profile import StepTime
from weft.runtime.sizes import evaluate
from weft.target import CpuTarget

_MEMORY_BYTES = 256 << 20  # of the buffer that measures the bandwidth of memory


@dataclass(frozen=True)
class Rates:
    """What this machine reaches: GFLOP/s of all threads, and GB/s of each level by its bytes."""

    gflops: float
    levels: Sequence[tuple[float, float]]

    def gbytes(self, held: float) -> float:
        """GB/s of the smallest level that holds ``held`` bytes."""
        return next(rate for size, rate in self.levels if held <= size)

    def __str__(self) -> str:
        rates = "/".join(f"{rate:.0f}" for _, rate in self.levels)
        return f"FMA peak {self.gflops:.0f} GFLOP/s; L1/L2/L3/memory {rates} GB/s"


@functools.lru_cache
def measured_rates(threads: int) -> Rates:
    """The rates of ``threads`` cores, measured now (a few seconds)."""
    host = CpuTarget.host()
    sizes = (host.l1_bytes * threads, host.l2_bytes * threads, host.l3_bytes)
    levels = [(float(size), read_bandwidth(size // 2, threads)) for size in sizes]
    levels.append((float("inf"), read_bandwidth(_MEMORY_BYTES, threads)))
    return Rates(fma_peak(threads), levels)


@dataclass(frozen=True)
class Limit:
    """Seconds that arithmetic and traffic need; ``seconds`` sums the larger one of each kernel."""

    seconds: float
    arithmetic: float
    traffic: float

    @property
    def is_dense(self) -> bool:
        """Whether arithmetic takes most of the time."""
        return self.arithmetic > self.traffic


def limit_of(manifest: Manifest, steps: Sequence[StepTime], rates: Rates) -> Limit:
    """The limit of one call that makes these ``steps``."""
    sizes = {one.offset: one.nbytes for one in manifest.constants}
    weights = [_weights(step, sizes) for step in steps]
    held = sum(weights) + evaluate(manifest.arena_bytes, {})
    pairs = [_kernel(step, read, held, rates) for step, read in zip(steps, weights, strict=True)]
    return Limit(sum(map(max, pairs)), sum(a for a, _ in pairs), sum(b for _, b in pairs))


def _weights(step: StepTime, sizes: dict[int, int]) -> int:
    """Bytes of constants that a kernel reads; of a table that it looks up, not all."""
    given = sum(sizes.get(at, 0) for kind, at in step.call.args if kind == "const")
    return min(given, step.bytes_moved)


def _kernel(step: StepTime, weights: int, held: float, rates: Rates) -> tuple[float, float]:
    """Seconds of the arithmetic and of the traffic of a kernel."""
    data = step.bytes_moved - weights
    traffic = weights / rates.gbytes(held) + data / rates.gbytes(data)
    return step.flops / rates.gflops * 1e-9, traffic * 1e-9
