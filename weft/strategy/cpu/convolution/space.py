"""What the algorithms of a convolution leave open: register tiles, row blocks, orders."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from weft.op.nn.conv import ConvAlgorithm
from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.common.register_tile import (
    MAX_ROWS,
    MAX_VECTORS,
    RegisterTile,
    fits_registers,
)
from weft.strategy.cpu.convolution.plan import ConvPlan
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.depthwise.schedule import (
    ROWS_PER_TASK,
    RowTile,
    block_tile,
    row_tile,
    unrolled_taps,
)
from weft.strategy.implementation import Implementation
from weft.strategy.space import Knob, Point, Space, divisors_up_to, doubled_up_to, flag
from weft.support.errors import ScheduleError
from weft.target import CpuTarget
from weft.topi.layout import Layout

MOST_ROWS = 64  # of an image, in one task


def has_space(plan: ConvPlan, problem: ConvProblem) -> bool:
    """Whether the algorithm has parameters, and all sizes are known."""
    return not problem.assumed_sizes and plan.algorithm in _KNOBS


def conv_space(
    base: str, problem: ConvProblem, plan: ConvPlan, target: CpuTarget,
    make: Callable[[ConvPlan], Implementation],
) -> Space:
    """The space of a plan, which ``make`` implements."""
    plan = with_tiles(plan, problem, target)

    def at(point: Point) -> Implementation:
        found = _plan_at(point, plan)
        if plan.tile != found.tile and not _fits(found, problem, target):
            raise ScheduleError("the register tile exceeds the registers", got=str(found.tile))
        return make(found)

    return Space(base, tuple(_KNOBS[plan.algorithm](plan, problem, target)), at)


def with_tiles(plan: ConvPlan, problem: ConvProblem, target: CpuTarget) -> ConvPlan:
    """The plan with the tile and rows that the schedule of a depthwise convolution would take."""
    shape = problem.shape
    *rows, width = shape.extents
    if plan.tile is not None:
        return plan
    if plan.algorithm is ConvAlgorithm.DEPTHWISE_BLOCKED:
        block = Layout.parse(plan.out_layout).factor_of("C")
        positions = block_tile(width, block, target.lanes(shape.dtype), target)
        return dataclasses.replace(plan, tile=RegisterTile(positions, 1), row_block=ROWS_PER_TASK)
    if plan.algorithm is ConvAlgorithm.DEPTHWISE_UNBLOCKED:
        tile = row_tile(rows[-1] if rows else 1, width, target.lanes(shape.dtype),
                        shape.row_stride)
        return dataclasses.replace(plan, tile=RegisterTile(tile.rows, tile.vectors))
    return plan


def _plan_at(point: Point, plan: ConvPlan) -> ConvPlan:
    values = {name: int(value) for name, value in point.items()}
    return dataclasses.replace(
        plan, tile=RegisterTile(values["mr"], values["vectors"]),
        row_block=values.get("rows", plan.row_block),
        prefetches=bool(values.get("prefetches", plan.prefetches)),
        channels_inside=bool(values.get("channels_inside", plan.channels_inside)),
        unroll=values.get("unroll", plan.unroll))


def _fits(plan: ConvPlan, problem: ConvProblem, target: CpuTarget) -> bool:
    tile = plan.tile or RegisterTile(1, 1)
    lanes = target.lanes(problem.shape.dtype)
    if plan.algorithm is ConvAlgorithm.DIRECT_BLOCKED:
        tile = RegisterTile(tile.mr, tile.nr_vectors * registers(_block(plan), lanes))
    elif plan.algorithm is ConvAlgorithm.DEPTHWISE_BLOCKED:
        block = Layout.parse(plan.out_layout).factor_of("C")
        tile = RegisterTile(tile.mr * registers(min(block, lanes), lanes), 1)
    return fits_registers(tile, target)


def _block(plan: ConvPlan) -> int:
    result = Layout.parse(plan.out_layout).factor_of("C")
    return result if result > 1 else Layout.parse(plan.kernel_layout).factor_of("O")


def _blocked(plan: ConvPlan, problem: ConvProblem, target: CpuTarget) -> Iterator[Knob]:
    shape, tile = problem.shape, plan.tile or RegisterTile(1, 1)
    *rows, width = shape.extents
    block = _block(plan)
    blocks = (shape.outputs + plan.added_outputs) // block
    step = registers(block, target.lanes(shape.dtype))
    yield Knob.of("mr", range(1, min(width, MAX_ROWS) + 1), tile.mr)
    yield Knob.of("vectors", range(1, min(blocks, max(1, MAX_VECTORS // step)) + 1),
                  tile.nr_vectors)
    count = rows[-1] if rows else -(-width // tile.mr)
    yield Knob.of("rows", divisors_up_to(count, MOST_ROWS), plan.row_block)
    can_prefetch = plan.prefetches or plan.kernel_layout.startswith("O")
    yield flag("prefetches", plan.prefetches, free=can_prefetch)
    yield flag("channels_inside", plan.channels_inside, free=not plan.prefetches)
    # Innermost are the channels of a block of inputs, or the taps of a row.
    inputs = Layout.parse(plan.kernel_layout).factor_of("I")
    innermost = inputs if inputs > 1 else shape.taps[-1]
    yield Knob.of("unroll", divisors_up_to(innermost, 8), plan.unroll)


def _unblocked(plan: ConvPlan, problem: ConvProblem, target: CpuTarget) -> Iterator[Knob]:
    shape, tile = problem.shape, plan.tile or RegisterTile(1, 1)
    *rows, width = (math.prod(shape.extents),) if shape.pointwise else shape.extents
    vectors = -(-width // target.lanes(shape.dtype))
    yield Knob.of("mr", range(1, min(shape.group_outputs, MAX_ROWS) + 1), tile.mr)
    yield Knob.of("vectors", range(1, min(vectors, MAX_VECTORS) + 1), tile.nr_vectors)
    count = rows[-1] if rows else -(-vectors // tile.nr_vectors)
    yield Knob.of("rows", divisors_up_to(count, MOST_ROWS), plan.row_block)
    yield Knob.of("unroll", (1, *divisors_up_to(shape.taps[-1], 4)), plan.unroll)


def _depthwise_blocked(
    plan: ConvPlan, problem: ConvProblem, target: CpuTarget
) -> Iterator[Knob]:
    *rows, width = problem.shape.extents
    tile = plan.tile or RegisterTile(1, 1)
    yield Knob.of("mr", range(1, min(width, target.vector_registers - 4) + 1), tile.mr)
    yield Knob.of("vectors", (), 1)
    count = rows[-1] if rows else 1
    yield Knob.of("rows", (*doubled_up_to(count), count), plan.row_block)
    yield Knob.of("unroll", (1, problem.shape.taps[-1]), problem.shape.taps[-1])


def _depthwise_unblocked(
    plan: ConvPlan, problem: ConvProblem, target: CpuTarget
) -> Iterator[Knob]:
    *rows, width = problem.shape.extents
    tile = plan.tile or RegisterTile(1, 1)
    height, vectors = rows[-1] if rows else 1, -(-width // target.lanes(problem.shape.dtype))
    yield Knob.of("mr", range(1, min(height, 12) + 1), tile.mr)
    yield Knob.of("vectors", range(1, min(vectors, MAX_VECTORS) + 1), tile.nr_vectors)
    taps = problem.shape.taps
    yield Knob.of("unroll", (1, taps[-1], math.prod(taps)),
                  unrolled_taps(taps, RowTile(tile.mr, tile.nr_vectors)))


def _dot_product(plan: ConvPlan, problem: ConvProblem, target: CpuTarget) -> Iterator[Knob]:
    """Positions by vectors of channels if channels are adjacent, else channels by positions."""
    del target
    shape, tile = problem.shape, plan.tile or RegisterTile(1, 1)
    lanes = 1 if plan.dot is None else plan.dot.lanes
    *rows, width = (math.prod(shape.extents),) if shape.pointwise else shape.extents
    high, wide = (width, shape.outputs) if plan.reads_adjacent_channels else (shape.outputs, width)
    yield Knob.of("mr", range(1, min(high, MAX_ROWS) + 1), tile.mr)
    yield Knob.of("vectors", range(1, min(-(-wide // lanes), MAX_VECTORS) + 1), tile.nr_vectors)
    if plan.reads_adjacent_channels:
        count = rows[-1] if rows else -(-width // tile.mr)
        yield Knob.of("rows", divisors_up_to(count, MOST_ROWS), plan.row_block)


_KNOBS: dict[ConvAlgorithm, Callable[[ConvPlan, ConvProblem, CpuTarget], Iterator[Knob]]] = {
    ConvAlgorithm.DIRECT_BLOCKED: _blocked,
    ConvAlgorithm.DIRECT_UNBLOCKED: _unblocked,
    ConvAlgorithm.DEPTHWISE_BLOCKED: _depthwise_blocked,
    ConvAlgorithm.DEPTHWISE_UNBLOCKED: _depthwise_unblocked,
    ConvAlgorithm.DOT_PRODUCT: _dot_product,
}
