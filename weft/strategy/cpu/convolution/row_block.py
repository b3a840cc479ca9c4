"""How many rows of an image one task of a convolution computes."""

from __future__ import annotations

import math
from dataclasses import replace

from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.convolution.problem import ConvShape, open_samples
from weft.strategy.cpu.machine_model import imbalance, machine_model
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

# How much more than the least a row block for symbolic heights may cost: the estimate leaves out
# what the start of each task costs.
OPEN_COST_TOLERANCE = 1.05


@dataclass(frozen=True, slots=True)
class RowBlockShape:
    """``images`` of ``rows`` rows, each row convolved with ``slices`` slices of the weights.

    ``row_bytes`` are the pixels that one row of the result reads, ``weight_bytes`` all weights,
    ``cycles`` the arithmetic of everything. ``heights`` are usual numbers of rows if that number is
    symbolic; ``rows`` is one of them.
    """

    images: int
    rows: int
    slices: int
    row_bytes: float
    weight_bytes: int
    cycles: float
    heights: tuple[int, ...] = ()


def choose_row_block(shape: RowBlockShape, target: CpuTarget) -> int:
    """How many rows to compute with one slice of the weights: a divisor of the image's height.

    Within a row block the pixels are read once for each slice of the weights, so they should fit
    L2; between row blocks all weights are read again. Against this traffic beyond L2 stands the
    load balance: with few tasks some threads wait for others. Of equals the tallest row block wins
    that still leaves two of them. For a symbolic height any number of rows: the tallest row block
    whose cost over the usual heights is next to the least.
    """
    height = max(1, shape.rows)  # 0 for an empty image
    if shape.heights:
        costs = {rows: _open_cost(shape, rows, target) for rows in range(1, height + 1)}
        least = min(costs.values()) * OPEN_COST_TOLERANCE
        return max(rows for rows, cost in costs.items() if cost <= least)
    return min((rows for rows in range(1, height + 1) if height % rows == 0),
               key=lambda rows: _cost(shape, rows, target))


def _cost(shape: RowBlockShape, rows: int, target: CpuTarget) -> tuple[float, bool, int]:
    bandwidth = machine_model(target).beyond_l2_line_bandwidth
    # Pixels and weights have half of L2 each.
    resident_limit = target.l2_bytes // 2
    blocks = -(-shape.rows // rows)
    pixels = shape.row_bytes * shape.rows
    pixels *= shape.slices if shape.row_bytes * rows > resident_limit else 1
    weights = shape.weight_bytes * (blocks if shape.weight_bytes > resident_limit else 1)
    transfer = shape.images * (pixels + weights) / bandwidth
    tasks = max(1, shape.images * blocks * shape.slices)
    return shape.cycles * imbalance(tasks) + transfer, blocks < 2, -rows


def _open_cost(shape: RowBlockShape, rows: int, target: CpuTarget) -> float:
    usual = (replace(shape, rows=height, cycles=shape.cycles * height / shape.rows)
             for height in shape.heights)
    return sum(_cost(each, rows, target)[0] / each.cycles for each in usual)


def blocked_row_block(
    shape: ConvShape, block: int, tile: RegisterTile, target: CpuTarget
) -> int:
    """Rows of a task whose slice of the weights is one tile of channel blocks.

    A signal is one row: its blocks are counted in register tiles.
    """
    *rows, width = shape.extents
    is_open = shape.has_open_height if rows else shape.has_open_row
    if not rows:
        rows, width = [-(-width // tile.mr)], tile.mr
    slices = -(-(shape.outputs // block) // tile.nr_vectors)
    # Rows between those that the taps read stay out of the caches; pixels between may share lines.
    *heights, _ = zip(shape.strides, shape.taps, strict=True)
    step = math.prod(min(stride, taps) for stride, taps in heights) * shape.strides[-1]
    return _row_block(shape, rows, width, slices, step, target, is_open=is_open)


def unblocked_row_block(shape: ConvShape, tile: RegisterTile, target: CpuTarget) -> int:
    """Rows of a task whose slice of the weights is one tile of output channels.

    Rows are whole vectors wide. A signal, or an image of a pointwise convolution, is one row: its
    blocks are counted in register tiles.
    """
    lanes = target.lanes(shape.dtype)
    rows, width = ([], math.prod(shape.extents)) if shape.pointwise else (
        list(shape.extents[:-1]), shape.extents[-1])
    width, step = -(-width // lanes) * lanes, math.prod(shape.strides)
    is_open = shape.has_open_height if rows else shape.has_open_row or shape.has_open_height
    if not rows:
        tile_width = tile.nr_vectors * lanes
        rows, width, step = [-(-width // tile_width)], tile_width, 1
    return _row_block(shape, rows, width, -(-shape.outputs // tile.mr), step, target,
                      is_open=is_open)


def _row_block(
    shape: ConvShape, rows: list[int], width: int, slices: int, step: int, target: CpuTarget, *,
    is_open: bool,
) -> int:
    """``step`` elements of the data for each position of a row; the last of ``rows`` is blocked.

    With ``is_open`` the number of rows is symbolic.
    """
    *images, height = rows
    batch = shape.batch * math.prod(images)
    multiply_adds = batch * shape.outputs * height * width * shape.depth
    cycles = multiply_adds / (machine_model(target).fma_per_cycle * target.lanes(shape.dtype))
    row_bytes = shape.itemsize * shape.group_inputs * width * step
    weight_bytes = shape.itemsize * shape.outputs * shape.depth
    heights = open_samples(height) if is_open else ()
    return choose_row_block(
        RowBlockShape(batch, height, slices, row_bytes, weight_bytes, cycles, heights), target)
