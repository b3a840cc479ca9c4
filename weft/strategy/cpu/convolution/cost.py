"""Estimates of the algorithms for a convolution, in cycles of one core.

Each covers the result with its register tiles and counts their steps over the reduction. Not
counted are the padded copy and the stores, which the algorithms share, and changes of layout: these
depend on the neighbours of the convolution, and the layout pass adds them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from weft.ir.dtype import DType
from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.common.register_tile import (
    MAX_ROWS,
    MAX_VECTORS,
    RegisterTile,
    choose_tile,
    cover_cycles,
    fastest_first,
    tiles_that_fit,
)
from weft.strategy.cpu.convolution.plan import ConvPlan
from weft.strategy.cpu.convolution.problem import ConvShape
from weft.strategy.cpu.convolution.row_block import blocked_row_block
from weft.strategy.cpu.gemm.blocking import block_gemm, worth_packing_b
from weft.strategy.cpu.gemm.cost import GemmShape, gemm_step_cycles, packing_cycles
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.topi.layout import Layout

# The largest mr for a row of symbolic width: each possible tail length is compiled separately.
MAX_SYMBOLIC_MR = 8
# Prefetch instructions pay only if loading the weights takes at least this share of the time of the
# arithmetic.
MIN_TRANSFER_SHARE = 0.03
CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycles of the whole convolution with register tiles of this size."""

    cycles: float
    tile: RegisterTile


