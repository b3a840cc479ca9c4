"""How many rows of an image one task of a convolution computes."""

from __future__ import annotations

from dataclasses import dataclass

from weft.strategy.cpu.machine_model import imbalance, machine_model
from weft.target import CpuTarget


@dataclass(frozen=True, slots=True)
class RowBlockShape:
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


def choose_row_block(shape: RowBlockShape, target: CpuTarget) -> int:
    """How many rows to compute with one slice of the weights: a divisor of the image's height.

    Within a row block the pixels are read once for each slice of the weights, so they should fit
    L2; between row blocks all weights are read again. Against this traffic beyond L2 stands the
    load balance: with few tasks some threads wait for others. Of equals the tallest row block wins
    that still leaves two of them.
    """
    bandwidth = machine_model(target).beyond_l2_line_bandwidth
    resident_limit = target.l2_bytes // 2

    def cost(rows: int) -> tuple[float, bool, int]:
        blocks = shape.rows // rows
        pixels = shape.row_bytes * shape.rows
        pixels *= shape.slices if shape.row_bytes * rows > resident_limit else 1
        weights = shape.weight_bytes * (blocks if shape.weight_bytes > resident_limit else 1)
        transfer = shape.images * (pixels + weights) / bandwidth
        tasks = max(1, shape.images * blocks * shape.slices)
        return shape.cycles * imbalance(tasks) + transfer, blocks < 2, -rows

    height = max(1, shape.rows)  # 0 for an empty image
    return min((rows for rows in range(1, height + 1) if height % rows == 0), key=cost)
