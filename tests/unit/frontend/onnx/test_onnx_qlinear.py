"""onnxruntime's own operators on quantised numbers, and models that its quantiser writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.contrib_cases import DOMAIN, contrib_model

KINDS = ("uint8", "int8")
Arrays = Sequence[np.ndarray | None]


def assert_agrees(op: str, arrays: Arrays, *, constant: Sequence[int] | None = None,
                  result: str | None = None, **attrs: Any) -> None:
    """Shapes and dtypes of onnxruntime, and its values to one step of the quantisation."""
    kind = result or next(a.dtype.name for a in arrays if a is not None and a.dtype != bool
                          and a.dtype.itemsize == 1)
    if constant is None:  # scales and zero points
        constant = [i for i, a in enumerate(arrays) if a is not None and a.ndim == 0]
    model, feeds = contrib_model(op, arrays, outputs=(f"y:{kind}",), constant=constant, **attrs)
    (expected,) = run_onnxruntime(model, feeds, optimized=False)
    actual = weft.compile(model)(*feeds.values())
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if kind.endswith("int8"):
        assert np.abs(actual.astype(int) - expected.astype(int)).max(initial=0) <= 1
        assert (actual != expected).mean() < 0.2 or actual.size < 8
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def stored(kind: str, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(kind)
    rng = np.random.default_rng(seed + sum(shape))
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def zero(kind: str, value: int = 3) -> np.ndarray:
    return np.array(value, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("op", "attrs", "step"), [
    ("QLinearSigmoid", {}, 1 / 256), ("QLinearLeakyRelu", {"alpha": 0.3}, 0.03),
    ("QLinearSoftmax", {"axis": -1, "opset": 13}, 1 / 256),
    ("QLinearSoftmax", {"axis": 1, "opset": 11}, 1 / 256),
    ("QLinearSoftmax", {"axis": 1, "opset": 13}, 1 / 256),
])  # fmt: skip
def test_of_one_tensor(op: str, attrs: dict[str, Any], step: float, kind: str) -> None:
    x = stored(kind, 2, 3, 5)
    point = zero(kind, 5 if op == "QLinearLeakyRelu" else np.iinfo(kind).min)
    assert_agrees(op, [x, scale(0.03), zero(kind), scale(step), point], **attrs)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["QLinearGlobalAveragePool", "QLinearAveragePool"])
def test_pools(op: str, kind: str, last: int) -> None:
    x = stored(kind, 2, 3, 6, 5)
    operands = [x, scale(0.03), zero(kind), scale(0.0213), zero(kind, 7)]
    if op == "QLinearGlobalAveragePool":
        assert_agrees(op, operands, channels_last=last)
        return
    for pads, counted in (([0, 0, 0, 0], 0), ([1, 1, 1, 1], 0), ([1, 0, 1, 1], 1)):
        shape = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": pads}
        assert_agrees(op, operands, channels_last=last, count_include_pad=counted, **shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1))])
def test_of_two_tensors(op: str, shapes: tuple[tuple[int, ...], ...], kind: str) -> None:
    a, b = (stored(kind, *s, seed=i) for i, s in enumerate(shapes))
    step = 0.05 if op == "QLinearAdd" else 0.11
    assert_agrees(op, [a, scale(0.03), zero(kind), b, scale(0.05), zero(kind, 1), scale(step),
                       zero(kind, 2)])  # fmt: skip


@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearAdd", "QLinearMul"])
def test_zero_points_may_be_left_out(op: str) -> None:
    """They are 0 then; onnxruntime refuses such nodes, or ends the process."""
    x, y, none = stored("uint8", 2, 4), stored("uint8", 2, 4, seed=1), zero("uint8", 0)
    results = []
    for point in (None, none):
        parts = [x, scale(0.003), point, y, scale(0.05), point]
        if op == "QLinearSigmoid":
            parts = parts[:3]
        arrays = [*parts, scale(1 / 200 if op == "QLinearSigmoid" else 0.06), point]
        fixed = [i for i, a in enumerate(arrays) if a is not None and a.ndim == 0]
        model, feeds = contrib_model(op, arrays, outputs=("y:uint8",), constant=fixed)
        results.append(weft.compile(model)(*feeds.values()))
    np.testing.assert_array_equal(*results)
    assert len(np.unique(results[0])) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_mean_over_axes(kind: str) -> None:
    """onnxruntime has no kernel for it on CPUs."""
    x = stored(kind, 2, 3, 5)
    arrays = [x, scale(0.03), zero(kind), scale(0.0213), zero(kind, 5)]
    model, feeds = contrib_model("QLinearReduceMean", arrays, outputs=(f"y:{kind}",),
                                 constant=[1, 2, 3, 4], axes=[1, 2], keepdims=0)
    steps = np.round((x.astype(float) - 3).mean((1, 2)) * 0.03 / 0.0213) + 5
    expected = np.clip(steps, np.iinfo(kind).min, np.iinfo(kind).max)
    np.testing.assert_array_equal(weft.compile(model)(*feeds.values()), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_where_and_concat(kind: str) -> None:
    a, b = stored(kind, 2, 3), stored(kind, 2, 3, seed=1)
    condition = np.array([[True, False, True], [False, True, True]])
    ends = [scale(0.05), zero(kind, 4)]
    parts = [a, scale(0.03), zero(kind), b, scale(0.04), zero(kind, 1)]
    assert_agrees("QLinearWhere", [condition, *parts, *ends])
    assert_agrees("QLinearConcat", [*ends, *parts], axis=1, result=kind)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"transB": 1}, {"transA": 1, "alpha": 0.5}])
def test_qgemm(kinds: tuple[str, str], per_column: bool, real: bool, attrs: dict[str, Any]) -> None:
    a, b = stored(kinds[0], 4, 7), stored(kinds[1], 7, 5)
    a = np.ascontiguousarray(a.T) if attrs.get("transA") else a
    b = np.ascontiguousarray(b.T) if attrs.get("transB") else b
    steps = np.linspace(0.02, 0.04, 5, dtype=np.float32) if per_column else scale(0.03)
    points = np.zeros(5, kinds[1]) if per_column else zero(kinds[1], 2)
    bias = stored("int8", 5).astype(np.int32) * 40
    ends = [] if real else [scale(0.6), zero(kinds[0], 9)]
    arrays = [a, scale(0.02), zero(kinds[0]), b, steps, points, bias, *ends]
    assert_agrees("QGemm", arrays, constant=[1, 2, 3, 4, 5, 6, 7, 8],
                  result="float32" if real else kinds[0], **attrs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
def test_products_with_real_results(kind: str, bias: bool) -> None:
    a, b = stored("uint8", 2, 3, 7), stored(kind, 7, 5)
    shift = np.linspace(-1, 1, 5, dtype=np.float32) if bias else None
    assert_agrees("MatMulIntegerToFloat",
                  [a, b, scale(0.02), scale(0.03), zero("uint8"), zero(kind, 1), shift],
                  result="float32")
    x = np.random.default_rng(0).uniform(-2, 3, (2, 3, 7)).astype(np.float32)
    for values in (x, np.abs(x), -np.abs(x), np.zeros_like(x)):
        assert_agrees("DynamicQuantizeMatMul", [values, b, scale(0.03), zero(kind, 1), shift],
                      result="float32")


class Samples(CalibrationDataReader):
    """A few draws of the input ``x`` for the calibration of a model."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(0)
        draws = [rng.standard_normal(shape).astype(np.float32) for _ in range(4)]
        self.rows: Iterator[dict[str, np.ndarray]] = iter([{"x": d} for d in draws])

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        return next(self.rows, None)


