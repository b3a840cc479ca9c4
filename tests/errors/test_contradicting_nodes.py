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


def _floats(name: str, *shape: int) -> Any:
    return weight(*shape, name=name)


def _numbers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


# Operator -> shape of x, other inputs, attributes, and a part of the message.
_CONTRADICTIONS = {
    "LSTM": ((5, 2, 3), [_floats("w", 1, 16, 3), _floats("r", 1, 16, 4)], {"hidden_size": 7},
             "hidden_size differs"),
    "GRU": ((5, 2, 3), [_floats("w", 1, 12, 3), _floats("r", 1, 12, 4)], {"hidden_size": 5},
            "hidden_size differs"),
    "RNN": ((5, 2, 3), [_floats("w", 1, 4, 3), _floats("r", 1, 4, 4)],
            {"direction": "bidirectional", "hidden_size": 4}, "the shape of W does not fit"),
    "RNN rows": ((5, 2, 3), [_floats("w", 1, 5, 3), _floats("r", 1, 4, 4)], {}, "shape of W"),
    "LSTM bias": ((5, 2, 3), [_floats("w", 1, 16, 3), _floats("r", 1, 16, 4),
                              _floats("b", 1, 16)], {}, "shape of B"),
    "LSTM activations": ((5, 2, 3), [_floats("w", 1, 16, 3), _floats("r", 1, 16, 4)],
                         {"activations": ["Tanh"]}, "number of activations"),
    "Conv": ((1, 3, 8, 8), [weight(6, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "pads": [1] * 4},
             "both auto_pad and pads"),
    "ConvTranspose": ((1, 3, 8, 8), [weight(3, 6, 3, 3)], {"kernel_shape": [2, 2]},
                      "kernel_shape differs"),
    "ConvTranspose extra": ((1, 3, 8, 8), [weight(3, 6, 3, 3)], {"output_padding": [5, 5]},
                            "output_padding is too large"),
    "ConvTranspose shape": ((1, 3, 8, 8), [weight(3, 6, 3, 3)], {"output_shape": [9]},
                            "'output_shape' does not match"),
    "LpPool": ((1, 3, 8, 8), [], {"kernel_shape": [2, 2], "p": 0}, "p is too small"),
    "Pad": ((3, 3), [_numbers("pads", 1, 1, 1, 1), weight(name="fill"), _numbers("axes", 0, -2)],
            {}, "an axis is given twice"),
    "Resize": ((1, 1, 4, 4), [_floats("roi", 0), _floats("scales", 4), _numbers("s", 1, 1, 4, 4)],
               {}, "both scales and sizes"),
    "Resize axes": ((1, 1, 4, 4), [_floats("roi", 0), _floats("scales", 2)], {"axes": [2, -2]},
                    "an axis is given twice"),
    "Gemm": ((2, 3), [weight(3, 4), _floats("c", 2, 2, 4)], {}, "C does not broadcast"),
    "OneHot": ((2,), [numpy_helper.from_array(np.array(3), "d"), _floats("v", 3)], {},
               "not a pair"),
    "ReverseSequence": ((4, 4), [_numbers("n", 1, 2, 3, 4)], {"batch_axis": 1, "time_axis": 1},
                        "invalid axes"),
    "Split": ((6, 2), [_numbers("s", 3, 3)], {"num_outputs": 3}, "num_outputs differs"),
}


@pytest.mark.parametrize("case", sorted(_CONTRADICTIONS))
def test_what_a_node_states_twice_agrees(case: str) -> None:
    shape, others, attrs, what = _CONTRADICTIONS[case]
    inputs = ["x", *(t.name for t in others)]
    outputs = ["y", "z"] if case == "Split" else ["y"]
    node = helper.make_node(case.partition(" ")[0], inputs, outputs, **attrs)
    model = make_model([node], inputs=[("x", shape)], initializers=others, opset=19)
    assert what in error_of(lambda: from_onnx(model), InvalidModelError).what
