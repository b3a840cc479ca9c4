"""The cases of an operator in the emulator, with every implementation that CUDA offers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.unit.cuda.strategy.emulation import run_kernel
from tests.unit.op.harness import (
    assert_close,
    cut_results,
    flatten,
    make_call,
    make_inputs,
    make_results,
    parameters_of,
    reference_outputs,
    static_call,
)
from weft.codegen.cuda.build import build_kernel_object
from weft.ir.expr import Call, Function
from weft.ir.op import Case, Op
from weft.ir.typing.infer import infer_expr
from weft.strategy import Implementation, implementations, lower_function
from weft.target import CudaTarget
from weft.testing.cuda import EmulationOptions


def check_case(
    operator: Op, one: Case, target: CudaTarget, only: str = ""
) -> Iterator[str]:
    """Run a case with each implementation whose name has ``only``; yields the names that agreed."""
    arrays = make_inputs(operator, one)
    dynamic = make_call(operator, one, arrays)
    call = static_call(dynamic, arrays)
    function = infer_expr(Function(parameters_of(dynamic), call, attrs={"primitive": True}))
    assert isinstance(function, Function)
    expected = reference_outputs(dynamic, arrays)
    offered = implementations(call, target) if isinstance(call, Call) else ()
    for implementation in (i for i in offered if only in i.name):
        _run(function, implementation, target, arrays, call, expected, one)
        yield implementation.name


def _run(function: Function, implementation: Implementation, target: CudaTarget, arrays: list,
         call: Call, expected: tuple[np.ndarray, ...], one: Case) -> None:
    lowered = lower_function(function, target, implementation=implementation).func
    results = make_results(call, expected)
    run_kernel(build_kernel_object(lowered, target), flatten(arrays), results, EmulationOptions())
    for got, want in zip(cut_results(call, results), expected, strict=True):
        assert_close(got, want, one)
