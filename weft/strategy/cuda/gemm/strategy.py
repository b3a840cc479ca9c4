"""Registers the products: every operator whose compute is a sum of products."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from weft.ir.expr import Call
from weft.ir.traits import Family
from weft.strategy.cuda.default import schedule_default
from weft.strategy.cuda.estimate import roofline_seconds
from weft.strategy.cuda.gemm.decide import candidates_of, decide_call, decide_product
from weft.strategy.cuda.gemm.plan import GemmPlan
from weft.strategy.cuda.gemm.problem import problem_of_call
from weft.strategy.cuda.gemm.schedule import schedule_product
from weft.strategy.decision import Candidate, decides
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CudaTarget


def product(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    """The candidates of the decision; the default schedule for a call that is no product."""
    name, problem = f"{call.op}.{target.kind}", problem_of_call(call)
    if isinstance(problem, str):
        yield Implementation(f"{name}.generic", schedule_default,
                             seconds=roofline_seconds(call, target))
        return
    for candidate in candidates_of(decide_product(problem, target), problem, target):
        yield _implementation(name, candidate)


def _implementation(name: str, candidate: Candidate[GemmPlan]) -> Implementation:
    schedule = schedule_default if candidate.plan.tile is None else functools.partial(
        schedule_product, plan=candidate.plan)
    made = Implementation(f"{name}.{candidate.algorithm}", schedule)
    return dataclasses.replace(made, seconds=candidate.seconds)


for _what in (Family.MATMUL, "einsum"):
    strategy(_what, target="cuda", complete=True)(product)
    decides(_what, target="cuda")(decide_call)