def _weights(**shapes: tuple[int, ...]) -> list[TensorProto]:
    rng = np.random.default_rng(1)
    drawn = {n: rng.standard_normal(s) / np.sqrt(max(s[-1], 4)) for n, s in shapes.items()}
    return [numpy_helper.from_array(a.astype(np.float32), n) for n, a in drawn.items()]


def _graph(nodes: list[onnx.NodeProto], shape: tuple[int, ...], weights: list[TensorProto]
           ) -> ModelProto:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def convolutional() -> ModelProto:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "w2"], ["d"], pads=[1, 1, 1, 1]), node("Sigmoid", ["d"], ["s"]),
        node("Mul", ["d", "s"], ["e"]), node("Add", ["e", "c"], ["f"]),
        node("LeakyRelu", ["f"], ["g"], alpha=0.1), node("Concat", ["g", "c"], ["h"], axis=1),
        node("AveragePool", ["h"], ["i"], kernel_shape=[2, 2]),
        node("GlobalAveragePool", ["i"], ["j"]), node("Flatten", ["j"], ["k"]),
        node("Gemm", ["k", "w3", "b3"], ["l"], transB=1), node("Softmax", ["l"], ["y"], axis=-1),
    ]  # fmt: skip
    weights = _weights(w1=(8, 3, 3, 3), b1=(8,), w2=(8, 8, 3, 3), w3=(10, 16), b3=(10,))
    return _graph(nodes, (1, 3, 8, 8), weights)


