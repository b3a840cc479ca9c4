"""Every case of every operator, scheduled for a CPU and through all passes of the loop program.

A run draws one case and target of each operator.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.sampling import one_of_each
from tests.unit.op.harness import (
    CaseId,
    all_cases,
    assert_close,
    case_of,
    cut_results,
    flatten,
    make_call,
    make_inputs,
    make_results,
    name_of,
    parameters_of,
    reference_outputs,
    static_call,
)
from weft import op as catalogue
from weft.ir.expr import Call, Expr, Function
from weft.ir.op import OPS, Op
from weft.ir.typing.infer import infer_expr
from weft.strategy import Implementation, implementations, lower_function
from weft.target import Target
from weft.tir.eval import evaluate

assert catalogue.__all__, "the import registers the operators"

# Eight lanes and sixteen registers, or sixteen and thirty-two: other tiles, other tails.
TARGETS = ("llvm -mcpu=haswell", "llvm -mcpu=znver4")
TABLE = one_of_each("strategies", list(itertools.product(all_cases(), TARGETS)),
                    lambda pair: name_of(pair[0]))


@pytest.mark.parametrize(("case", "target"), [
    pytest.param(case, target, id=f"{target}-{case[0]}-{case[1]}") for case, target in TABLE])
def test_scheduled_kernel_agrees_with_the_reference(case: CaseId, target: str) -> None:
    operator, one = OPS.get(name_of(case)), case_of(case)
    arrays = make_inputs(operator, one)
    dynamic = make_call(operator, one, arrays)
    call = static_call(dynamic, arrays)
    function = infer_expr(Function(parameters_of(dynamic), call, attrs={"primitive": True}))
    expected = reference_outputs(dynamic, arrays)
    for implementation in offered(call, Target.of(target)):
        kernel = lower_function(function, Target.of(target), implementation=implementation).func
        results = make_results(call, expected)
        arguments = [*flatten(arrays), *results]
        rest = kernel.params[len(arguments):]
        workspace = [np.zeros(p.static_shape, p.dtype.numpy) for p in rest]
        evaluate(kernel, *arguments, *workspace)
        for got, want in zip(cut_results(call, results), expected, strict=True):
            assert_close(got, want, one)


def offered(call: Expr, target: Target) -> list[Implementation | None]:
    """All that the strategy of a call has; ``None`` for what is more than one operator."""
    if isinstance(call, Call) and isinstance(call.op, Op):
        return list(implementations(call, target))
    return [None]


def test_some_operators_have_several_implementations() -> None:
    """And so the test above runs more than what would be chosen."""
    target = Target.of("llvm -mcpu=znver4")
    names: set[str] = set()
    for name in ("nn.conv2d", "nn.dense", "nn.batch_matmul"):
        operator = OPS.get(name)
        for one in operator.cases:
            call = make_call(operator, one, make_inputs(operator, one))
            names |= {i.name for i in offered(call, target) if i is not None}
    assert len(names) > len(("nn.conv2d", "nn.dense", "nn.batch_matmul"))
