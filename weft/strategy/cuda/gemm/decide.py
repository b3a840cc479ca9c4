"""The decision for products: tensor cores, register tiles, a warp per column, or the default."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft.ir import Call, DType, float32, int32
from weft.strategy.cuda.gemm.dot_product import why_not_dot_product
from weft.strategy.cuda.gemm.dot_tile import DotTile
from weft.strategy.cuda.gemm.gemv import MAX_ROWS, GemvTile
from weft.strategy.cuda.gemm.operand import DEPTH, strides_of
from weft.strategy.cuda.gemm.plan import (
    MMA_TILES,
    SIMT_TILES,
    WGMMA_TILES,
    GemmAlgorithm,
    GemmPlan,
    ProductShape,
    dp4a_seconds,
    gemv_seconds,
    generic_seconds,
    mma_seconds,
    simt_seconds,
    splits_of,
    wgmma_seconds,
)
from weft.strategy.cuda.gemm.problem import ProductProblem, problem_of_call
from weft.strategy.cuda.gemm.staging import Staging
from weft.strategy.cuda.gemm.tensor_core import MmaLoops, MmaTile, Product
from weft.strategy.cuda.gemm.warp_specialized import BK
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose
from weft.strategy.extents import is_fixed
from weft.target import CudaTarget
from weft.tir import Analyzer, int_value

GemmCandidate = Candidate[GemmPlan]
# The types that ordinary cores multiply and add; narrower ones are converted first.
WGMMA_DTYPES = ("float16", "bfloat16")
SIMT_DTYPES = ("float32", "float64", "int32", "int64")


def decide_product(problem: ProductProblem, target: CudaTarget) -> Decision[GemmPlan]:
    """The algorithm of a product with its tiles, and the others."""
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
    """The decision for a call alone; ``None`` if it is no product."""
    problem = problem_of_call(call)
    return None if isinstance(problem, str) else decide_product(problem, target)


def candidates_of(decision: Decision[GemmPlan], problem: ProductProblem,
                  target: CudaTarget) -> Iterator[GemmCandidate]:
    """The chosen candidate of each algorithm that applies, the best first."""
    yield decision.chosen
    for other in decision.rejected:
        if other.seconds is not None:
            yield best_of(GemmAlgorithm(other.algorithm), problem, target)


def best_of(algorithm: GemmAlgorithm, problem: ProductProblem,
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


def product_of(problem: ProductProblem) -> Product | None:
    """The instruction of tensor cores for the stored types."""
    a, b = problem.stored
    return Product.of(a.dtype, b.dtype, problem.contraction.accumulator)


def why_not_mma(problem: ProductProblem, target: CudaTarget) -> str | None:
    """Why tensor cores cannot compute a product; ``None`` if they can."""
    product = product_of(problem)
    if product is None:
        a, b = (o.dtype for o in problem.stored)
        return f"no instruction multiplies {a} by {b} into {problem.contraction.accumulator}"
    if product.a is float32 and not target.allow_tf32:
        return "tf32 has 10 bits of fraction; the target does not say -allow_tf32=1"
    return _why_empty(problem)


def why_not_wgmma(problem: ProductProblem, target: CudaTarget) -> str | None:
    """Why TMA and ``wgmma`` cannot compute a product; ``None`` if they can."""
    if not target.has_wgmma or target.codegen != "nvptx":
        return f"{target} has no wgmma"
    a, b = problem.stored
    if a.dtype is not b.dtype or str(a.dtype) not in WGMMA_DTYPES \
            or problem.contraction.accumulator is not float32:
        return f"of {a.dtype} and {b.dtype}; wgmma multiplies {' and '.join(WGMMA_DTYPES)}"
    if strides_of(a) is None or strides_of(b) is None:
        return "an operand is no matrix whose rows start at multiples of 16 bytes"
    return _why_empty(problem)


def why_not_simt(problem: ProductProblem) -> str | None:
    """Why register tiles cannot compute a product."""
    dtype = problem.contraction.accumulator
    if str(dtype) not in SIMT_DTYPES:
        return f"sums of {dtype}"
    return _why_empty(problem)


def why_not_gemv(problem: ProductProblem) -> str | None:
    """Why a warp per column cannot compute a product."""
    a, b = problem.stored
    if problem.contraction.accumulator not in (float32, int32):
        return f"sums of {problem.contraction.accumulator}"
    if not is_fixed(problem.contraction.sizes[1]):
        return "the number of rows is not fixed"
    if problem.shape.m > MAX_ROWS:
        return f"{problem.shape.m} rows; a warp keeps at most {MAX_ROWS}"
    if b.run != DEPTH or a.run not in (None, DEPTH):
        return "an operand is not contiguous along K"
    return _why_empty(problem)


def _why_empty(problem: ProductProblem) -> str | None:
    return "a size is 0" if any(int_value(s) == 0 for s in problem.contraction.sizes) else None


def _mma_plans(problem: ProductProblem, shape: ProductShape,
               model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    rate = model.tensor_flops[_rate_name(problem.stored[0].dtype)]
    for tile in MMA_TILES:
        held = _held(problem, tile)
        for splits in _splits(problem, -(-shape.k // tile.bk(shape.a_bytes))):
            yield mma_seconds(shape, tile, splits, rate, model, held), GemmPlan(tile, splits)


def _held(problem: ProductProblem, tile: MmaTile) -> int:
    """Registers of a thread for elements that go to shared memory through registers.

    Addresses and conditions of each take about as many again.
    """
    bk, count = tile.bk(problem.stored[0].dtype.itemsize), 0
    for operand, outer in zip(problem.stored, (tile.bm, tile.bn), strict=True):
        loops = MmaLoops(tile, *problem.stored)
        if not Staging(operand, outer, bk, loops.layout(operand, outer), tile.threads,
                       Analyzer()).is_async:
            count += 2 * -(-outer * bk // tile.threads)
    return count


def _wgmma_plans(problem: ProductProblem, shape: ProductShape,
                 model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    rate = model.tensor_flops["f16"]
    for tile in WGMMA_TILES:
        for splits in _splits(problem, -(-shape.k // BK)):
            yield wgmma_seconds(shape, tile, splits, rate, model), GemmPlan(tile, splits)


def _rate_name(dtype: DType) -> str:
    return "s8" if dtype.itemsize == 1 else "tf32" if dtype is float32 else "f16"


def _simt_plans(problem: ProductProblem, shape: ProductShape,
                model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    itemsize = problem.contraction.accumulator.itemsize
    for tile in SIMT_TILES:
        for splits in _splits(problem, -(-shape.k // tile.bk)):
            yield simt_seconds(shape, tile, splits, itemsize, model), GemmPlan(tile, splits)


def _dp4a_plans(problem: ProductProblem, shape: ProductShape,
                model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    del problem
    yield dp4a_seconds(shape, DotTile(), model), GemmPlan(DotTile())


def _gemv_plans(problem: ProductProblem, shape: ProductShape,
                model: GpuModel) -> Iterator[tuple[float, GemmPlan]]:
    lanes = min(o.run_length for o in problem.stored)
    for columns in (1, 2, 4):
        tile = GemvTile(shape.m, columns, lanes)
        yield gemv_seconds(shape, tile, model), GemmPlan(tile)


def _splits(problem: ProductProblem, steps: int) -> Iterator[int]:
    """Divisions of K; sums are divided only where all sizes are fixed."""
    if all(is_fixed(s) for s in problem.contraction.sizes):
        yield from splits_of(steps)
    else:
        yield 1