def transformer() -> ModelProto:
    node = helper.make_node
    nodes = []
    for name in "qkv":
        nodes += [node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
                  node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
                  node("Transpose", [f"{name}1"], [name],
                       perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [
        node("MatMul", ["q", "k"], ["score"]), node("Mul", ["score", "half"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "whole"], ["flat"]), node("MatMul", ["flat", "wo"], ["out"]),
        node("Add", ["out", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "g", "b"], ["norm"], axis=-1),
        node("MatMul", ["norm", "w1"], ["up"]), node("Relu", ["up"], ["act"]),
        node("MatMul", ["act", "w2"], ["down"]), node("Add", ["down", "norm"], ["y"]),
    ]  # fmt: skip
    square = {f"w{n}": (16, 16) for n in "qkvo"}
    weights = _weights(**square, g=(16,), b=(16,), w1=(16, 32), w2=(32, 16))
    fixed = {"heads": np.array([1, 6, 4, 4]), "whole": np.array([1, 6, 16]),
             "half": np.array(0.5, np.float32)}
    weights += [numpy_helper.from_array(a, n) for n, a in fixed.items()]
    return _graph(nodes, (1, 6, 16), weights)


@pytest.mark.sample(0.2, 2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [QuantFormat.QOperator, QuantFormat.QDQ], ids=["qop", "qdq"])
@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt8], ids=KINDS)
@pytest.mark.parametrize("make", [convolutional, transformer])
def test_models_of_the_static_quantiser(
    make: Any, kind: QuantType, form: QuantFormat, tmp_path: Path
) -> None:
    model = make()
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    source, target = tmp_path / "float.onnx", tmp_path / "stored.onnx"
    onnx.save(model, source)
    quantize_static(source, target, Samples(shape), quant_format=form, activation_type=kind,
                    weight_type=QuantType.QInt8, per_channel=make is convolutional)
    written = onnx.load(target)
    if form is QuantFormat.QOperator:
        assert any(n.domain == DOMAIN for n in written.graph.node)
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    (expected,) = run_onnxruntime(written, {"x": x}, optimized=False)
    (exact,) = run_onnxruntime(model, {"x": x}, optimized=False)
    # Sums that fall between two steps may be rounded to either; layers pass that on.
    step = np.abs(expected - exact).max()
    for level in (0, 3):
        actual = weft.compile(written, opt_level=level)(x)
        assert np.abs(actual - expected).max() <= 0.35 * step + 1e-6
