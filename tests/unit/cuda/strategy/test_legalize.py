"""What ``Legalize`` and ``AlterOpLayout`` do for CUDA: attention as products, and no layouts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.op.harness import (
    flatten,
    make_call,
    make_inputs,
    parameters_of,
    reference_outputs,
)
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.ir.passes import PassContext
from weft.ir.typing.infer import infer_expr
from weft.strategy import layout_hooks, legalizations
from weft.target import CudaTarget
from weft.transform.analysis.reference import evaluate

H100 = CudaTarget("sm_90a")


@pytest.mark.parametrize("name", ["nn.attention_backward", "nn.masked_attention_backward"])
def test_the_gradient_of_attention_is_products(name):
    rewrite, operator = legalizations(H100)[name], OPS.get(name)
    rewritten = 0
    for one in operator.cases:
        arrays = make_inputs(operator, one)
        call = make_call(operator, one, arrays)
        types = [argument.checked_type for argument in call.args if argument.checked_type]
        found = rewrite(call, types, PassContext())
        if found is None:
            assert 0 in arrays[2].shape
            continue
        function = infer_expr(Function(parameters_of(call), found))
        got = evaluate(IRModule.from_expr(function), flatten(arrays))
        for mine, wanted in zip(got, reference_outputs(call, arrays), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
        rewritten += 1
    assert rewritten >= 6


def test_tensors_keep_their_layouts():
    """Blocked channels and packed weights are for the vectors of CPUs."""
    assert not layout_hooks(H100)
    assert all("attention" in name for name in legalizations(H100))
