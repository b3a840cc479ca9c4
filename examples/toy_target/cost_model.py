"""``ToyCosts``: how fast the device is."""

from __future__ import annotations

from weft.codegen.cost_model import CostModel


class ToyCosts(CostModel):
    """An interpreter: a microsecond for each operation, and no cache to keep rows in."""

    flops_per_second = 1e6
    bytes_per_second = 1e9
    launch_seconds = 1e-4
    longest_row = 1 << 20
