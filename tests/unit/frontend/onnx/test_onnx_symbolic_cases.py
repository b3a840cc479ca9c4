"""The node tests of the ONNX standard with symbols for the sizes of their inputs.

Sizes above 1 become symbols, equal sizes the same one. The imported module, with the sizes put in
for the symbols, gives the values of the case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from tests.unit.frontend.onnx.test_onnx_node_cases import (
    DRAWN,
    ROUNDING,
    as_array,
    cases_by_operator,
    with_integers_fixed,
)
from weft.frontend.onnx import from_onnx
from weft.ir.substitution import substitute_symbols
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

# Every so many cases run in the fast tests.
STRIDE = 20
# Cases that are imported; the others fix the sizes in their attributes and constants.
MIN_IMPORTED = 1100


def all_cases() -> list[Any]:
    return [case for cases in cases_by_operator().values() for case in cases]


def with_symbols(model: ModelProto) -> tuple[ModelProto, dict[str, int]]:
    """The model with names for input sizes above 1, and the size of each name."""
    sizes: dict[str, int] = {}
    result = ModelProto()
    result.CopyFrom(model)
    constants = {t.name for t in result.graph.initializer}
    for value in result.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value > 1 and value.name not in constants:
                name = f"n{dim.dim_value}"
                sizes[name] = dim.dim_value
                dim.dim_param = name
    return result, sizes


def imports_and_agrees(case: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """False for what is refused with symbolic sizes; raises for wrong results."""
    arrays = [as_array(i) for i in inputs]
    model, sizes = with_symbols(with_integers_fixed(case.model, arrays))
    try:
        module = from_onnx(model)
    except (InvalidModelError, UnsupportedModelError):
        return False  # the attributes and constants of the case fix the sizes
    feeds = {v.name: a for v, a in zip(case.model.graph.input, arrays, strict=True)}
    if case.name.startswith(DRAWN):
        return False
    fixed = substitute_symbols(module, sizes)
    result = evaluate(fixed, [feeds[n] for n in module.attrs["input_names"]])
    actual = result if isinstance(result, tuple) else (result,)
    for a, e in zip(actual, map(as_array, outputs), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype), case.name
        wide = np.float64 if a.dtype.kind != "b" else bool
        rtol = max(ROUNDING.get(a.dtype.name, 1e-3), case.rtol)
        np.testing.assert_allclose(a.astype(wide), e.astype(wide), rtol=rtol, atol=1e-5,
                                   err_msg=case.name)
    return True


def test_a_part_of_the_cases() -> None:
    passed = [imports_and_agrees(case, *data) for case in all_cases()[::STRIDE]
              for data in case.data_sets]
    assert sum(passed) > len(passed) // 2


@pytest.mark.slow
def test_all_cases() -> None:
    passed = [imports_and_agrees(case, *data) for case in all_cases() for data in case.data_sets]
    assert sum(passed) >= MIN_IMPORTED
