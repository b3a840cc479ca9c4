"""Schedules for CUDA in the evaluator, which finds data races: values against the references."""

from __future__ import annotations

import numpy as np

from tests.unit.strategy.kernels import random_arguments
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.strategy import ScheduledKernel, schedule_function
from weft.target import Target
from weft.tir.eval import evaluate
from weft.tir.func import PrimFunc
from weft.tir.stmt import For, ForKind
from weft.tir.visitor import post_order_stmts
from weft.transform.analysis.reference import evaluate as evaluate_reference

H100 = Target.of("cuda -arch=sm_90a")
A100 = Target.of("cuda -arch=sm_80")


def check_nest(function: Function, target: Target = H100, *, rtol: float = 1e-5) -> PrimFunc:
    """Schedule ``function`` and compare what its loops compute with the references."""
    kernel = schedule_function(function, target)
    nest = kernel.loop_nest()
    arguments = random_arguments(function)
    expected = evaluate_reference(IRModule.from_expr(function), arguments)
    results = expected if isinstance(expected, tuple) else (expected,)
    outputs = [np.full(r.shape, -77, r.dtype) for r in results]
    evaluate(nest, *arguments, *outputs)
    for got, want in zip(outputs, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    return nest


def schedule_of(function: Function, target: Target = H100) -> ScheduledKernel:
    return schedule_function(function, target)


def bound(nest: PrimFunc, tag: str) -> list[For]:
    """The loops that are bound to ``tag``."""
    return [n for n in post_order_stmts(nest.body) if isinstance(n, For) and n.thread_tag == tag]


def vectors(nest: PrimFunc) -> list[For]:
    return [n for n in post_order_stmts(nest.body)
            if isinstance(n, For) and n.kind is ForKind.VECTORIZED]
