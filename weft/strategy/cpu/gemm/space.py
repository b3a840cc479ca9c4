"""What a GEMM leaves open: register tile, blocks of rows and of K, loops, packing, unrolling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

from weft.strategy.cpu.common.register_tile import MAX_ROWS, RegisterTile, fits_registers
from weft.strategy.cpu.gemm.applies import MatmulProblem
from weft.strategy.cpu.gemm.blocking import (
    MAX_VECTORS,
    MIN_SPLIT_K_DEPTH,
    SPLIT_K_WAYS,
    GemmBlocking,
    GemmLoops,
    GemmPlan,
)
from weft.strategy.cpu.gemm.cost import GemmShape
from weft.strategy.implementation import Implementation
from weft.strategy.space import Knob, Point, Space, doubled_up_to, flag
from weft.support.errors import ScheduleError
from weft.target import CpuTarget
from weft.topi.nn.dense import accumulator_dtype

LEAST_ROWS, LEAST_DEPTH = 32, 64  # of blocks that are worth a loop
UNROLLED = (1, 2, 4, 8)  # steps of K in one iteration
# The loops of a point without blocks of K; a point with them has loops of its own.
_LOOPS = {"tiles": GemmLoops.TILES, "panels": GemmLoops.B_PANELS, "split_k": GemmLoops.SPLIT_K}


def gemm_space(
    base: str, problem: MatmulProblem, plan: GemmPlan, target: CpuTarget,
    make: Callable[[GemmPlan], Implementation],
) -> Space:
    """The space of a plan; ``make`` is the implementation of one."""
    dtype = (problem.a if plan.panels is None else problem.c).dtype
    shape = problem.shape(accumulator_dtype(dtype))
    return Space(base, tuple(_knobs(problem, shape, plan, target)),
                 lambda point: make(_plan_at(point, shape, plan, target)))


def _knobs(
    problem: MatmulProblem, shape: GemmShape, plan: GemmPlan, target: CpuTarget
) -> Iterator[Knob]:
    blocking, registers = plan.blocking, target.vector_registers
    step = 1 if plan.panels is None else max(1, plan.panels.nr // blocking.lanes)
    vectors = -(-shape.n // blocking.lanes)
    most = min(shape.m, MAX_ROWS, registers - step - 1)
    yield Knob.of("mr", range(1, most + 1), blocking.mr)
    yield Knob.of("vectors", (n for n in range(step, MAX_VECTORS + 1, step) if n < vectors + step),
                  blocking.tile.nr_vectors)
    yield Knob.of("rows", (*doubled_up_to(shape.m, LEAST_ROWS), shape.m), blocking.mc or shape.m)
    parts = (-(-shape.k // count) for count in (2, 3, 4, 6, 8, 12, 16))
    yield Knob.of("kc", (0, *(depth for depth in parts if depth >= LEAST_DEPTH)), blocking.kc or 0)
    is_deep = shape.k >= SPLIT_K_WAYS * MIN_SPLIT_K_DEPTH
    names = {loops: name for name, loops in _LOOPS.items()}
    yield Knob.of("loops", ("tiles", "panels", *(("split_k",) if is_deep else ())),
                  names.get(plan.loops, "tiles"))
    yield flag("packs_b", plan.packs_b, free=plan.panels is None and not problem.transpose_b)
    yield flag("prefetches", plan.prefetches, free=plan.panels is not None)
    yield flag("rows_first", plan.rows_first)
    yield Knob.of("unroll", (n for n in UNROLLED if shape.k % n == 0), plan.unroll)


def _plan_at(point: Point, shape: GemmShape, plan: GemmPlan, target: CpuTarget) -> GemmPlan:
    values = {name: int(value) for name, value in point.items() if name != "loops"}
    tile = RegisterTile(values["mr"], values["vectors"])
    if not fits_registers(tile, target) and tile != plan.blocking.tile:
        raise ScheduleError("the register tile exceeds the registers", got=str(tile))
    kc, unroll = values["kc"] or None, values["unroll"]
    loops = _LOOPS[str(point["loops"])] if kc is None else GemmLoops.K_BLOCKS
    is_plain = loops in (GemmLoops.TILES, GemmLoops.B_PANELS)
    require = partial(_require, loops=loops)
    require("rows_first", not values["rows_first"] or loops is GemmLoops.TILES)
    require("unroll", unroll == 1 or is_plain)
    has_next = shape.m > tile.mr and loops is not GemmLoops.SPLIT_K and unroll == 1
    require("prefetches", not values["prefetches"] or has_next)
    rows = -(-values["rows"] // tile.mr) * tile.mr
    whole = -(-shape.m // tile.mr) * tile.mr
    # A block that begins in another task packs its panel again.
    require("rows", loops is not GemmLoops.B_PANELS or rows >= whole)
    blocking = GemmBlocking(tile, plan.blocking.lanes, min(rows, whole), kc)
    return dataclasses.replace(
        plan, blocking=blocking, loops=loops, packs_b=bool(values["packs_b"]),
        is_parallel=plan.is_parallel or not is_plain, prefetches=bool(values["prefetches"]),
        rows_first=bool(values["rows_first"]), unroll=unroll)


def _require(knob: str, fits: bool, *, loops: GemmLoops) -> None:
    if not fits:
        raise ScheduleError(f"{knob} does not fit the other values", got=f"a task per {loops}")
