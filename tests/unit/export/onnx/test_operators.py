"""Every case of every operator, written as ONNX: run by ONNX Runtime, and read back by weft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from tests.unit.op.harness import (
    CaseId,
    all_cases,
    assert_close,
    case_of,
    flatten,
    make_call,
    make_inputs,
    parameters_of,
    reference_outputs,
)
from weft.export.onnx.model import onnx_model
from weft.frontend.onnx import from_onnx
from weft.ir import Function, IRModule
from weft.ir.op import OPS, Case
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

# Operators and cases that are not written: ONNX has no word for them, and their definitions are
# loops whose steps depend on data.
REFUSED = {
    "linalg.cholesky", "linalg.eigh", "linalg.lu", "linalg.matrix_exp", "linalg.pivot_order",
    "linalg.svd", "linalg.triangular_solve", "nn.block_dequantize", "nn.block_quantized_dense",
    "nn.cache_update", "nn.paged_cache_update", "nn.sparse_transpose", "random.multinomial",
    "sparse_fill_empty_rows",
    "special.incomplete_gamma", "special.orthogonal_polynomial", "vision.get_valid_counts",
    "vision.non_max_suppression", "vision.proposal", "vision.regular_non_max_suppression",
    "vision.roi_align_grad", "vision.roi_align_tangent", "vision.roi_pool", "vision.roi_pool_grad",
    "vision.roi_pool_tangent",
    "argwhere-3",  # the indices of a scalar
    "dyn.image.resize2d", "dyn.nn.upsampling", "dyn.nn.upsampling3d", "dyn.sparse_to_dense",
    "gcd-1", "gcd-2",  # of 64 bits: too many steps
    "nn.bitserial_conv2d", "nn.bitserial_dense",  # they count bits
    "nn.sparse_conv2d-0", "nn.sparse_dense-2", "nn.sparse_dense-3",  # blocks of a matrix
    "reinterpret",  # BitCast is of opset 26
    "strided_set-3", "vision.roi_align-2",
}
# Those of no elements have zeros for results, and need no form.
EMPTY = {"gcd-2", "linalg.cholesky-2", "linalg.eigh-2", "linalg.lu-4", "linalg.matrix_exp-2",
         "linalg.svd-3", "random.multinomial-2", "reinterpret-3", "special.incomplete_gamma-4"}
# What ONNX says, and ONNX Runtime does not run or runs otherwise.
RUNTIME = {
    "nn.group_norm-4": Fail,  # of no elements
    "special.erfc-0": NotImplemented_, "special.erfc-1": NotImplemented_,  # Erf of float64
    "special.erfc-3": NotImplemented_,
    "unique-2": AssertionError,  # NaN differs from itself there
}
# Cases whose operands are shapes, which the importer wants to know, and one of an empty image.
ONE_WAY = {*(name for name in OPS if name.startswith("dyn.")), "image.resize1d-3"}
CASES = all_cases()


def label_of(id_: CaseId) -> str:
    return f"{id_[0]}-{id_[1]}"


def written(name: str, one: Case) -> tuple[Any, list[np.ndarray], tuple[np.ndarray, ...]]:
    """The model of a case, its inputs, and the results that the reference gives."""
    op = OPS.get(name)
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    function = Function(parameters_of(call), call)
    model = onnx_model(IRModule.from_expr(function))
    return model, flatten(arrays), reference_outputs(call, arrays)


def run(model: Any, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    feeds = {i.name: a for i, a in zip(model.graph.input, arrays, strict=True)}
    return session.run(None, feeds)


def results(model: Any, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
    """What weft computes from the model that it wrote."""
    found = evaluate(from_onnx(model), arrays)
    return found if isinstance(found, tuple) else (found,)


def assert_same(found: Sequence[Any], expected: Sequence[Any], one: Case) -> None:
    for got, want in zip(found, expected, strict=True):
        assert np.shape(got) == np.shape(want)
        assert_close(np.asarray(got), np.asarray(want), one)


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("id_", CASES, ids=label_of)
def test_a_case_is_the_same_in_onnx(id_: CaseId) -> None:
    name, label, one = id_[0], label_of(id_), case_of(id_)
    if {name, label} & REFUSED and label not in EMPTY:
        with pytest.raises(UnsupportedModelError, match=name):
            written(name, one)
        return
    model, arrays, expected = written(name, one)
    if label in RUNTIME:
        with pytest.raises(RUNTIME[label]):
            assert_same(run(model, arrays), expected, one)
    else:
        assert_same(run(model, arrays), expected, one)
    if name in ONE_WAY or label in ONE_WAY:
        with pytest.raises(UnsupportedModelError):
            from_onnx(model)
    elif label not in RUNTIME:
        assert_same(results(model, arrays), expected, one)
