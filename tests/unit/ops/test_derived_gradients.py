"""Gradients that expansions and decompositions give, over the operators' own cases, in float64.

Operators with a gradient in their record or a rule are in ``test_gradients``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.harness import make_call, make_inputs, output_types
from weft import op
from weft.ir.expr import Call, Function, var
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case
from weft.ir.typing.infer import infer_type
from weft.topi.layout import Layout
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.gradient import Gradient

DERIVED = [
    *(name for name in OPS if OPS.get(name).hook("expansion") is not None),
    *(f"nn.conv{axes}d_transpose" for axes in (1, 2, 3)),
    *(f"nn.global_{kind}_pool{axes}d" for kind in ("avg", "max") for axes in (1, 2, 3)),
]
STEP = 1e-6


def _is_plain(one: Case) -> bool:
    """Blocks are chosen after differentiation, and random draws have no slope at zero size."""
    layouts = [v for k, v in one.attrs.items() if "layout" in k]
    empty = any(0 in s for s in one.inputs if isinstance(s, tuple))
    return one.dtypes == ("float32",) and not empty and all(
        Layout.parse(v).is_primal for v in layouts
    )


CASES = [
    pytest.param(name, one, id=f"{name}-{i}")
    for name in DERIVED
    for i, one in enumerate(OPS.get(name).cases)
    if _is_plain(one)
]


def _forward(call: Call, arrays: list[Any]) -> np.ndarray:
    return np.asarray(call.op.reference(*arrays, **dict(call.attrs.items())))


@pytest.mark.parametrize(("name", "one"), CASES)
def test_gradient_is_the_slope(name: str, one: Case) -> None:
    operator = OPS.get(name)
    one = dataclasses.replace(one, dtypes=("float64",))
    arrays = [a.astype(np.float64) if a.dtype.kind == "f" else a
              for a in make_inputs(operator, one, seed=5)]
    call = make_call(operator, one, arrays)
    rng = np.random.default_rng(6)
    weights = rng.uniform(-1, 1, output_types(call.checked_type)[0].concrete_shape)
    seed = var("dy", weights.shape, "float64")
    total = op.sum(op.multiply(call, seed))
    module = infer_type(IRModule.from_expr(Function((*call.args, seed), total)))
    _, gradients = evaluate(Gradient()(module), [*arrays, weights])
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    for index, gradient in zip([*floats, len(arrays)], gradients, strict=True):
        if index == len(arrays):
            break  # of the weights, which is the result itself
        array = arrays[index]
        direction = rng.uniform(-1, 1, array.shape)
        ahead, behind = (
            _forward(call, [a + sign * STEP * direction if i == index else a
                            for i, a in enumerate(arrays)])
            for sign in (1, -1)
        )
        slope = ((ahead - behind) * weights).sum() / (2 * STEP)
        found = (np.asarray(gradient) * direction).sum()
        np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-7)
