"""Registered gradients against central differences in one random direction, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.harness import (
    flatten,
    make_call,
    make_inputs,
    output_types,
    parameters_of,
    reference_outputs,
)
from weft import op as catalogue
from weft.ir.expr import Call, Function, Tuple, var
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case
from weft.ir.types import TupleType
from weft.ir.typing.infer import infer_type
from weft.support.errors import PassError
from weft.transform.analysis.reference import evaluate

assert catalogue.__all__, "the import registers the operators"

STEP = 1e-6
# They have the gradients of exp, tanh and erf, and no float64 in which differences are exact.
FLOAT32_ONLY = {"fast_exp", "fast_tanh", "fast_erf"}
CASES = [
    pytest.param(name, one, id=f"{name}-{i}")
    for name in OPS
    if OPS.get(name).gradient_rule is not None and name not in FLOAT32_ONLY
    for i, one in enumerate(OPS.get(name).cases)
    if one.dtypes == ("float32",)
]


def _forward(call: Call, arrays: list[Any], weights: list[np.ndarray]) -> float:
    outputs = zip(reference_outputs(call, arrays), weights, strict=True)
    return sum(float((y * w).sum()) for y, w in outputs if y.dtype.kind == "f")


def _wide(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_wide, value))
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _moved(value: Any, way: Any, step: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_moved(v, w, step) for v, w in zip(value, way, strict=True))
    return value + step * way if value.dtype.kind == "f" else value


def _direction(rng: np.random.Generator, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_direction(rng, v) for v in value)
    floats = value.dtype.kind == "f"
    return rng.uniform(-1, 1, value.shape) if floats else np.zeros(value.shape)


@pytest.mark.parametrize(("name", "one"), CASES)
def test_gradient_is_the_slope(name: str, one: Case) -> None:
    """Integer arguments have gradients of their own type, which say nothing."""
    operator = OPS.get(name)
    one = dataclasses.replace(one, dtypes=("float64",))
    arrays = [_wide(a) for a in make_inputs(operator, one, seed=5)]
    call = make_call(operator, one, arrays)
    rng = np.random.default_rng(6)
    floats = [a for a in flatten(arrays) if a.dtype.kind == "f"]
    if not any(t.dtype.is_float for t in output_types(call.checked_type)) or not all(
        np.isfinite(a).all() for a in floats
    ):
        return  # a case of integers, or of numbers without neighbours
    shapes = [y.shape for y in reference_outputs(call, arrays)]
    weights = [np.asarray(rng.uniform(-1, 1, shape)) for shape in shapes]
    arriving = [var(f"dy{n}", w.shape, "float64") for n, w in enumerate(weights)]
    is_tuple = isinstance(call.checked_type, TupleType)
    dy = Tuple(tuple(arriving)) if is_tuple else arriving[0]
    try:
        gradients = operator.gradient_rule(call, call, dy)
    except PassError as error:  # some attributes have no gradient, and the error says so
        assert "gradient" in str(error)  # noqa: PT017
        return
    assert len(gradients) == len(arrays)
    for index, gradient in enumerate(gradients):
        params = (*parameters_of(call), *arriving)
        module = infer_type(IRModule.from_expr(Function(params, gradient)))
        assert module["main"].body.checked_type == call.args[index].checked_type
        found = evaluate(module, [*flatten(arrays), *weights])
        way = _direction(rng, arrays[index])
        ahead, behind = (
            _forward(call, [_moved(a, way, sign * STEP) if i == index else a
                            for i, a in enumerate(arrays)], weights)
            for sign in (1, -1)
        )
        slope = (ahead - behind) / (2 * STEP)
        along = sum((f * w).sum() for f, w in zip(flatten([found]), flatten([way]), strict=True))
        np.testing.assert_allclose(along, slope, rtol=1e-5, atol=1e-7)
