"""Estimates, in cycles of one core, of depthwise convolutions in blocks and as they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.convolution.cost import ConvSize
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.target import CpuTarget


def blocked_depthwise_cycles(
    size: ConvSize, strides: Sequence[int], block: int, target: CpuTarget
) -> float:
    """Lanes are channels of a block, of which the last register may hold few."""
    model = machine_model(target)
    vectors = size.elements // block * registers(block, target.lanes(size.dtype))
    taps = math.prod(size.taps) * model.fma_shared_load_cycles
    return max(vectors * taps, _arrival(model, size, strides))


def plain_depthwise_cycles(size: ConvSize, strides: Sequence[int], target: CpuTarget) -> float:
    """Lanes are positions along a row, of which the last vector may hold few."""
    model = machine_model(target)
    lanes, width = target.lanes(size.dtype), size.extents[-1]
    vectors = size.elements // width * -(-width // lanes)
    by_stride = {1: model.fma_unaligned_load_cycles, 2: model.fma_strided_load_cycles}
    tap = by_stride.get(strides[-1], model.fma_gather_cycles)
    taps = math.prod(size.taps) * tap
    return max(vectors * taps, _arrival(model, size, strides))


def _arrival(model: MachineModel, size: ConvSize, strides: Sequence[int]) -> float:
    """Cycles in which the data arrives and the result is written."""
    moved = size.elements * size.dtype.itemsize * (math.prod(strides) + 1)
    return moved / model.l2_bandwidth
