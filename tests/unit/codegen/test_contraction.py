"""Contraction of multiply and add into FMA keeps ``x - x`` zero."""

from __future__ import annotations

import numpy as np
import pytest

import weft

ZEROS = {
    "a product minus itself": "subtract(%a, %a)",
    "a product plus its negation": "add(%a, negative(%a))",
    "a sum minus itself": "subtract(add(%a, %x), add(%a, %x))",
    "factors in the other order": "subtract(negative(%a), negative(multiply(%y, %x)))",
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("name", ZEROS)
def test_a_computed_value_minus_itself_is_zero(name, opt_level, dtype):
    program = (f"def @main(%x: Tensor[(67,), {dtype}], %y: Tensor[(67,), {dtype}]) "
               f"{{ let %a = multiply(%x, %y); sqrt({ZEROS[name]}) }}")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(67).astype(dtype) for _ in range(2))
    np.testing.assert_array_equal(weft.compile(weft.parse(program), opt_level=opt_level)(x, y), 0)
