"""Nodes that contradict their inputs; messages name the ONNX node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.errors.bad_models import assert_refused, error_of, make_model
from weft.frontend.onnx import from_onnx
from weft.support.errors import InvalidModelError, TypeInferenceError, WeftError

IMAGE = [("x", (1, 3, 8, 8))]


def weight(*shape: int, name: str = "w") -> Any:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def test_channels_of_a_convolution() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="Conv_3")
    model = make_model([node], inputs=IMAGE, initializers=[weight(6, 4, 3, 3)])
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 Conv: the input channels do not match the weight
          --> <ModelProto> (node Conv_3 (Conv))
          expected: 4 * 1 groups = 4 channels
          got: 3 channels
    """,
    )


def test_kernel_shape_that_differs_from_the_weight() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c", kernel_shape=[5, 5])
    model = make_model([node], inputs=IMAGE, initializers=[weight(6, 3, 3, 3)])
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 Conv: kernel_shape differs from the weight
          --> <ModelProto> (node c (Conv))
          expected: (3, 3)
          got: (5, 5)
    """,
    )


def test_groups_that_do_not_divide() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c", group=4)
    model = make_model([node], inputs=IMAGE, initializers=[weight(6, 3, 3, 3)])
    error = error_of(lambda: from_onnx(model), InvalidModelError)
    assert error.what == "Conv: group does not divide the output channels"


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [0, 1]},
        {"strides": [1]},
        {"pads": [1, 1]},
        {"pads": [-1, 0, 0, 0]},
        {"dilations": [0, 0]},
        {"strides": [2**40, 1]},
    ],
)
def test_window_attributes(attrs: dict[str, Any]) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c", **attrs)
    model = make_model([node], inputs=IMAGE, initializers=[weight(6, 3, 3, 3)])
    error = error_of(lambda: from_onnx(model), InvalidModelError)
    assert error.what == f"Conv: attribute {next(iter(attrs))!r} does not match the input"
    assert error.where == "<ModelProto> (node c (Conv))"


def test_shapes_that_do_not_broadcast() -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"], name="sum")
    error = error_of(
        lambda: from_onnx(make_model([node], initializers=[weight(2)])), TypeInferenceError
    )
    assert "sum (Add)" in str(error)
    assert "add" in str(error)


def test_attribute_of_the_wrong_type() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], name="act", alpha="steep")
    error = error_of(lambda: from_onnx(make_model([node])), InvalidModelError)
    assert "alpha" in str(error)


@pytest.mark.parametrize(
    ("op", "attrs", "constants"),
    [
        ("Reshape", {}, [np.int64([4, 2])]),
        ("Reshape", {}, [np.int64([-1, -1])]),
        ("Reshape", {}, [np.int64([-2, 3])]),
        ("Reshape", {}, [np.int64([2, 3, 0])]),
        ("Reshape", {}, [np.int64([-1, 4])]),
        ("Transpose", {"perm": [0, 0]}, []),
        ("Transpose", {"perm": [0, 1, 2]}, []),
        ("Concat", {"axis": 7}, []),
        ("Softmax", {"axis": -3}, []),
        ("Unsqueeze", {}, [np.int64([0, 0])]),
        ("Unsqueeze", {}, [np.int64([9])]),
        ("Squeeze", {}, [np.int64([0])]),
        ("Split", {"axis": 1}, [np.int64([1, 1])]),
        ("Slice", {}, [np.int64([0]), np.int64([1]), np.int64([0]), np.int64([0])]),
        ("Slice", {}, [np.int64([0, 0]), np.int64([1])]),
        ("Pad", {}, [np.int64([1, 1])]),
        ("Pad", {}, [np.int64([0, -9, 0, 0])]),
        ("Expand", {}, [np.int64([5, 3])]),
        ("Flatten", {"axis": 5}, []),
        ("ArgMax", {"axis": 2}, []),
        ("MaxPool", {"kernel_shape": [3]}, []),
        ("Gemm", {}, [np.ones((4, 4), np.float32)]),
        ("MatMul", {}, [np.ones((4, 4), np.float32)]),
        ("Cast", {"to": 0}, []),
        ("And", {}, [np.ones((3,), bool)]),
        ("Gather", {}, [np.float32([0.0])]),
    ],
)
def test_nodes_that_contradict_their_inputs(
    op: str, attrs: dict[str, Any], constants: list[np.ndarray]
) -> None:
    names = [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(op, ["x", *names], ["y"], name="bad", **attrs)
    given = [numpy_helper.from_array(a, n) for a, n in zip(constants, names, strict=True)]
    with pytest.raises(WeftError) as caught:
        from_onnx(make_model([node], initializers=given))
    assert "bad" in str(caught.value), str(caught.value)
