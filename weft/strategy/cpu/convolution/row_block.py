"""How many rows of an image a task of a convolution walks."""

from __future__ import annotations

from dataclasses import dataclass

from weft.strategy.cpu.machine_model import imbalance, machine_model
from weft.target import CpuTarget


@dataclass(frozen=True, slots=True)
class BandSize:
    """``images`` of ``rows`` rows, each row convolved with ``slices`` slices of the weights.

    ``row_bytes`` are the pixels that one row of the result reads, ``weight_bytes`` all weights,
    ``cycles`` the arithmetic of everything.
    """

    images: int
    rows: int
    slices: int
    row_bytes: float
    weight_bytes: int
    cycles: float


def choose_band(size: BandSize, target: CpuTarget) -> int:
    """How many rows to walk with one slice of the weights: a divisor of the image's height.

    Within a band the pixels are read once for each slice of the weights, so they should fit the
    second-level cache; between bands all weights are read again. Against the traffic from beyond
    that cache stands the balance: few tasks leave some threads waiting for others. Both are
    estimated in cycles. Of equals the tallest band wins that still leaves two of them.
    """
    near, bandwidth = target.l2_bytes // 2, machine_model(target).beyond_l2_line_bandwidth

    def cost(rows: int) -> tuple[float, bool, int]:
        bands = size.rows // rows
        pixels = size.row_bytes * size.rows
        pixels *= size.slices if size.row_bytes * rows > near else 1
        weights = size.weight_bytes * (bands if size.weight_bytes > near else 1)
        far = size.images * (pixels + weights) / bandwidth
        tasks = max(1, size.images * bands * size.slices)
        return size.cycles * imbalance(tasks) + far, bands < 2, -rows

    height = max(1, size.rows)  # there may be no rows at all
    return min((rows for rows in range(1, height + 1) if height % rows == 0), key=cost)
