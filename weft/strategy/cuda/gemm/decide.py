"""The decision for GEMMs: tensor cores, SIMT tiles, GEMV, or the default schedule.

For each algorithm that applies, the estimate of every tile and every split-K is compared; the
fastest plan of each algorithm is a candidate, and the fastest candidate is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft.ir import Call, DType, float32, int32
from weft.strategy.cuda.gemm.dot_product import why_not_dot_product
from weft.strategy.cuda.gemm.gemv import MAX_M, GemvTile
from weft.strategy.cuda.gemm.operand import K_MAJOR, strides_of
from weft.strategy.cuda.gemm.plan import (
    MMA_TILES,
    SIMT_TILES,
    WGMMA_TILES,
    DotTile,
    GemmAlgorithm,
    GemmPlan,
    GemmShape,
    dp4a_seconds,
    gemv_seconds,
    generic_seconds,
    mma_seconds,
    simt_seconds,
    splits_of,
    wgmma_seconds,
)
from weft.strategy.cuda.gemm.problem import GemmProblem, problem_of_call
from weft.strategy.cuda.gemm.staging import Staging
from weft.strategy.cuda.gemm.tensor_core import MmaInstruction, MmaLoops, MmaTile
from weft.strategy.cuda.gemm.warp_specialized import BK
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose
from weft.strategy.extents import is_fixed
from weft.target import CudaTarget
from weft.tir import Analyzer, int_value

GemmCandidate = Candidate[GemmPlan]
WGMMA_DTYPES = ("float16", "bfloat16")
# What CUDA cores multiply and add; narrower types are converted on their way to shared memory.
SIMT_DTYPES = ("float32", "float64", "int32", "int64")


def decide_gemm(problem: GemmProblem, target: CudaTarget) -> Decision[GemmPlan]:
    """The algorithm of a GEMM with its tiles, and why the others lost."""
    model, shape = machine_model(target), problem.shape
    found = [Candidate(GemmAlgorithm.GENERIC.value, generic_seconds(shape, model), GemmPlan())]
    rejected = []
    for algorithm, reason, plans in (
        (GemmAlgorithm.WGMMA, why_not_wgmma(problem, target), _wgmma_plans),
        (GemmAlgorithm.MMA, why_not_mma(problem, target), _mma_plans),
        (GemmAlgorithm.DP4A, why_not_dot_product(problem), _dp4a_plans),
        (GemmAlgorithm.SIMT, why_not_simt(problem), _simt_plans),
        (GemmAlgorithm.GEMV, why_not_gemv(problem), _gemv_plans),
    ):
        timed = [] if reason is not None else [
            (s, p) for s, p in plans(problem, shape, model) if math.isfinite(s)]
        if timed:
            seconds, plan = min(timed, key=lambda x: x[0])
            found.append(Candidate(algorithm.value, seconds, plan, str(plan)))
        else:
            rejected.append(Rejected(algorithm.value, reason or "no tile fits"))
    return choose(found, rejected)


def decide_call(call: Call, target: CudaTarget) -> Decision[GemmPlan] | None:
    """The decision for a call alone; ``None`` if it is no GEMM."""
    problem = problem_of_call(call)
    return None if isinstance(problem, str) else decide_gemm(problem, target)


def candidates_of(decision: Decision[GemmPlan], problem: GemmProblem,
                  target: CudaTarget) -> Iterator[GemmCandidate]:
    """The chosen candidate of each algorithm that applies, the best first."""
    yield decision.chosen
    for other in decision.rejected:
        if other.seconds is not None:
            yield best_of(GemmAlgorithm(other.algorithm), problem, target)


def best_of(algorithm: GemmAlgorithm, problem: GemmProblem,
            target: CudaTarget) -> GemmCandidate:
    """The best plan of one algorithm that applies."""
    model, shape = machine_model(target), problem.shape
    if algorithm is GemmAlgorithm.GENERIC:
        return Candidate(algorithm.value, generic_seconds(shape, model), GemmPlan())
    plans = {GemmAlgorithm.WGMMA: _wgmma_plans, GemmAlgorithm.MMA: _mma_plans,
             GemmAlgorithm.DP4A: _dp4a_plans, GemmAlgorithm.SIMT: _simt_plans,
             GemmAlgorithm.GEMV: _gemv_plans}[algorithm]
    seconds, plan = min(plans(problem, shape, model), key=lambda x: x[0])
    return Candidate(algorithm.value, seconds, plan, str(plan))


def mma_instruction(problem: GemmProblem) -> MmaInstruction | None:
    """The ``mma.sync`` for the stored types."""
    a, b = problem.stored
    return MmaInstruction.of(a.dtype, b.dtype, problem.contraction.accumulator)


def why_not_mma(problem: GemmProblem, target: CudaTarget) -> str | None:
    """Why ``mma.sync`` cannot compute a GEMM; ``None`` if they can."""
    mma = mma_instruction(problem)
    if mma is None:
        a, b = (o.dtype for o in problem.stored)
        return f"no instruction multiplies {a} by {b} into {problem.contraction.accumulator}"
    if mma.a is float32 and not target.allow_tf32:
        return "tf32 has 10 bits of fraction; the target does not say -allow_tf32=1"
    return _why_empty(problem)


def why_not_wgmma(problem: GemmProblem, target: CudaTarget) -> str | None:
    """Why TMA and ``wgmma`` cannot compute a GEMM; ``None`` if they can."""
    if not target.has_wgmma or target.codegen != "nvptx":
        return f"{target} has no wgmma"
    a, b = problem.stored
    if a.dtype is not b.dtype or str(a.dtype) not in WGMMA_DTYPES \
            or problem.contraction.accumulator is not float32:
        return f"of {a.dtype} and {b.dtype}; wgmma multiplies {' and '.join(WGMMA_DTYPES)}"
    if strides_of(a) is None or strides_of(b) is None:
        return "an operand is no matrix whose rows start at multiples of 16 bytes"
    return _why_empty(problem)


def why_not_simt(problem: GemmProblem) -> str | None:
    """Why SIMT tiles cannot compute a GEMM."""
    dtype = problem.contraction.accumulator
    if str(dtype) not in SIMT_DTYPES:
        return f"sums of {dtype}"
    return _why_empty(problem)


def why_not_gemv(problem: GemmProblem) -> str | None:
    """Why the GEMV kernel cannot compute a GEMM."""
    a, b = problem.stored
    if problem.contraction.accumulator not in (float32, int32):
        return f"sums of {problem.contraction.accumulator}"
    if not is_fixed(problem.contraction.sizes[1]):
        return "M is not fixed"
    if problem.shape.m > MAX_M:
        return f"M is {problem.shape.m}; a warp keeps at most {MAX_M} rows of accumulators"
    if b.major != K_MAJOR or a.major not in (None, K_MAJOR):
        return "an operand is not contiguous along K"
    return _why_empty(problem)


def _why_empty(problem: GemmProblem) -> str | None:
    return "a size is 0" if any(int_value(s) == 0 for s in problem.contraction.sizes) else None


def _mma_plans(problem: GemmProblem, shape: GemmShape,
               model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    rate = model.tensor_flops[_rate_name(problem.stored[0].dtype)]
    for tile in MMA_TILES:
        prefetched = _staging_registers(problem, tile)
        for splits in _splits(problem, -(-shape.k // tile.bk(shape.a_bytes))):
            yield mma_seconds(shape, tile, splits, rate, model, prefetched), GemmPlan(tile, splits)


def _staging_registers(problem: GemmProblem, tile: MmaTile) -> int:
    """32-bit registers of a thread for elements that ``cp.async`` cannot copy.

    They go to shared memory through registers, as where a convolution decodes the index of each
    element or pads. Addresses and conditions take about as many registers again: hence twice. With
    them some tiles exceed 255 registers and would spill; ``mma_seconds`` rules those out.
    """
    bk, count = tile.bk(problem.stored[0].dtype.itemsize), 0
    for operand, outer in zip(problem.stored, (tile.bm, tile.bn), strict=True):
        loops = MmaLoops(tile, *problem.stored)
        if not Staging(operand, outer, bk, loops.layout(operand, outer), tile.threads,
                       Analyzer()).is_async:
            count += 2 * -(-outer * bk // tile.threads)
    return count


def _wgmma_plans(problem: GemmProblem, shape: GemmShape,
                 model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    rate = model.tensor_flops["f16"]
    for tile in WGMMA_TILES:
        for splits in _splits(problem, -(-shape.k // BK)):
            yield wgmma_seconds(shape, tile, splits, rate, model), GemmPlan(tile, splits)


def _rate_name(dtype: DType) -> str:
    return "s8" if dtype.itemsize == 1 else "tf32" if dtype is float32 else "f16"


def _simt_plans(problem: GemmProblem, shape: GemmShape,
                model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    itemsize = problem.contraction.accumulator.itemsize
    for tile in SIMT_TILES:
        for splits in _splits(problem, -(-shape.k // tile.bk)):
            yield simt_seconds(shape, tile, splits, itemsize, model), GemmPlan(tile, splits)


def _dp4a_plans(problem: GemmProblem, shape: GemmShape,
                model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    del problem
    yield dp4a_seconds(shape, DotTile(), model), GemmPlan(DotTile())


def _gemv_plans(problem: GemmProblem, shape: GemmShape,
                model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    vector = min(o.vector_length for o in problem.stored)
    for n in (1, 2, 4):
        tile = GemvTile(shape.m, n, vector)
        yield gemv_seconds(shape, tile, model), GemmPlan(tile)


def _splits(problem: GemmProblem, k_tiles: int) -> Iterator[int]:
    """The split-K factors that are tried: 1 unless all sizes are fixed.

    The partial sums are a buffer of (splits, batch, M, N), whose size must be known.
    """
    if all(is_fixed(s) for s in problem.contraction.sizes):
        yield from splits_of(k_tiles)
    else:
        yield 1
