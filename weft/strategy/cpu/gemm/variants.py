"""Ranges of a symbolic M for which a matmul deserves a kernel of its own.

The general kernel runs every M with one layout of B: it packs a B that is not constant, which few
rows do not repay, and it multiplies with one register tile. The estimates of the general plan and
of the plan for a range are compared at both ends of the range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from weft.ir.expr import Call
from weft.ir.shape import Dim, SymDim, substitute_dim
from weft.ir.symbol import SizeRange, name_of, range_of, symbol_text
from weft.ir.types import TensorType
from weft.strategy.cpu.gemm.applies import MatmulProblem
from weft.strategy.cpu.gemm.decide import MatmulPlan, decide_problem, seconds_of
from weft.strategy.variants import SymbolRange, intersection, variants_for
from weft.target import CpuTarget

# A variant must be so many times as fast at both ends of its range, and save that much of a call.
MIN_GAIN, MIN_SAVED_SECONDS = 1.15, 1e-6
FEW_ROWS = (32, 8, 3)  # the largest M of the ranges that are tried, from 1 row on


def matmul_variants(call: Call, target: CpuTarget) -> Iterator[SymbolRange]:
    """At most two ranges: few rows, and one row."""
    problem = MatmulProblem.of(call, may_pack=False)
    if problem is None or not problem.is_known:
        return
    symbol = _only_symbol(problem.m)
    if symbol is None:
        return
    general = decide_problem(problem, target).plan
    few = next((SizeRange(1, high) for high in FEW_ROWS
                if _pays(problem, symbol, SizeRange(1, high), general, target)), None)
    at_one = general if few is None else _plan(problem, symbol, few, target)
    one = SizeRange(1, 1)
    if _pays(problem, symbol, one, at_one, target):
        yield symbol, one
    if few is not None:
        yield symbol, few


for _name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
    variants_for(_name, target="cpu")(matmul_variants)


def _only_symbol(m: Dim) -> str | None:
    """The symbol that M is; ``None`` for a number, a product or a sum."""
    symbols = m.symbols() if isinstance(m, SymDim) else frozenset()
    return next((s for s in symbols if m == SymDim.symbol(s)), None)


def _pays(problem: MatmulProblem, symbol: str, sizes: SizeRange, general: MatmulPlan,
          target: CpuTarget) -> bool:
    """Whether a kernel for ``sizes`` is faster than that of ``general`` at both ends."""
    part = intersection(range_of(symbol), sizes)
    if part is None or part.high is None:
        return False
    own = _plan(problem, symbol, part, target)
    for m in {part.low, part.high}:
        fixed = _with(problem, symbol, m)
        slow, fast = (seconds_of(plan, fixed, target) for plan in (general, own))
        if slow < MIN_GAIN * fast or slow - fast < MIN_SAVED_SECONDS:
            return False
    return True


def _plan(problem: MatmulProblem, symbol: str, sizes: SizeRange, target: CpuTarget) -> MatmulPlan:
    """The plan of the kernel for a range."""
    is_number = sizes.low == sizes.high
    size = sizes.low if is_number else SymDim.symbol(symbol_text(name_of(symbol), sizes))
    return decide_problem(_with(problem, symbol, size), target).plan


def _with(problem: MatmulProblem, symbol: str, size: Dim) -> MatmulProblem:
    """The problem with another size for a symbol."""

    def changed(type_: TensorType) -> TensorType:
        return TensorType(tuple(substitute_dim(d, {symbol: size}) for d in type_.shape),
                          type_.dtype)

    return dataclasses.replace(problem, a=changed(problem.a), b=changed(problem.b),
                               c=changed(problem.c))
