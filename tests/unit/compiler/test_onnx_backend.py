"""``weft.onnx_backend``: the backend API of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import weft
from tests.unit.frontend.onnx.onnx_cases import make_model
from weft.support.errors import InvalidInputError, UnsupportedModelError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
RELU = {"x": ((2, 3), TensorProto.FLOAT)}
RESHAPE = {"x": ((2, 3), TensorProto.FLOAT), "shape": ((2,), TensorProto.INT64)}


def single_node(op: str, inputs: Mapping[str, tuple[Sequence[int], int]]) -> ModelProto:
    node = helper.make_node(op, list(inputs), ["y"])
    return make_model([node], inputs, ["y"], output_type=TensorProto.FLOAT)


def test_outputs_have_names() -> None:
    model = single_node("Relu", RELU)
    result = weft.onnx_backend.prepare(model).run([X - 2])
    np.testing.assert_array_equal(result[0], np.maximum(X - 2, 0))
    np.testing.assert_array_equal(result.y, result[0])


def test_shapes_among_the_inputs_are_compiled_for_when_they_arrive() -> None:
    model = single_node("Reshape", RESHAPE)
    prepared = weft.onnx_backend.prepare(model)
    for shape in ((3, 2), (1, 6), (3, 2)):
        (y,) = prepared.run([X, np.array(shape)])
        np.testing.assert_array_equal(y, X.reshape(shape))


def test_which_inputs_became_constants_is_told() -> None:
    plain = weft.onnx_backend.prepare(single_node("Relu", RELU))
    plain.run([X])
    assert plain.bound_inputs == ()
    assert plain.programs == 1
    bound = weft.onnx_backend.prepare(single_node("Reshape", RESHAPE))
    assert bound.bound_inputs == ()
    bound.run([X, np.array((3, 2))])
    assert bound.bound_inputs == ("shape",)


def test_a_bounded_number_of_programs_is_kept() -> None:
    with weft.config(dynamic_programs=3):
        prepared = weft.onnx_backend.prepare(single_node("Reshape", RESHAPE))
    for shape in ((3, 2), (1, 6), (6, 1), (2, 3), (3, -1), (3, 2), (1, 6)):
        (y,) = prepared.run([X, np.array(shape)])
        np.testing.assert_array_equal(y, X.reshape(shape))
        assert prepared.programs <= 3


def test_the_program_used_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with weft.config(dynamic_programs=2):
        prepared = weft.onnx_backend.prepare(single_node("Reshape", RESHAPE))
    compiled: list[ModelProto] = []
    compile_ = prepared._compile
    monkeypatch.setattr(prepared, "_compile", lambda *a: compiled.append(a[0]) or compile_(*a))
    counts = []
    for shape in ((3, 2), (1, 6), (3, 2), (6, 1), (3, 2), (1, 6)):
        prepared.run([X, np.array(shape)])
        counts.append(len(compiled))
    assert counts == [1, 2, 2, 3, 3, 4]


def test_programs_are_shared_by_threads() -> None:
    with weft.config(dynamic_programs=2):
        prepared = weft.onnx_backend.prepare(single_node("Reshape", RESHAPE))
    shapes = [(3, 2), (1, 6), (6, 1)] * 4
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda s: prepared.run([X, np.array(s)])[0], shapes))
    assert [r.shape for r in results] == shapes


def test_one_node() -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    (y,) = weft.onnx_backend.run_node(node, [X, X], outputs_info=[(np.dtype(np.float32), (2, 3))])
    np.testing.assert_array_equal(y, X + X)


def test_devices() -> None:
    assert weft.onnx_backend.supports_device("CPU")
    assert not weft.onnx_backend.supports_device("CUDA:1")
    with pytest.raises(InvalidInputError):
        weft.onnx_backend.prepare(single_node("Relu", RELU), "CUDA")


def test_too_many_inputs() -> None:
    prepared = weft.onnx_backend.prepare(single_node("Relu", RELU))
    with pytest.raises(InvalidInputError):
        prepared.run([X, X])


def test_missing_operators_are_told_at_the_run() -> None:
    model = single_node("MaxRoiPool", dict.fromkeys("xr", RELU["x"]))
    prepared = weft.onnx_backend.prepare(model)
    with pytest.raises(UnsupportedModelError, match="MaxRoiPool"):
        prepared.run([X, X])
