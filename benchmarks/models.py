"""The benchmarked models, built as ONNX graphs with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class GraphBuilder:
    """Appends nodes to one ONNX graph; weights are He-scaled normal draws."""

    def __init__(self, name: str, input_shape: Sequence[int], seed: int = 0) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.input_shape = tuple(input_shape)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._count = 0

    def weight(self, shape: Sequence[int], fan_in: int) -> str:
        scale = np.sqrt(2.0 / fan_in)
        return self.array((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def bias(self, count: int, near: float = 0.0) -> str:
        """Numbers as of a trained model: a compiler leaves out zeros, and factors of one."""
        return self.array((near + 0.02 * self.rng.standard_normal(count)).astype(np.float32))

    def array(self, value: np.ndarray) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, *inputs: str, **attrs: object) -> str:
        self._count += 1
        out = f"t{self._count}"
        self.nodes.append(
            helper.make_node(op, list(inputs), [out], name=f"{op}_{self._count}", **attrs)
        )
        return out

    def conv_bn(self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1,
                groups: int = 1) -> str:
        """Convolution without bias, then batch normalisation with drawn statistics."""
        c_in, c_out = channels
        fan_in = c_in // groups * kernel * kernel
        w = self.weight((c_out, c_in // groups, kernel, kernel), fan_in)
        y = self.node("Conv", x, w, kernel_shape=[kernel, kernel], strides=[stride, stride],
                      pads=[kernel // 2] * 4, group=groups)
        uniform = [self.rng.uniform(0.8, 1.2, c_out), self.rng.uniform(-0.1, 0.1, c_out),
                   self.rng.uniform(-0.1, 0.1, c_out), self.rng.uniform(0.8, 1.2, c_out)]
        params = [self.array(u.astype(np.float32)) for u in uniform]
        return self.node("BatchNormalization", y, *params, epsilon=1e-5)

    def build(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input_shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def resnet50(batch: int = 1) -> onnx.ModelProto:
    """ResNet-50 v1.5 (stride in the 3x3 convolution), 224 x 224."""
    g = GraphBuilder("resnet50", (batch, 3, 224, 224))
    x = g.node("Relu", g.conv_bn("x", (3, 64), 7, 2))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    c_in = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(blocks):
            stride = first_stride if index == 0 else 1
            x = _bottleneck(g, x, c_in, width, stride)
            c_in = width * 4
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    weight, bias = g.weight((1000, 2048), 2048), g.bias(1000)
    x = g.node("Gemm", x, weight, bias, transB=1)
    return g.build(g.node("Softmax", x, axis=1))


def _bottleneck(g: GraphBuilder, x: str, c_in: int, width: int, stride: int) -> str:
    y = g.node("Relu", g.conv_bn(x, (c_in, width), 1))
    y = g.node("Relu", g.conv_bn(y, (width, width), 3, stride))
    y = g.conv_bn(y, (width, width * 4), 1)
    if stride != 1 or c_in != width * 4:
        x = g.conv_bn(x, (c_in, width * 4), 1, stride)
    return g.node("Relu", g.node("Add", y, x))


def mobilenet_v2(batch: int = 1) -> onnx.ModelProto:
    """MobileNetV2 1.0, 224 x 224."""
    g = GraphBuilder("mobilenet_v2", (batch, 3, 224, 224), seed=1)
    six = (g.array(np.float32(0)), g.array(np.float32(6)))

    def block(x: str, c_in: int, c_out: int, stride: int, expand: int) -> str:
        hidden = c_in * expand
        y = x
        if expand != 1:
            y = g.node("Clip", g.conv_bn(y, (c_in, hidden), 1), *six)
        y = g.node("Clip", g.conv_bn(y, (hidden, hidden), 3, stride, groups=hidden), *six)
        y = g.conv_bn(y, (hidden, c_out), 1)
        return g.node("Add", y, x) if stride == 1 and c_in == c_out else y

    x = g.node("Clip", g.conv_bn("x", (3, 32), 3, 2), *six)
    c_in = 32
    for expand, c_out, repeat, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):
        for index in range(repeat):
            x = block(x, c_in, c_out, stride if index == 0 else 1, expand)
            c_in = c_out
    x = g.node("Clip", g.conv_bn(x, (320, 1280), 1), *six)
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    weight, bias = g.weight((1000, 1280), 1280), g.bias(1000)
    return g.build(g.node("Gemm", x, weight, bias, transB=1))


def mlp(batch: int = 64) -> onnx.ModelProto:
    """784-512-512-10 with ReLU."""
    g = GraphBuilder("mlp", (batch, 784), seed=2)
    x, c_in = "x", 784
    for c_out in (512, 512, 10):
        bias = g.array(g.rng.uniform(-0.1, 0.1, c_out).astype(np.float32))
        x = g.node("Gemm", x, g.weight((c_out, c_in), c_in), bias, transB=1)
        if c_out != 10:
            x = g.node("Relu", x)
        c_in = c_out
    return g.build(x)


def matmul(m: int, n: int, k: int) -> onnx.ModelProto:
    """One matmul (m, k) x (k, n) of two inputs, without constants."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        f"matmul_{m}x{n}x{k}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (m, k)),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, (k, n))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (m, n))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


def conv_layer(c_in: int, c_out: int, kernel: int, stride: int, size: int,
               groups: int = 1) -> onnx.ModelProto:
    """One convolution with constant weights and ReLU, on an input (1, c_in, size, size)."""
    g = GraphBuilder("conv", (1, c_in, size, size), seed=3)
    w = g.weight((c_out, c_in // groups, kernel, kernel), c_in // groups * kernel * kernel)
    y = g.node("Conv", "x", w, kernel_shape=[kernel, kernel], strides=[stride, stride],
               pads=[kernel // 2] * 4, group=groups)
    return g.build(g.node("Relu", y))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "mlp": mlp,
}


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal draws for every input that is not an initializer; of bytes, uniform ones."""
    rng = np.random.default_rng(seed)
    names = {i.name for i in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name not in names:
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            drawn = (rng.integers(0, 256, shape) if dtype == np.uint8
                     else rng.standard_normal(shape).astype(np.float32))
            feeds[value.name] = drawn.astype(dtype)
    return feeds


def save(model: onnx.ModelProto, folder: Path, name: str) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path
