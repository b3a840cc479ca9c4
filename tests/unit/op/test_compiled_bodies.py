"""Operators with bodies in plain Python, compiled: the body becomes part of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.op.harness import (
    assert_close,
    flatten,
    make_call,
    make_inputs,
    parameters_of,
    reference_outputs,
)
from weft import op as catalogue
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.ir.typing.infer import infer_type

assert catalogue.__all__, "the import registers the operators"

NAMES = [
    "nn.sparse_add", "nn.sparse_dense", "nn.sparse_transpose",
    "vision.all_class_non_max_suppression", "vision.get_valid_counts",
    "vision.multibox_transform_loc", "vision.non_max_suppression", "vision.proposal",
    "vision.roi_align", "vision.roi_pool",
]  # fmt: skip


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", NAMES)
def test_compiled_code_agrees_with_the_reference(name: str) -> None:
    operator = OPS.get(name)
    one = operator.cases[0]
    arrays: list[Any] = make_inputs(operator, one)
    call = make_call(operator, one, arrays)
    module = infer_type(IRModule.from_expr(Function(parameters_of(call), call)))
    found = weft.compile(module)(*flatten(arrays))
    results = found if isinstance(found, tuple) else (found,)
    for got, want in zip(results, reference_outputs(call, arrays), strict=True):
        assert_close(np.asarray(got), want, one)
