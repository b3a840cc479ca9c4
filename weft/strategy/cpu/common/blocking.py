"""How channels are split into blocks: the vector axis of convolutions and matrix products."""

from __future__ import annotations

from weft.target import CpuTarget

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
    """Vector registers that one block of accumulators takes.

    What is left after full registers splits into powers of two: 24 lanes of 16 are 16 + 8, two
    registers, but 12 are 8 + 4, two as well, and 3 are 2 + 1.
    """
    full, rest = divmod(block, lanes)
    return full + rest.bit_count()


def block_for(channels: int, target: CpuTarget, dtype: str = "float32") -> int:
    return channel_block(channels, target.lanes(dtype))
