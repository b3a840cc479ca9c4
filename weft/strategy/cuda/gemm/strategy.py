"""GEMM kernels: their schedule, and the operators whose compute is a sum of products."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from weft import te
from weft.ir import Call, Family
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.default import schedule_default
from weft.strategy.cuda.estimate import roofline_seconds
from weft.strategy.cuda.gemm.decide import candidates_of, decide_call, decide_gemm
from weft.strategy.cuda.gemm.dot_product import schedule_dot_product
from weft.strategy.cuda.gemm.epilogue import Epilogue, epilogue_of
from weft.strategy.cuda.gemm.gemm_loops import GemmLoops, MakeLoops, Tiling
from weft.strategy.cuda.gemm.gemv import GemvLoops, GemvTile
from weft.strategy.cuda.gemm.plan import DotTile, GemmPlan
from weft.strategy.cuda.gemm.problem import GemmProblem, problem_of, problem_of_call
from weft.strategy.cuda.gemm.simt import SimtLoops
from weft.strategy.cuda.gemm.tensor_core import MmaLoops, MmaTile
from weft.strategy.cuda.gemm.warp_specialized import BK, WgmmaLoops, WgmmaTile
from weft.strategy.decision import Candidate, decides
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.te import PlaceholderOp


def schedule_gemm(ctx: CudaContext, plan: GemmPlan) -> None:
    """Loops of ``plan`` for the anchor; the operators fused after it are its epilogue.

    Where they are not elementwise, the accumulators go to memory and the rest keeps its own stages.
    A kernel whose anchor is no GEMM (its operands are reductions) has the default schedule.
    """
    problem = problem_of(ctx.anchor)
    if isinstance(problem, str) or plan.tile is None:
        schedule_default(ctx)
        return
    op = problem.contraction.op
    accumulator = problem.contraction.accumulator
    epilogue = epilogue_of(ctx.outputs, op, accumulator)
    outputs = ctx.outputs
    if isinstance(plan.tile, DotTile):
        if isinstance(epilogue, str) or len(outputs) > 1:
            schedule_default(ctx)
        else:
            schedule_dot_product(ctx, plan.tile)
        return
    if isinstance(epilogue, str) or not _reads_inputs(epilogue.inputs()):
        outputs = (op.output(0),)
        epilogue = epilogue_of(outputs, op, accumulator)
    loops = None if isinstance(epilogue, str) else gemm_loops(problem, epilogue, plan)
    if loops is None or not _reads_inputs(loops.inputs):
        schedule_default(ctx)
        return
    ctx.schedule.implement(loops.inputs, loops, op.name, outputs)


def _reads_inputs(tensors: list[te.Tensor] | tuple[te.Tensor, ...]) -> bool:
    return all(isinstance(t.op, PlaceholderOp) for t in tensors)


def gemm_loops(problem: GemmProblem, epilogue: Epilogue, plan: GemmPlan) -> GemmLoops:
    """The body of the kernel."""
    tile, stored = plan.tile, problem.stored
    if isinstance(tile, MmaTile):
        tiling = Tiling(tile.bm, tile.bn, tile.bk(stored[0].dtype.itemsize), plan.splits)
        return _loops(problem, stored, epilogue, tiling, functools.partial(MmaLoops, tile))
    if isinstance(tile, WgmmaTile):
        tiling = Tiling(tile.bm, tile.bn, BK, plan.splits)
        return _loops(problem, stored, epilogue, tiling, functools.partial(WgmmaLoops, tile))
    if isinstance(tile, GemvTile):
        tiling = Tiling(tile.bm, tile.bn, tile.bk, plan.splits)
        make = functools.partial(GemvLoops, tile, accumulator=problem.contraction.accumulator)
        return _loops(problem, stored, epilogue, tiling, make)
    if tile is None or isinstance(tile, DotTile):
        raise InternalError("a plan without hand-written loops")
    tiling = Tiling(tile.bm, tile.bn, tile.bk, plan.splits)
    accumulator = problem.contraction.accumulator
    is_plain = all(o.dtype.bits >= 8 for o in stored)
    return _loops(problem, stored if is_plain else problem.converted, epilogue, tiling,
                 functools.partial(SimtLoops, tile, dtype=accumulator))


def _loops(problem: GemmProblem, operands: tuple, epilogue: Epilogue, tiling: Tiling,
          make: MakeLoops) -> GemmLoops:
    return GemmLoops(problem.contraction, operands, epilogue, tiling, make)


def product(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    """The candidates of the decision; the default schedule for a call that is no product."""
    name, problem = f"{call.op}.{target.kind}", problem_of_call(call)
    if isinstance(problem, str):
        yield Implementation(f"{name}.generic", schedule_default,
                             seconds=roofline_seconds(call, target))
        return
    for candidate in candidates_of(decide_gemm(problem, target), problem, target):
        yield _implementation(name, candidate)


def _implementation(name: str, candidate: Candidate[GemmPlan]) -> Implementation:
    schedule = schedule_default if candidate.plan.tile is None else functools.partial(
        schedule_gemm, plan=candidate.plan)
    made = Implementation(f"{name}.{candidate.algorithm}", schedule)
    return dataclasses.replace(made, seconds=candidate.seconds)


for _what in (Family.MATMUL, "einsum"):
    strategy(_what, target="cuda", complete=True)(product)
    decides(_what, target="cuda")(decide_call)
