"""Ranges of a symbolic M, one size or a product of sizes, that deserve a matmul of their own.

The general kernel runs every M with one layout of B: it packs a B that is not constant, which few
rows do not repay, and it multiplies with one register tile. The estimates of the general plan and
of the plan for a range are compared at both ends of the range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from weft.ir import Call, Dim, Family, SymDim, TensorType, substitute_dim
from weft.ir.symbol import SizeRange, name_of, symbol_text
from weft.strategy.cpu.gemm.applies import MatmulProblem
from weft.strategy.cpu.gemm.decide import MatmulPlan, decide_problem, seconds_of
from weft.strategy.variants import (
    SizeCondition,
    Variant,
    factors_of,
    intersection,
    range_of_size,
    variants_for,
)
from weft.target import CpuTarget

# A variant must be faster by this factor at both ends of its range, and save this many seconds.
MIN_GAIN, MIN_SAVED_SECONDS = 1.15, 1e-6
FEW_ROWS = (32, 8, 3)  # the largest M of the ranges that are tried, from 1 row on


@variants_for(Family.MATMUL, target="cpu")
def matmul_variants(call: Call, target: CpuTarget) -> Iterator[Variant]:
    """At most two ranges: few rows, and one row."""
    problem = MatmulProblem.of(call, may_pack=False)
    if problem is None or not problem.is_known:
        return
    m = problem.m
    if not isinstance(m, SymDim) or not factors_of(m):
        return
    general = decide_problem(problem, target).plan
    few = next((SizeRange(1, high) for high in FEW_ROWS
                if _pays(problem, m, SizeRange(1, high), general, target)), None)
    at_one = general if few is None else _plan(problem, m, few, target)
    one = SizeRange(1, 1)
    if _pays(problem, m, one, at_one, target):
        yield (SizeCondition(m, one),)
    if few is not None:
        yield (SizeCondition(m, few),)


def _pays(problem: MatmulProblem, m: SymDim, sizes: SizeRange, general: MatmulPlan,
          target: CpuTarget) -> bool:
    """Whether a kernel for ``sizes`` is faster than that of ``general`` at both ends."""
    part = intersection(range_of_size(m), sizes)
    if part is None or part.high is None:
        return False
    own = _plan(problem, m, part, target)
    for rows in {part.low, part.high}:
        fixed = _with(problem, m, rows)
        slow, fast = (seconds_of(plan, fixed, target) for plan in (general, own))
        if slow < MIN_GAIN * fast or slow - fast < MIN_SAVED_SECONDS:
            return False
    return True


def _plan(problem: MatmulProblem, m: SymDim, sizes: SizeRange, target: CpuTarget) -> MatmulPlan:
    """The plan of the kernel for a range of M."""
    is_number = sizes.low == sizes.high
    name = name_of(factors_of(m)[-1])
    size = sizes.low if is_number else SymDim.symbol(symbol_text(name, sizes))
    return decide_problem(_with(problem, m, size), target).plan


def _with(problem: MatmulProblem, m: SymDim, size: Dim) -> MatmulProblem:
    """The problem with another size for M: for its last factor, where the others are 1."""
    *others, last = factors_of(m)
    sizes: dict[str, Dim] = {**dict.fromkeys(others, 1), last: size}

    def changed(type_: TensorType) -> TensorType:
        return TensorType(tuple(substitute_dim(d, sizes) for d in type_.shape), type_.dtype)

    return dataclasses.replace(problem, a=changed(problem.a), b=changed(problem.b),
                               c=changed(problem.c))
