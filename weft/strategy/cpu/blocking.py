"""How channels are split into blocks: the vector axis of convolutions and matrix products."""

from __future__ import annotations

import math

from weft.target import Target

MAX_BLOCK = 64


def channel_block(channels: int, lanes: int) -> int:
    """The block of ``channels`` that wastes the fewest vector lanes.

    A block need not be a power of two: 24 channels are one and a half AVX-512 registers, which
    beats three blocks of 8. Ties go to the smallest block that fills a register, because small
    blocks leave more freedom to tile; channels that have no good divisor stay whole.
    """
    candidates = [b for b in range(1, min(channels, MAX_BLOCK) + 1) if channels % b == 0]
    return min(candidates, key=lambda b: (registers(b, lanes) / b, abs(b - lanes)))


def registers(block: int, lanes: int) -> int:
    """Vector registers that one block of accumulators takes."""
    return math.ceil(block / lanes)


def block_for(channels: int, target: Target, dtype: str = "float32") -> int:
    return channel_block(channels, target.lanes(dtype))
