"""How one matmul runs on a CPU: the algorithm, its blocking, and the layout of a constant weight.

Only ``decide_matmul`` chooses. The layout pass packs weights as the plan says, the strategies offer
the candidates, the computes and schedules build the plan.
"""

from __future__ import annotations

import dataclasses
import functools
from enum import StrEnum
from typing import TypeAlias

from weft.ir import Call, Family
from weft.op.nn.dense import WeightPanels
from weft.strategy.cpu.dot_product.cost import (
    DotProductPlan,
    dot_product_cycles,
    plan_prepacked,
    plan_run_time,
)
from weft.strategy.cpu.estimate import gemm_seconds
from weft.strategy.cpu.gemm.applies import (
    MatmulProblem,
    dot_product_of,
    why_no_dot_product,
    why_not_gemm,
    why_not_prepacked,
    why_not_prepacked_gemm,
)
from weft.strategy.cpu.gemm.blocking import (
    GemmBlocking,
    GemmLoops,
    GemmPlan,
    block_gemm,
    loops_of,
    worth_packing_b,
)
from weft.strategy.cpu.gemm.cost import (
    GemmShape,
    gemm_step_cycles,
    generic_cycles,
    packing_cycles,
)
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.topi.nn.dense import accumulator_dtype


class MatmulAlgorithm(StrEnum):
    """The algorithms for ``nn.dense``, ``nn.matmul`` and ``nn.batch_matmul``."""

    PREPACKED_DOT_PRODUCT = "prepacked_dot_product"
    """A dot-product instruction over a weight that was packed at compile time."""
    PREPACKED_GEMM = "prepacked_gemm"
    """A register-blocked GEMM over a weight that was packed at compile time."""
    DOT_PRODUCT = "dot_product"
    """A dot-product instruction; both operands are packed at run time."""
    GEMM = "gemm"
    """A register-blocked GEMM; B is read in place or packed at run time."""
    GENERIC = "generic"
    """The default schedule, which is derived from the computes alone: no register blocking."""


# ``None``: the generic algorithm takes no parameters.
MatmulPlan: TypeAlias = GemmPlan | DotProductPlan | None
MatmulDecision: TypeAlias = Decision[MatmulPlan]
_PACKED_BEFORE = "a constant weight is packed when the program is compiled"


@dataclass(frozen=True, slots=True)
class Offers:
    """The algorithms that can run a problem, and why the others cannot."""

    candidates: tuple[Candidate[MatmulPlan], ...]
    rejected: tuple[Rejected, ...] = ()


@decides(Family.MATMUL, target="cpu")
def decide_matmul(call: Call, target: CpuTarget) -> MatmulDecision:
    """The decision for a typed call, the same object for every call with an equal problem.

    A call whose weight the layout pass has packed shares the decision that packed it.
    """
    problem = MatmulProblem.of(call)
    if problem is None:
        return choose((_generic_of_call(call, target),))
    return decide_problem(problem, target)


@functools.lru_cache(maxsize=4096)
def decide_problem(problem: MatmulProblem, target: CpuTarget) -> MatmulDecision:
    """The decision for a problem."""
    return _decision_that_packed(problem, target) or _chosen(offers_of(problem, target))


def runnable(call: Call, target: CpuTarget) -> tuple[Candidate[MatmulPlan], ...]:
    """All candidates for a call whose layouts are final, in the order of preference."""
    problem = MatmulProblem.of(call, may_pack=False)
    if problem is None:
        return (_generic_of_call(call, target),)
    decision = _decision_that_packed(problem, target)
    if decision is not None:
        return decision.chosen, _generic(problem, target)
    return offers_of(problem, target).candidates


def _decision_that_packed(problem: MatmulProblem, target: CpuTarget) -> MatmulDecision | None:
    """The decision that packed the weight as it is; ``None`` if it was packed for other sizes."""
    if problem.panels is None:
        return None
    decision = decide_problem(problem.before_packing(), target)
    plan = decision.plan
    return decision if plan is not None and plan.panels == problem.panels else None


def _chosen(offers: Offers) -> MatmulDecision:
    """The fastest; weights that can be packed at compile time always are."""
    prepacked = [c for c in offers.candidates if c.plan is not None and c.plan.panels is not None]
    if not prepacked:
        return choose(offers.candidates, offers.rejected)
    others = [Rejected(c.algorithm, _PACKED_BEFORE, c.seconds)
              for c in offers.candidates if c not in prepacked]
    return choose(prepacked, (*offers.rejected, *others))


