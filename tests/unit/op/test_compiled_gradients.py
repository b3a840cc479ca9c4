"""Gradients as machine code, and of narrow types, over one case of each operator.

A run compiles a fifth of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import weft
from tests.sampling import sampled
from tests.unit.op.differentiation import (
    NothingToProveError,
    Scalar,
    flatten_results,
    gradient_of,
    is_float,
    quiet,
    scalars_of,
)
from tests.unit.op.harness import make_call, make_inputs, output_types, parameters_of
from weft import op as catalogue
from weft.ir.dtype import DType
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case, Op
from weft.support.errors import TypeInferenceError
from weft.transform.autodiff.reverse.gradient import Gradient

assert catalogue.__all__, "the import registers the operators"

NAMES = [name for name in OPS if OPS.get(name).cases
         and (OPS.get(name).gradient_rule or OPS.get(name).hook("expansion")
              or OPS.get(name).hook("decomposition"))]


def _first_scalar(operator: Op) -> Scalar | None:
    """The first case with a derivative."""
    for one in operator.cases:
        try:
            return next(iter(scalars_of(operator, one)))
        except NothingToProveError:
            continue
    return None


@pytest.mark.filterwarnings("ignore:a program is compiled for each new set:weft.FallbackWarning")
@pytest.mark.filterwarnings("ignore:kernels are compiled during calls:weft.FallbackWarning")
@pytest.mark.parametrize("name", sampled("compiled gradients", NAMES, share=0.06))
def test_compiled_gradients_agree_with_the_interpreter(name: str) -> None:
    scalar = _first_scalar(OPS.get(name))
    if scalar is None:
        pytest.skip("no case has a derivative")
    program, expected = gradient_of(scalar)
    model = weft.compile(program)
    with quiet():
        value, *found = flatten_results(model(*scalar.arrays))
    assert abs(float(value) - scalar.value(scalar.arrays)) <= 16 * scalar.rounding
    near = 1e-9 if scalar.dtype == "float64" else 2e-4
    for gradient, wanted in zip(found, expected.values(), strict=True):
        assert gradient.shape == wanted.shape
        size = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(gradient, wanted, rtol=near, atol=near * size)


def _narrowed(one: Case, dtype: str) -> Case:
    narrow = tuple(dtype if DType.of(d).is_float else d for d in one.dtypes)

    def input_of(spec: Any) -> Any:
        if isinstance(spec, list):
            return [input_of(s) for s in spec]
        is_array = isinstance(spec, (np.ndarray, np.generic))
        if not is_array or not is_float(np.asarray(spec)):
            return spec
        return np.asarray(spec).astype(DType.of(dtype).numpy)

    return dataclasses.replace(one, dtypes=narrow, inputs=tuple(map(input_of, one.inputs)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_have_the_dtype_of_their_argument(dtype: str) -> None:
    """The contract of rules, in every dtype that an operator takes."""
    wrong: list[str] = []
    for name in NAMES:
        operator = OPS.get(name)
        for one in operator.cases[:2]:
            case = _narrowed(one, dtype)
            try:
                call = make_call(operator, case, make_inputs(operator, case))
            except TypeInferenceError:
                continue  # the operator does not take the dtype
            floats = [t for t in output_types(call.checked_type) if t.dtype.is_float]
            params = parameters_of(call)
            if not floats or operator.no_gradient_reason or not any(
                    p.checked_type.dtype.is_float for p in params):  # type: ignore[union-attr]
                continue
            try:
                Gradient(training=False)(IRModule.from_expr(Function(params, call)))
            except weft.WeftError as error:
                wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
