"""The block size of channels: the vector axis of convolutions and of packed GEMM weights."""

from __future__ import annotations

from weft.target import CpuTarget

MAX_BLOCK = 64


def channel_block(channels: int, lanes: int) -> int:
    """The block of ``channels`` that wastes the fewest vector lanes.

    A block need not be a power of two: 24 channels are one and a half AVX-512 registers, which
    beats three blocks of 8. Ties go to the block nearest to one register, because small blocks
    leave more freedom to tile. Channels without a good divisor stay one block.
    """
    candidates = [b for b in range(1, min(channels, MAX_BLOCK) + 1) if channels % b == 0]
    return min(candidates, key=lambda b: (registers(b, lanes) / b, abs(b - lanes)))


def registers(block: int, lanes: int) -> int:
    """Vector registers that one block of accumulators occupies.

    The remainder after full registers is split into powers of two: with 16 lanes, 24 elements are
    16 + 8 (two registers), 12 are 8 + 4 (two) and 3 are 2 + 1 (two).
    """
    full, rest = divmod(block, lanes)
    return full + rest.bit_count()


def block_for(channels: int, target: CpuTarget, dtype: str = "float32") -> int:
    """``channel_block`` for the vector width of ``target`` and ``dtype``."""
    return channel_block(channels, target.lanes(dtype))