def offers_of(problem: MatmulProblem, target: CpuTarget) -> Offers:
    """The candidates for a problem with their estimates, and the algorithms that do not apply."""
    found = [
        _prepacked_dot_product(problem, target), _prepacked_gemm(problem, target),
        _dot_product(problem, target), _gemm(problem, target), _generic(problem, target),
    ]
    return Offers(tuple(c for c in found if isinstance(c, Candidate)),
                  tuple(r for r in found if isinstance(r, Rejected)))


_Offer: TypeAlias = "Candidate[MatmulPlan] | Rejected"


def _prepacked_dot_product(problem: MatmulProblem, target: CpuTarget) -> _Offer:
    algorithm = MatmulAlgorithm.PREPACKED_DOT_PRODUCT
    reason = why_not_prepacked(problem)
    dot = None if reason else dot_product_of(problem, target, prepacked=True)
    if dot is None:
        return Rejected(algorithm, reason or why_no_dot_product(problem, target, prepacked=True))
    shape = problem.shape(dot.accumulator)
    plan = plan_prepacked(dot, shape, target, problem.panels)
    return _candidate(algorithm, plan, _dot_product_seconds(plan, shape, problem, target))


def _prepacked_gemm(problem: MatmulProblem, target: CpuTarget) -> _Offer:
    algorithm = MatmulAlgorithm.PREPACKED_GEMM
    reason = why_not_prepacked_gemm(problem)
    if reason is not None:
        return Rejected(algorithm, reason)
    shape = problem.shape(accumulator_dtype(problem.c.dtype))
    panel = 0 if problem.panels is None else problem.panels.nr
    blocking = block_gemm(shape, target, panel=panel)
    plan = prepacked_plan(problem, blocking, target)
    return _candidate(algorithm, plan, _gemm_seconds(plan, shape, problem, target))


def _dot_product(problem: MatmulProblem, target: CpuTarget) -> _Offer:
    algorithm = MatmulAlgorithm.DOT_PRODUCT
    if problem.panels is not None:
        return Rejected(algorithm, _PACKED_BEFORE)
    dot = dot_product_of(problem, target, prepacked=False)
    if dot is None:
        return Rejected(algorithm, why_no_dot_product(problem, target, prepacked=False))
    shape = problem.shape(dot.accumulator)
    plan = plan_run_time(dot, shape, target)
    return _candidate(algorithm, plan, _dot_product_seconds(plan, shape, problem, target))


def _gemm(problem: MatmulProblem, target: CpuTarget) -> _Offer:
    algorithm = MatmulAlgorithm.GEMM
    reason = why_not_gemm(problem)
    if reason is not None:
        return Rejected(algorithm, reason)
    shape = problem.shape(accumulator_dtype(problem.a.dtype))
    plan = run_time_plan(problem, block_gemm(shape, target), target)
    return _candidate(algorithm, plan, _gemm_seconds(plan, shape, problem, target))


def _generic(problem: MatmulProblem, target: CpuTarget) -> Candidate[MatmulPlan]:
    shape = problem.shape(accumulator_dtype(problem.c.dtype))
    are_rows_along_k = (problem.transpose_b and not problem.transpose_a
                        and problem.panels is None)
    cycles = problem.matrices * generic_cycles(
        shape, target, b_itemsize=problem.b.dtype.itemsize, are_rows_along_k=are_rows_along_k,
        converts_a=_converts_a(problem, shape))
    return _candidate(MatmulAlgorithm.GENERIC, None, machine_model(target).seconds(cycles))


def _generic_of_call(call: Call, target: CpuTarget) -> Candidate[MatmulPlan]:
    """For operands of other ranks and layouts."""
    return _candidate(MatmulAlgorithm.GENERIC, None, gemm_seconds(call, target))


def _candidate(
    algorithm: MatmulAlgorithm, plan: MatmulPlan, seconds: float
) -> Candidate[MatmulPlan]:
    return Candidate(algorithm, seconds, plan, "" if plan is None else str(plan))


# Plans


