"""Symbolic sizes of ONNX models that weights and fixed shapes determine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from tests.unit.frontend.onnx.onnx_cases import make_model
from weft.frontend.onnx import from_onnx
from weft.ir.types import TensorType
from weft.support.errors import InvalidInputError, InvalidModelError, UnsupportedModelError

F32 = TensorProto.FLOAT


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def model_of(op: str, shape: tuple[Any, ...], constants: dict[str, np.ndarray],
             **attrs: object) -> Any:
    node = helper.make_node(op, ["x", *constants], ["y"], **attrs)
    return make_model([node], {"x": (shape, F32)}, ["y"], constants=constants)


def shape_in(model: Any) -> tuple[str, ...]:
    [param] = from_onnx(model)["main"].params
    assert isinstance(param.checked_type, TensorType)
    return tuple(map(str, param.checked_type.shape))


@pytest.mark.parametrize(("op", "shape", "constants", "attrs", "expected"), [
    ("Conv", ("b", "c", "h", "w"), {"k": ones(4, 3, 1, 1)}, {}, ("b", "3", "h", "w")),
    ("Conv", ("b", "c", "h", "w"), {"k": ones(4, 2, 1, 1)}, {"group": 2}, ("b", "4", "h", "w")),
    ("ConvTranspose", ("b", "c", "h", "w"), {"k": ones(3, 4, 1, 1)}, {}, ("b", "3", "h", "w")),
    ("BatchNormalization", ("b", "c", "h"), {n: ones(5) for n in "abcd"}, {}, ("b", "5", "h")),
    ("MatMul", ("b", "s", "k"), {"m": ones(6, 2)}, {}, ("b", "s", "6")),
    ("Gemm", ("k", "m"), {"m": ones(2, 6)}, {"transA": 1, "transB": 1}, ("6", "m")),
    ("GRU", ("s", "b", "k"), {"w": ones(1, 12, 3), "r": ones(1, 12, 4)}, {"hidden_size": 4},
     ("s", "b", "3")),
    ("Reshape", ("b", 6), {"s": np.array([1, 6])}, {}, ("1", "6")),
    ("Reshape", ("b", 6), {"s": np.array([4, 3])}, {}, ("2", "6")),
    ("Split", ("b", "n"), {"s": np.array([5])}, {"axis": 1}, ("b", "5")),
    ("Squeeze", ("b", "n"), {"s": np.array([1])}, {}, ("b", "1")),
    ("Squeeze", ("b", 1, "n"), {}, {}, ("b{2..}", "1", "n{2..}")),
])
def test_constants_determine_sizes(op: str, shape: tuple[Any, ...],
                                   constants: dict[str, np.ndarray], attrs: dict[str, Any],
                                   expected: tuple[str, ...]) -> None:
    assert shape_in(model_of(op, shape, constants, **attrs)) == expected


@pytest.mark.filterwarnings("ignore:a program is compiled:weft.FallbackWarning")
def test_sizes_that_fit_nothing_stay_open() -> None:
    """7 elements are no rows of 6: no batch is right, which each call says."""
    model = model_of("Reshape", ("b", 6), {"s": np.array([7])})
    with pytest.raises(UnsupportedModelError, match="number of elements"):
        from_onnx(model)
    compiled = weft.compile(model)
    assert compiled.is_dynamic
    assert compiled.general is None
    for _ in range(2):
        with pytest.raises(InvalidModelError, match="number of elements"):
            compiled(ones(2, 6))


def test_the_batch_that_a_reshape_demands() -> None:
    compiled = weft.compile(model_of("Reshape", ("b", 6), {"s": np.array([3, 2])}))
    assert compiled(ones(1, 6)).shape == (3, 2)
    with pytest.raises(InvalidInputError):
        compiled(ones(2, 6))
    assert compiled(ones(1, 6)).shape == (3, 2)


@pytest.mark.filterwarnings("ignore:a program is compiled:weft.FallbackWarning")
def test_axes_of_size_1_are_squeezed_in_programs_of_their_own() -> None:
    compiled = weft.compile(model_of("Squeeze", ("b", 1, "n"), {}))
    assert compiled.is_dynamic
    assert compiled.general is not None
    for shape in ((3, 1, 2), (1, 1, 2), (3, 1, 1), (0, 1, 1), (1, 1, 1), (2, 1, 0)):
        assert np.array_equal(compiled(ones(*shape)), ones(*shape).squeeze())
    assert len(compiled.sizes) == 5


def test_bounds_of_users_that_exclude_the_demanded_size() -> None:
    model = model_of("MatMul", ("b", "k"), {"m": ones(6, 2)})
    with pytest.raises(weft.WeftError, match=r"MatMul|matmul|dense"):
        from_onnx(model, inputs={"x": ("b", "1 <= k <= 5")})


@pytest.mark.filterwarnings("ignore:a program is compiled:weft.FallbackWarning")
def test_branches_demand_nothing() -> None:
    """A branch that is not taken may multiply by a matrix that fits no other size."""
    body = helper.make_graph([helper.make_node("MatMul", ["x", "m"], ["u"])], "then", [],
                             [helper.make_tensor_value_info("u", F32, None)],
                             [helper.make_tensor("m", F32, [6, 6], np.ones(36, np.float32))])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["v"])], "else", [],
                              [helper.make_tensor_value_info("v", F32, None)])
    model = make_model([helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=other)],
                       {"x": (("b", "k"), F32), "p": ((), TensorProto.BOOL)}, ["y"])
    compiled = weft.compile(model)
    assert compiled.inputs[0].shape == ("b", "k")
    x = ones(2, 6)
    np.testing.assert_array_equal(compiled(x, np.array(True)), np.full((2, 6), 6, np.float32))
    np.testing.assert_array_equal(compiled(x, np.array(False)), -x)
