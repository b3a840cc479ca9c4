"""ONNX models with QuantizeLinear and DequantizeLinear around their operators run on bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.frontend.source import open_source
from weft.ir.expr import Call, Function
from weft.ir.visitor import post_order
from weft.strategy import lower_function
from weft.target import Target

ANCHORS = ("nn.conv2d", "nn.dense", "nn.batch_matmul")


@dataclass
class Builder:
    """A quantised model from its input "x" on; values are named by numbers."""

    rng: np.random.Generator
    activation: type = np.uint8
    weight: type = np.int8
    per_channel: bool = True
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attrs))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def through(self, value: str, scale: float = 0.05) -> str:
        """Quantised and dequantised."""
        ends = np.iinfo(self.activation)
        zero = self.rng.integers(ends.min, ends.max, endpoint=True, dtype=self.activation)
        parameters = [self.constant(np.float32(scale)), self.constant(self.activation(zero))]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", value, *parameters),
                         *parameters)

    def stored(self, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray]:
        """Dequantised weights, and their scales."""
        ends = np.iinfo(self.weight)
        values = self.rng.integers(ends.min, ends.max, shape, self.weight, endpoint=True)
        many = self.per_channel
        scale = self.rng.uniform(1e-3, 4e-3, shape[axis] if many else ()).astype(np.float32)
        zero = np.full(scale.shape, 0 if self.weight is np.int8 else 128, self.weight)
        return self.node("DequantizeLinear", self.constant(values), self.constant(scale),
                         self.constant(zero), **({"axis": axis} if many else {})), scale

    def conv(self, value: str, inputs: int, outputs: int, taps: int, **attrs: object) -> str:
        weight, scale = self.stored((outputs, inputs, taps, taps), 0)
        bias_scale = np.broadcast_to(scale * np.float32(0.05), (outputs,))
        bias = self.rng.integers(-2000, 2000, outputs, np.int32)
        if not self.per_channel:
            bias_scale = bias_scale[0]
        stored = self.node("DequantizeLinear", self.constant(bias), self.constant(bias_scale),
                           self.constant(np.zeros(np.shape(bias_scale), np.int32)),
                           **({"axis": 0} if self.per_channel else {}))
        return self.node("Conv", value, weight, stored, **attrs)

    def model(self, result: str, shape: tuple[int, ...]) -> ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "quantised", [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def as_floats(model: ModelProto, x: np.ndarray) -> np.ndarray:
    """What onnxruntime gives, operator by operator in float32."""
    (found,) = run_onnxruntime(model, {"x": x}, optimized=False)
    return found


def check(model: ModelProto, shape: tuple[int, ...], *, step: float, target: str | None = None,
          few: float = 0.02) -> None:
    """Results differ by at most one step of what is stored, and by none mostly."""
    x = np.random.default_rng(3).normal(0, 2, shape).astype(np.float32)
    expected = as_floats(model, x)
    (found,) = weft.compile(model, target=target).run(None, {"x": x})
    difference = np.abs(found - expected)
    assert difference.max(initial=0) <= 1.001 * step
    assert (difference > 0.5 * step).mean() <= few


def implementations(model: ModelProto, target: Target = WIDE_CPU) -> list[str]:
    options = CompileOptions.make(target)
    module = run_pipeline(open_source(model, None, options).import_module(options), options)
    return [lower_function(node.op, target).implementation
            for node in post_order(module["main"].body)
            if isinstance(node, Call) and isinstance(node.op, Function)]


def assert_products_of_bytes(model: ModelProto) -> None:
    chosen = [i for i in implementations(model) if i.startswith(ANCHORS)]
    assert chosen
    assert all("vpdpbusd" in i for i in chosen), chosen


TYPES = [(np.uint8, np.int8, True), (np.uint8, np.int8, False), (np.int8, np.int8, True),
         (np.uint8, np.uint8, False), (np.int8, np.uint8, False)]


CONVOLUTIONS = [
    (8, 16, 3, {"pads": [1, 1, 1, 1]}),
    (3, 5, 3, {"strides": [2, 2], "pads": [0, 1, 1, 0]}),
    (6, 20, 1, {}),
    (5, 7, 1, {"strides": [2, 1]}),
    (1, 1, 2, {"dilations": [2, 2]}),
]


@pytest.mark.sample(0.4)
@pytest.mark.parametrize(
    ("types", "convolution"),
    [*((types, CONVOLUTIONS[0]) for types in TYPES),
     *zip(TYPES[1:], CONVOLUTIONS[1:], strict=True)])
def test_convolution(types, convolution) -> None:
    inputs, outputs, taps, attrs = convolution
    b = Builder(np.random.default_rng(taps), *types)
    y = b.node("Relu", b.conv(b.through("x"), inputs, outputs, taps, **attrs))
    model = b.model(b.through(y, 0.07), (1, inputs, 9, 7))
    check(model, (1, inputs, 9, 7), step=0.07)
    assert_products_of_bytes(model)


def test_results_of_bytes_that_stay_real_are_dequantised() -> None:
    b = Builder(np.random.default_rng(0))
    y = b.node("Sigmoid", b.conv(b.through("x"), 4, 8, 3))
    model = b.model(y, (2, 4, 8, 8))
    assert_products_of_bytes(model)
    check(model, (2, 4, 8, 8), step=1e-4, few=0)


@pytest.mark.parametrize(("types", "rank"), [*((t, 3) for t in TYPES), (TYPES[0], 2)])
def test_dense_layer(types, rank) -> None:
    shape = (2, 5, 33)[-rank:]
    b = Builder(np.random.default_rng(rank), *types)
    matrix, _ = b.stored((33, 21), 1)
    y = b.node("Add", b.node("MatMul", b.through("x"), matrix),
               b.constant(b.rng.normal(size=21).astype(np.float32)))
    model = b.model(b.through(y, 0.06), shape)
    check(model, shape, step=0.06)
    assert_products_of_bytes(model)


@pytest.mark.parametrize("activation", [np.uint8, np.int8])
def test_attention(activation) -> None:
    """Both operands are activations, each with a zero point."""
    b = Builder(np.random.default_rng(0), activation)
    q = b.through("x", 0.05)
    k = b.node("Transpose", b.through("x", 0.04), perm=[0, 2, 1])
    scores = b.through(b.node("MatMul", q, k), 0.3)
    weights = b.through(b.node("Softmax", scores, axis=-1), 1 / 128)
    y = b.through(b.node("MatMul", weights, b.through("x", 0.05)), 0.03)
    model = b.model(y, (2, 9, 16))
    chosen = [i for i in implementations(model) if i.startswith("nn.batch_matmul")]
    assert len(chosen) == 2
    assert all("vpdpbusd" in i for i in chosen)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("seed", range(10))
def test_random_networks(seed) -> None:
    """Convolutions, residual sums, pools and shape changes, each quantised behind."""
    rng = np.random.default_rng(seed)
    activation, weight, per_channel = TYPES[seed % len(TYPES)]
    b = Builder(rng, activation, weight, per_channel)
    channels = int(rng.integers(1, 10))
    shape = (int(rng.integers(1, 3)), channels, int(rng.integers(4, 9)), int(rng.integers(4, 20)))
    value = b.through("x")
    kind = rng.choice(["conv", "grouped", "residual", "pool", "shape"])
    if kind == "grouped":
        value = b.conv(value, 1, channels, 3, pads=[1, 1, 1, 1], group=channels)
    elif kind == "residual":
        inner = b.through(b.conv(value, channels, channels, 3, pads=[1, 1, 1, 1]), 0.09)
        value = b.node("Relu", b.node("Add", inner, value))
    elif kind == "pool":
        value = b.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    elif kind == "shape":
        value = b.node("Reshape", b.node("Transpose", value, perm=[0, 2, 3, 1]),
                       b.constant(np.array([shape[0], -1], np.int64)))
    else:
        value = b.conv(value, channels, int(rng.integers(1, 40)), int(rng.integers(1, 4)))
    # The ratio of the scales makes no ties, which float32 breaks one way or the other.
    check(b.model(b.through(value, 0.0813), shape), shape, step=0.0813)


def test_storing_again_with_the_same_parameters_is_nothing() -> None:
    b = Builder(np.random.default_rng(0))
    parameters = [b.constant(np.float32(0.05)), b.constant(np.uint8(7))]
    value = "x"
    for perm in ([0, 2, 1], [2, 1, 0], [1, 0, 2]):
        value = b.node("QuantizeLinear", value, *parameters)
        value = b.node("Transpose", b.node("DequantizeLinear", value, *parameters), perm=perm)
    value = b.node("DequantizeLinear", b.node("QuantizeLinear", value, *parameters), *parameters)
    model = b.model(value, (4, 5, 6))
    options = CompileOptions.make(WIDE_CPU)
    module = run_pipeline(open_source(model, None, options).import_module(options), options,
                          stop_at="optimized")
    names = [str(n.op) for n in post_order(module["main"]) if isinstance(n, Call)]
    assert names.count("round") == 1
    check(model, (4, 5, 6), step=0, few=0)


def test_a_cpu_without_instructions_for_bytes_multiplies_floats() -> None:
    b = Builder(np.random.default_rng(0))
    model = b.model(b.through(b.conv(b.through("x"), 4, 8, 3)), (1, 4, 8, 8))
    check(model, (1, 4, 8, 8), step=0.05, target="llvm -mcpu=x86-64")
    options = CompileOptions.make("llvm -mcpu=x86-64")
    module = run_pipeline(open_source(model, None, options).import_module(options), options,
                          stop_at="canonical")
    (conv,) = [n for n in post_order(module["main"])
               if isinstance(n, Call) and str(n.op) == "nn.conv2d"]
    assert str(conv.checked_type.dtype) == "float32"


@pytest.mark.parametrize("types", [TYPES[0], TYPES[4]])
def test_haswell_multiplies_bytes_in_pairs(types) -> None:
    b = Builder(np.random.default_rng(0), *types)
    y = b.through(b.conv(b.through("x"), 6, 8, 3, pads=[1, 1, 1, 1]))
    matrix, _ = b.stored((9, 5), 1)
    model = b.model(b.through(b.node("MatMul", y, matrix)), (1, 6, 8, 9))
    check(model, (1, 6, 8, 9), step=0.05, target="llvm -mcpu=haswell")
    chosen = [i for i in implementations(model, SMALL_CPU)
              if i.startswith(ANCHORS)]
    assert len(chosen) == 2
    assert all("vpmaddwd" in i for i in chosen), chosen


def test_threads_do_not_change_a_bit() -> None:
    b = Builder(np.random.default_rng(0))
    model = b.model(b.through(b.conv(b.through("x"), 16, 32, 3)), (1, 16, 20, 20))
    x = np.random.default_rng(1).standard_normal((1, 16, 20, 20)).astype(np.float32)
    one, three = (weft.compile(model, threads=n)(x) for n in (1, 3))
    assert one.tobytes() == three.tobytes()
