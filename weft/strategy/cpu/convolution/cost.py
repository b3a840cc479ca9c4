"""Estimates, in cycles of one core, of the ways to run a convolution.

Each covers the result with its register tiles and counts their steps over the reduction. What the
ways have in common (padding, the stores) is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.ir.dtype import DType
from weft.ir.types import TensorType
from weft.op.nn.conv import ConvAttrs
from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.common.register_tile import RegisterTile, choose_tile, cover_cycles
from weft.strategy.cpu.convolution.unblocked import arrival_cycles, plain_tile
from weft.strategy.cpu.machine_model import machine_model
from weft.target import CpuTarget
from weft.topi.nn.conv import side_padding
from weft.topi.nn.dense import accumulator_dtype
from weft.topi.nn.window import window_count, window_span


@dataclass(frozen=True, slots=True)
class ConvSize:
    """The sizes of a convolution whose operands are laid out as written."""

    batch: int
    outputs: int
    groups: int
    group_inputs: int
    taps: tuple[int, ...]
    extents: tuple[int, ...]
    pointwise: bool
    dtype: DType  # of the sums

    @staticmethod
    def of(attrs: ConvAttrs, data: TensorType, kernel: TensorType) -> ConvSize:
        batch, _, *sizes = data.concrete_shape
        outputs, group_inputs, *taps = kernel.concrete_shape
        sides = side_padding(attrs.padding, len(taps))
        extents = tuple(
            window_count(size + sum(around), window_span(tap, step), stride)
            for size, around, tap, step, stride in zip(
                sizes, sides, taps, attrs.dilation, attrs.strides, strict=True
            )
        )
        pointwise = math.prod(taps) == 1 and not any(attrs.padding)
        return ConvSize(batch, outputs, attrs.groups, group_inputs, tuple(taps), extents, pointwise,
                        accumulator_dtype(attrs.out_dtype or data.dtype))

    @property
    def depth(self) -> int:
        return self.group_inputs * math.prod(self.taps)

    @property
    def elements(self) -> int:
        """Of the result."""
        return self.batch * self.outputs * math.prod(self.extents)


def blocked_tile(width: int, blocks: int, block: int, target: CpuTarget, dtype: DType
                 ) -> RegisterTile:
    """Positions of one row (``rows``) by blocks of output channels (``vectors``)."""
    step = registers(block, target.lanes(dtype))
    tile = choose_tile(width, blocks * step, target, vector_step=step)
    return RegisterTile(tile.mr, max(1, tile.nr_vectors // step))


def blocked_cycles(size: ConvSize, outputs: int, block: int, target: CpuTarget) -> float:
    """The direct convolution with ``outputs`` channels in blocks of ``block``."""
    model = machine_model(target)
    *rows, width = size.extents
    step, blocks = registers(block, target.lanes(size.dtype)), outputs // block
    tile = blocked_tile(width, blocks, block, target, size.dtype)
    register_tile = RegisterTile(tile.mr, tile.nr_vectors * step)
    steps = cover_cycles(model, width, blocks * step, register_tile)
    lines = size.batch * math.prod(rows)
    slice_bytes = size.dtype.itemsize * size.depth * tile.nr_vectors * block
    if slice_bytes <= target.l2_bytes * 3 // 4:
        return steps * lines * size.depth
    # Every tile reads its slice of the weights from beyond the second-level cache.
    tiles = lines * -(-width // tile.mr) * -(-blocks // tile.nr_vectors)
    transfer = tiles * slice_bytes / model.beyond_l2_line_bandwidth
    return steps * lines * size.depth + transfer * model.unhidden_fraction


def dot_cycles(size: ConvSize, group: int, target: CpuTarget) -> float:
    """The convolution by instructions that add up ``group`` products in each lane."""
    *rows, width = size.extents
    if size.pointwise:
        rows, width = [], math.prod(size.extents)
    vectors = -(-width // target.lanes(size.dtype))
    tile = choose_tile(size.outputs, vectors, target)
    steps = cover_cycles(machine_model(target), size.outputs, vectors, tile)
    depth = -(-size.group_inputs // group) * math.prod(size.taps)
    return steps * size.batch * math.prod(rows) * depth


def plain_cycles(size: ConvSize, target: CpuTarget) -> float:
    """The convolution over images as they are written."""
    *rows, width = size.extents
    if size.pointwise:
        rows, width = [], math.prod(size.extents)
    vectors, channels = -(-width // target.lanes(size.dtype)), size.outputs // size.groups
    taps = math.prod(size.taps)
    tile = plain_tile(channels, vectors, taps, target)
    steps = cover_cycles(machine_model(target), channels, vectors, tile,
                       arrival_cycles(taps, target))
    return steps * size.groups * size.batch * math.prod(rows) * size.depth