def blocked_tile(
    width: int, blocks: int, block: int, target: CpuTarget, dtype: DType
) -> RegisterTile:
    """``mr`` positions of one row by ``nr_vectors`` blocks of output channels."""
    step = registers(block, target.lanes(dtype))
    tile = choose_tile(width, blocks * step, target, vector_step=step)
    # ``choose_tile`` counts registers, a plan counts blocks of channels.
    return RegisterTile(tile.mr, max(1, tile.nr_vectors // step))


def _open_tile(shape: ConvShape, block: int, target: CpuTarget) -> RegisterTile:
    """``blocked_tile`` for a row of symbolic width: the fastest over all usual widths.

    The tail has a version for each of its lengths, so tiles are short. The blocks of a tile belong
    to one group: the pixels of several groups would be at as many symbolic distances.
    """
    model, step = machine_model(target), registers(block, target.lanes(shape.dtype))
    blocks = max(1, shape.group_outputs // block)

    def cycles(tile: RegisterTile) -> float:
        return sum(cover_cycles(model, width, blocks * step, tile) / width
                   for width in shape.sample_widths)

    counts = range(step, min(blocks * step, MAX_VECTORS) + 1, step)
    tiles = fastest_first(tiles_that_fit(MAX_SYMBOLIC_MR, counts, target), cycles)
    return RegisterTile(tiles[0].mr, max(1, tiles[0].nr_vectors // step)) if tiles else (
        RegisterTile(1, 1))


def estimate_blocked(shape: ConvShape, block: int, target: CpuTarget) -> Estimate:
    """Vectors are blocks of ``block`` output channels, which divides those of a group."""
    model = machine_model(target)
    *rows, width = shape.extents
    step, blocks = registers(block, target.lanes(shape.dtype)), shape.outputs // block
    tile = (_open_tile(shape, block, target) if shape.has_open_row
            else blocked_tile(width, blocks, block, target, shape.dtype))
    register_tile = RegisterTile(tile.mr, tile.nr_vectors * step)
    steps = cover_cycles(model, width, blocks * step, register_tile)
    lines = shape.batch * math.prod(rows)
    slice_bytes = shape.dtype.itemsize * shape.depth * tile.nr_vectors * block
    cycles = steps * lines * shape.depth
    if slice_bytes > model.l2_resident_bytes:
        # Every tile reads its slice of the weights from beyond L2.
        tiles = lines * -(-width // tile.mr) * -(-blocks // tile.nr_vectors)
        transfer = tiles * slice_bytes / model.beyond_l2_line_bandwidth
        cycles += transfer * model.unhidden_fraction
    return Estimate(cycles, tile)


def colliding_pixel_cycles(
    shape: ConvShape, estimate: Estimate, plan: ConvPlan, block: int, target: CpuTarget
) -> float:
    """What a pointwise convolution waits for pixels that collide in L2.

    The channels of a row block (blocks of channels, where the data has them) are as far apart as an
    image is large. If that is a multiple of many pages they share few sets of L2, and each register
    tile reads its pixels from beyond it: as single lines, which the hardware does not prefetch, or
    as runs of lines.
    """
    if not shape.pointwise or shape.has_open_row or shape.has_open_height:
        return 0.0
    in_block = Layout.parse(plan.data_layout).factor_of("C")
    *rows, width = shape.extents
    pixel_bytes = in_block * shape.itemsize
    run = (plan.row_block * width if rows else plan.row_block * estimate.tile.mr) * pixel_bytes
    if not _collides(shape.group_inputs // in_block, run,
                     math.prod(shape.extents) * pixel_bytes, target):
        return 0.0
    model, tile = machine_model(target), estimate.tile
    tiles = (shape.batch * math.prod(rows) * -(-width // tile.mr)
             * -(-(shape.outputs // block) // tile.nr_vectors))
    lines = -(-tile.mr * pixel_bytes // CACHE_LINE_BYTES) * (shape.group_inputs // in_block)
    transfer = tiles * lines * CACHE_LINE_BYTES / model.beyond_l2_line_bandwidth
    return transfer if in_block == 1 else transfer * model.unhidden_fraction


def _collides(runs: int, run: int, apart: int, target: CpuTarget) -> bool:
    """Whether ``runs`` of ``run`` bytes, which are ``apart`` bytes apart, exceed their L2 sets."""
    ways = machine_model(target).l2_ways
    span = max(1, target.l2_bytes // ways)
    starts = span // math.gcd(span, max(1, apart))
    return runs * run > ways * min(span, starts * run)


def worth_prefetching(
    shape: ConvShape, estimate: Estimate, row_block: int, target: CpuTarget
) -> bool:
    """Whether a task over ``row_block`` rows can prefetch the weights of the next task in time.

    In a model the weights of a layer come from beyond L2, whatever their size: other layers ran in
    between. Without several tiles of positions no arithmetic could hide that.
    """
    if shape.has_open_row or shape.has_open_height:
        return False
    tiles = row_block * -(-shape.extents[-1] // estimate.tile.mr)
    weights = shape.itemsize * shape.outputs * shape.depth
    transfer = weights / machine_model(target).beyond_l2_line_bandwidth
    return tiles > 1 and transfer > MIN_TRANSFER_SHARE * estimate.cycles


def estimate_dot_product(shape: ConvShape, group: int, lanes: int, target: CpuTarget) -> Estimate:
    """Instructions that add ``group`` products in each of ``lanes`` lanes, which are positions.

    The pixels are copied with their padding, and again in groups of channels.
    """
    rows, width = _rows_and_width(shape)
    model, vectors = machine_model(target), -(-width // lanes)
    tile = choose_tile(shape.outputs, vectors, target)
    steps = cover_cycles(model, shape.outputs, vectors, tile)
    depth = -(-shape.group_inputs // group) * math.prod(shape.taps)
    strides = (1,) if shape.pointwise else shape.strides
    pixels = shape.batch * shape.inputs * math.prod((*shape.extents, *strides))
    copies = 2 * model.conversion_cycles(shape.itemsize) * pixels
    return Estimate(steps * shape.batch * rows * depth + copies, tile)


def estimate_channels_last_dots(
    shape: ConvShape, group: int, lanes: int, target: CpuTarget
) -> tuple[Estimate, int]:
    """Instructions whose lanes are output channels, and the rows of a task.

    Neither positions nor channels leave a tail: the instruction has no masks.
    """
    if shape.pointwise and set(shape.strides) == {1}:
        shape = replace(shape, extents=(math.prod(shape.extents),), taps=(1,), strides=(1,))
    *rows, width = shape.extents
    model, vectors = machine_model(target), shape.outputs // lanes
    depth = -(-shape.group_inputs // group) * math.prod(shape.taps)

    def steps(tile: RegisterTile) -> float:
        cycles = cover_cycles(model, width, vectors, tile)
        if depth * tile.nr_vectors * model.vector_bytes <= model.l1_bytes:
            return cycles
        # Each tile reads its slice of the weights from L2.
        moved = width // tile.mr * vectors * model.vector_bytes
        return max(cycles, moved / model.l2_stream_bandwidth)

    counts = [n for n in range(1, MAX_VECTORS + 1) if vectors % n == 0]
    tile = fastest_first((tile for tile in tiles_that_fit(min(width, MAX_ROWS), counts, target)
                          if width % tile.mr == 0), steps)[0]
    cycles = steps(tile) * shape.batch * math.prod(rows) * depth
    return Estimate(cycles, tile), blocked_row_block(shape, lanes, tile, target)


def estimate_unblocked(shape: ConvShape, target: CpuTarget) -> Estimate:
    """Vectors are positions along a row of the image, ``mr`` output channels by vectors."""
    rows, width = _rows_and_width(shape)
    model, taps = machine_model(target), math.prod(shape.taps)
    # All taps read a vector of pixels once it is loaded.
    arrival = model.vector_bytes / model.l2_bandwidth / taps
    vectors, channels = -(-width // target.lanes(shape.dtype)), shape.group_outputs
    tile = choose_tile(channels, vectors, target, vector_cycles=arrival)
    steps = cover_cycles(model, channels, vectors, tile, arrival)
    return Estimate(steps * shape.groups * shape.batch * rows * shape.depth, tile)


def estimate_packed(shape: ConvShape, target: CpuTarget) -> Estimate | None:
    """A pointwise convolution whose pixels are packed into panels, as B in the GEMM that it is.

    ``None`` where the GEMM would read B in place too or L2 holds a panel that is not packed, and
    for a symbolic image.
    """
    is_gemm = shape.pointwise and shape.groups == 1 and set(shape.strides) == {1}
    if not is_gemm or shape.has_open_row or shape.has_open_height:
        return None
    gemm = GemmShape(shape.outputs, math.prod(shape.extents), shape.inputs, shape.dtype)
    blocking = block_gemm(gemm, target)
    if blocking.kc is not None or not worth_packing_b(gemm, blocking, target):
        return None
    itemsize = shape.itemsize
    if not _collides(gemm.k, blocking.nr * itemsize, gemm.n * itemsize, target):
        return None
    model, vectors = machine_model(target), -(-gemm.n // blocking.lanes)
    cycles = gemm.k * gemm_step_cycles(gemm, blocking.tile, vectors, target)
    cycles += packing_cycles(model, gemm.k * gemm.n)
    return Estimate(shape.batch * cycles, blocking.tile)


def generic_cycles(shape: ConvShape, target: CpuTarget) -> float:
    """The default schedule."""
    return shape.elements * shape.depth * multiply_add_cycles(machine_model(target))


def multiply_add_cycles(model: MachineModel) -> float:
    """A multiply-add of the default schedule: each waits for the one before and loads two operands.

    ``MachineModel.unblocked_fma_cycles`` reports measured times: 0.9 to 2 cycles without padding,
    7.5 with it.
    """
    return model.fma_latency + 2 / model.loads_per_cycle


def direct_roofline_cycles(shape: ConvShape, target: CpuTarget) -> float:
    """The lower bound of a direct convolution: multiply-adds at the peak rate, and the weights read
    once from beyond L2 if they exceed half of it.
    """
    model = machine_model(target)
    cycles = shape.elements * shape.depth / (model.fma_per_cycle * target.lanes(shape.dtype))
    weights = shape.itemsize * shape.outputs * shape.depth
    if weights > target.l2_bytes // 2:
        cycles += weights / model.beyond_l2_stream_bandwidth
    return cycles


def _rows_and_width(shape: ConvShape) -> tuple[int, int]:
    """Rows and their width; a pointwise convolution sees the image as a single row."""
    if shape.pointwise:
        return 1, math.prod(shape.extents)
    *rows, width = shape.extents
    return math.prod(rows), width
