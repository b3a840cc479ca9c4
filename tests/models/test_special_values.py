"""NaN and infinity among the weights, and tensors without elements, through the whole compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import weft
from weft.frontend.onnx import from_onnx
from weft.transform.analysis.reference import evaluate

node = helper.make_node
LEVELS = (0, 3)


def make_model(
    nodes: Sequence[NodeProto], shapes: dict[str, Sequence[int]], weights: dict[str, np.ndarray]
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "special",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def check(model: ModelProto, *inputs: np.ndarray) -> np.ndarray:
    """Compiled code at both ends of the scale against the interpreter; NaN equals NaN."""
    with np.errstate(all="ignore"):
        expected = np.asarray(evaluate(from_onnx(model), list(inputs)))
    for level in LEVELS:
        actual = weft.compile(model, opt_level=level)(*inputs)
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    return expected


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32)


def conv_bn_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.uniform(0.1, 1, (32, 16, 3, 3)).astype(np.float32),
        "scale": np.ones(32, np.float32),
        "shift": np.zeros(32, np.float32),
        "mean": np.zeros(32, np.float32),
        "variance": np.ones(32, np.float32),
    }


CONV_BN = (
    node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
    node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
    node("Relu", ["n"], ["y"]),
)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["w", "shift", "mean", "variance"])
def test_one_channel_of_a_convolution(name: str, value: float) -> None:
    """The channel of the weight is affected, through folding and packing, and no other."""
    weights = conv_bn_weights()
    weights[name][5] = value
    model = make_model(CONV_BN, {"x": (1, 16, 6, 6)}, weights)
    result = check(model, image(1, 16, 6, 6))
    assert np.isfinite(np.delete(result, 5, axis=1)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_stays_in_its_channel(value: float) -> None:
    """Infinity becomes NaN where normalisation is one multiplication and one addition."""
    weights = conv_bn_weights()
    weights["scale"][5] = value
    x = image(1, 16, 6, 6)
    result = weft.compile(make_model(CONV_BN, {"x": x.shape}, weights))(x)
    weights["scale"][5] = 1
    finite = weft.compile(make_model(CONV_BN, {"x": x.shape}, weights))(x)
    assert np.isnan(result[:, 5]).all()
    # A scale that is not finite stays outside of the weights, which rounds the others elsewhere.
    np.testing.assert_allclose(np.delete(result, 5, axis=1), np.delete(finite, 5, axis=1),
                               rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_weight_of_a_matrix_product(value: float) -> None:
    weight = np.random.default_rng(0).uniform(0.1, 1, (40, 24)).astype(np.float32)
    weight[3, 7] = value
    nodes = [node("Gemm", ["x", "w"], ["g"], transB=1), node("Relu", ["g"], ["y"])]
    result = check(make_model(nodes, {"x": (4, 24)}, {"w": weight}), image(4, 24))
    assert np.isfinite(np.delete(result, 3, axis=1)).all()
    assert not np.isfinite(result[:, 3]).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
@pytest.mark.parametrize("op", ["Add", "Mul", "Div", "Sub", "Max", "Min", "Pow"])
def test_constant_operands(op: str, value: float) -> None:
    """Also where a rule would like to drop them: 0 * NaN is no 0."""
    model = make_model([node(op, ["x", "c"], ["y"])], {"x": (6,)}, {"c": np.float32([value])})
    check(model, np.float32([0, 1, -1, np.inf, -np.inf, np.nan]))


def test_a_softmax_over_infinities() -> None:
    model = make_model([node("Softmax", ["x"], ["y"], axis=-1)], {"x": (3, 4)}, {})
    x = np.float32([[0, -np.inf, 1, 2], [np.nan, 1, 2, 3], [5, 5, 5, 5]])
    result = check(model, x)
    assert result[0, 1] == 0
    assert np.isnan(result[1]).all()


EMPTY_BATCH = {
    "convolution": (CONV_BN, (0, 16, 6, 6), conv_bn_weights()),
    "pool": ([node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], (0, 4, 6, 6), {}),
    "average": ([node("GlobalAveragePool", ["x"], ["y"])], (0, 4, 6, 6), {}),
    "gemm": ([node("Gemm", ["x", "w"], ["y"])], (0, 8), {"w": np.ones((8, 16), np.float32)}),
    "softmax": ([node("Softmax", ["x"], ["y"], axis=-1)], (0, 4), {}),
    "sum": ([node("ReduceSum", ["x"], ["y"], keepdims=0)], (0, 4), {}),
    "transpose": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], (0, 4), {}),
    "chain": ([node("Exp", ["x"], ["e"]), node("Add", ["e", "x"], ["y"])], (3, 0, 2), {}),
    "concat": ([node("Concat", ["x", "c"], ["y"], axis=0)], (0, 4),
               {"c": np.ones((2, 4), np.float32)}),
    "inner": ([node("MatMul", ["x", "w"], ["y"])], (3, 0), {"w": np.ones((0, 5), np.float32)}),
    "flatten": ([node("Flatten", ["x"], ["y"])], (0, 4, 5), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY_BATCH)
def test_dimensions_of_size_zero(name: str) -> None:
    nodes, shape, weights = EMPTY_BATCH[name]
    check(make_model(nodes, {"x": shape}, weights), np.zeros(shape, np.float32))


def test_an_empty_product_is_zero() -> None:
    """A sum over nothing, and not what happened to be in memory."""
    nodes, shape, weights = EMPTY_BATCH["inner"]
    result = weft.compile(make_model(nodes, {"x": shape}, weights))(np.zeros(shape, np.float32))
    np.testing.assert_array_equal(result, np.zeros((3, 5)))


def test_a_size_of_zero_given_to_compile() -> None:
    nodes, shape, weights = EMPTY_BATCH["convolution"]
    model = make_model(nodes, {"x": ("n", *shape[1:])}, weights)  # type: ignore[dict-item]
    module = weft.compile(model, inputs={"x": shape})
    assert module(np.zeros(shape, np.float32)).shape == (0, 32, 6, 6)
