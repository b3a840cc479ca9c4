"""Registered gradients against central differences in one random direction, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.harness import make_call, make_inputs, output_types
from weft import op as catalogue
from weft.ir.expr import Call, Function, var
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case
from weft.ir.typing.infer import infer_type
from weft.transform.reference import evaluate

assert catalogue.__all__, "the import registers the operators"

STEP = 1e-6
CASES = [
    pytest.param(name, one, id=f"{name}-{i}")
    for name in OPS
    if OPS.get(name).hook("gradient") is not None
    for i, one in enumerate(OPS.get(name).cases)
    if one.dtypes == ("float32",)
]


def _forward(call: Call, arrays: list[Any]) -> np.ndarray:
    return np.asarray(call.op.reference(*arrays, **dict(call.attrs.items())))


@pytest.mark.parametrize(("name", "one"), CASES)
def test_gradient_is_the_slope(name: str, one: Case) -> None:
    operator = OPS.get(name)
    one = dataclasses.replace(one, dtypes=("float64",))
    arrays = make_inputs(operator, one, seed=5)
    arrays = [a.astype(np.float64) for a in arrays]
    call = make_call(operator, one, arrays)
    rng = np.random.default_rng(6)
    weights = rng.uniform(-1, 1, output_types(call.checked_type)[0].concrete_shape)
    dy = var("dy", weights.shape, "float64")
    gradients = operator.hook("gradient")(call, call, dy)
    assert len(gradients) == len(arrays)
    for index, gradient in enumerate(gradients):
        module = infer_type(IRModule.from_expr(Function((*call.args, dy), gradient)))
        assert module["main"].body.checked_type == call.args[index].checked_type
        found = evaluate(module, [*arrays, weights])
        direction = rng.uniform(-1, 1, arrays[index].shape)
        ahead, behind = (
            _forward(call, [a + sign * STEP * direction if i == index else a
                            for i, a in enumerate(arrays)])
            for sign in (1, -1)
        )
        slope = ((ahead - behind) * weights).sum() / (2 * STEP)
        np.testing.assert_allclose((found * direction).sum(), slope, rtol=1e-5, atol=1e-7)
