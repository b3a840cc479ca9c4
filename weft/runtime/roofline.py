"""The least time that kernels could take on a machine: the roofline model.

Of each kernel the larger of two counts: its arithmetic at the measured FMA peak (a Winograd
convolution counts the multiplications that it makes), and its traffic at the measured bandwidth of
the level of the memory hierarchy that holds the data. Constants are read once per call, so they
come from the level that holds all data of the program; other operands were just written, and come
from the level that holds those of the kernel. Elementwise functions count as one operation an
element, so the limit of a kernel full of them is low. Source: Williams, Waterman and Patterson,
"Roofline", 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.runtime.calls import KernelCall
from weft.runtime.manifest import Manifest
from weft.runtime.sizes import evaluate
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a machine reaches: GFLOP/s, and of each level its bytes and GB/s, nearest first."""

    gflops: float
    levels: tuple[tuple[float, float], ...]

    def gbytes(self, held: float) -> float:
        """GB/s of the nearest level that holds ``held`` bytes."""
        return next(rate for size, rate in self.levels if held <= size)

    def __str__(self) -> str:
        rates = "/".join(f"{rate:.0f}" for _, rate in self.levels)
        return f"FMA peak {self.gflops:.0f} GFLOP/s, reads from L1/L2/L3/memory {rates} GB/s"


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds that the arithmetic and the traffic of a kernel take at least."""

    arithmetic: float
    traffic: float

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.traffic)


def limits_of(manifest: Manifest, calls: Sequence[KernelCall], roofline: Roofline) -> list[Limit]:
    """The limit of each of the ``calls`` of one run, whose work is known."""
    sizes = {one.offset: one.nbytes for one in manifest.constants}
    constants = [_constant_bytes(call, sizes) for call in calls]
    # A kernel in a loop reads its constants at each turn, from where they are after the first.
    once = dict(zip((call.args for call in calls), constants, strict=True))
    data = sum(evaluate(call.bytes_moved, {}) for call in calls) / len(calls)
    held = sum(once.values()) + data
    return [_limit(call, read, held, roofline)
            for call, read in zip(calls, constants, strict=True)]


def _constant_bytes(call: KernelCall, sizes: Mapping[int, int]) -> int:
    """Bytes of constants that a kernel reads; of a table that it looks up, not all."""
    given = sum(sizes.get(at, 0) for kind, at in call.args if kind == "const")
    return min(given, evaluate(call.bytes_moved, {}))


def _limit(call: KernelCall, constants: int, held: float, roofline: Roofline) -> Limit:
    data = evaluate(call.bytes_moved, {}) - constants
    traffic = constants / roofline.gbytes(held) + data / roofline.gbytes(data)
    return Limit(evaluate(call.flops, {}) / roofline.gflops * 1e-9, traffic * 1e-9)
