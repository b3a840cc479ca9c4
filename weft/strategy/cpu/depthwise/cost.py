"""Estimates, in cycles of one core, of depthwise convolutions in blocks and as they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.convolution.cost import ConvSize
from weft.target import Target

# What arrives from the second-level cache while sums wait for it.
BYTES_PER_CYCLE = 26
# Neighbouring positions share what they load: a tap is little more than its multiplication.
BLOCKED_TAP = 0.55
# A load that crosses cache lines; two of them, and a shuffle, where every other element is wanted.
ROW_TAP = 1.15
STRIDED_ROW_TAP = 2.4
GATHERED_ROW_TAP = 16.0


def blocked_depthwise_cycles(
    size: ConvSize, strides: Sequence[int], block: int, target: Target
) -> float:
    """Lanes are channels of a block, of which the last register may hold few."""
    vectors = size.elements // block * registers(block, target.lanes(size.dtype))
    taps = math.prod(size.taps) * BLOCKED_TAP
    return max(vectors * taps, _arrival(size, strides))


def plain_depthwise_cycles(size: ConvSize, strides: Sequence[int], target: Target) -> float:
    """Lanes are positions along a row, of which the last vector may hold few."""
    lanes, width = target.lanes(size.dtype), size.extents[-1]
    vectors = size.elements // width * -(-width // lanes)
    tap = {1: ROW_TAP, 2: STRIDED_ROW_TAP}.get(strides[-1], GATHERED_ROW_TAP)
    taps = math.prod(size.taps) * tap
    return max(vectors * taps, _arrival(size, strides))


def _arrival(size: ConvSize, strides: Sequence[int]) -> float:
    """Cycles in which the data arrives and the result is written."""
    return size.elements * size.dtype.itemsize * (math.prod(strides) + 1) / BYTES_PER_CYCLE