def prepacked_plan(
    problem: MatmulProblem, blocking: GemmBlocking, target: CpuTarget
) -> GemmPlan:
    """A GEMM over a packed weight: in its panels, or in new ones as wide as the microkernel."""
    panels = problem.panels or WeightPanels(blocking.nr)
    shape = problem.shape(accumulator_dtype(problem.c.dtype))
    columns = -(-shape.n // panels.nr) * panels.nr
    loops, is_parallel = loops_of(
        dataclasses.replace(shape, n=columns), blocking, target, matrices=1,
        packs=_converts_a(problem, shape))
    # A weight that streams from memory is as slow as memory where one tile of rows covers A: then
    # hints only cost time. Several tiles hide the transfer of a panel behind their arithmetic.
    prefetches = shape.m > blocking.mr and loops is not GemmLoops.SPLIT_K
    return GemmPlan(blocking, loops, is_parallel, panels, prefetches=prefetches,
                    assumes=shape.assumptions)


def run_time_plan(problem: MatmulProblem, blocking: GemmBlocking, target: CpuTarget) -> GemmPlan:
    """A GEMM over operands as they are stored."""
    shape = problem.shape(accumulator_dtype(problem.a.dtype))
    packs_a = problem.transpose_a and shape.m > blocking.mr  # a single panel is packed already
    # The columns of a transposed B lie along K: read in place, each vector would be a gather.
    packs_b = problem.transpose_b or worth_packing_b(shape, blocking, target)
    columns = -(-shape.n // blocking.lanes) * blocking.lanes
    loops, is_parallel = loops_of(
        dataclasses.replace(shape, n=columns), blocking, target, matrices=problem.matrices,
        packs=packs_a or packs_b or _converts_a(problem, shape))
    return GemmPlan(blocking, loops, is_parallel, None, packs_a, packs_b,
                    assumes=shape.assumptions)


def _converts_a(problem: MatmulProblem, shape: GemmShape) -> bool:
    """Whether A is copied into the accumulator dtype."""
    return problem.a.dtype is not shape.dtype


# Estimates


def seconds_of(plan: MatmulPlan, problem: MatmulProblem, target: CpuTarget) -> float:
    """The estimated time of a plan, perhaps of other sizes, for a problem of fixed sizes."""
    if plan is None:
        return _generic(problem, target).seconds
    if isinstance(plan, GemmPlan):
        dtype = (problem.a if plan.panels is None else problem.c).dtype
        return _gemm_seconds(plan, problem.shape(accumulator_dtype(dtype)), problem, target)
    shape = problem.shape(plan.dot.accumulator)
    seconds = _dot_product_seconds(plan, shape, problem, target)
    # The tile of few rows sums the columns of B beside them; others read B a second time.
    if not plan.dot.shifts_left or (plan.tile.mr > shape.m and not plan.assumes):
        return seconds
    model, b_bytes = machine_model(target), shape.k * shape.n * problem.b.dtype.itemsize
    return seconds + model.seconds(problem.matrices * model.transfer_cycles(b_bytes))


def _gemm_seconds(
    plan: GemmPlan, shape: GemmShape, problem: MatmulProblem, target: CpuTarget
) -> float:
    model, blocking = machine_model(target), plan.blocking
    vectors = -(-shape.n // blocking.lanes)
    cycles = shape.k * gemm_step_cycles(shape, blocking.tile, vectors, target)
    if plan.packs_a or _converts_a(problem, shape):
        cycles += packing_cycles(model, shape.m * shape.k)
    if plan.packs_b:
        cycles += packing_cycles(model, shape.k * shape.n, is_transposed=problem.transpose_b)
    return model.seconds(problem.matrices * cycles)


def _dot_product_seconds(
    plan: DotProductPlan, shape: GemmShape, problem: MatmulProblem, target: CpuTarget
) -> float:
    model = machine_model(target)
    cycles = dot_product_cycles(plan, shape.m, shape.n, shape.k, target)
    a_elements, a_itemsizes = shape.m * shape.k, problem.a.dtype.itemsize + plan.dot.left.itemsize
    # Rows along K are packed by whole cache lines.
    cycles += (packing_cycles(model, a_elements, is_transposed=True) if problem.transpose_a
               else model.transfer_cycles(a_elements * a_itemsizes))
    if plan.panels is None:
        cycles += packing_cycles(model, shape.k * shape.n, is_transposed=problem.transpose_b)
    return model.seconds(problem.matrices * cycles)
