"""Single kernels as small ONNX models, with the bytes and operations that one call needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.agreement import TOLERANCE
from benchmarks.models import GraphBuilder

Shape = Sequence[int]
Body = Callable[[GraphBuilder], str]


@dataclass(frozen=True)
class Kernel:
    """A kernel as an ONNX model, or as one of another format that the benchmark knows.

    ``flops`` counts a multiply-add as two operations.
    ``passes`` multiplies the traffic of a model that is a chain of equal layers; ``tolerance`` is
    relative to the largest number of an output.
    """

    name: str
    build: Callable[[], Any]
    flops: float = 0.0
    passes: int = 1
    tolerance: float = TOLERANCE


def _model(name: str, inputs: Sequence[Shape], body: Body) -> onnx.ModelProto:
    builder = GraphBuilder(name, inputs[0], seed=7)
    output = body(builder)
    names = ["x", *(f"x{i}" for i in range(1, len(inputs)))]
    kind = TensorProto.INT64 if builder.nodes[-1].op_type == "ArgMax" else TensorProto.FLOAT
    graph = helper.make_graph(
        builder.nodes, name,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
         for n, s in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info(output, kind, None)],
        builder.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _kernel(name: str, inputs: Shape | Sequence[Shape], body: Body, *, flops: float = 0.0,
            passes: int = 1) -> Kernel:
    shapes = [inputs] if isinstance(inputs[0], int) else inputs
    return Kernel(name, lambda: _model("kernel", shapes, body), flops, passes)  # type: ignore[arg-type]


def traffic(model: onnx.ModelProto, feeds: dict[str, np.ndarray],
            outputs: Sequence[np.ndarray]) -> int:
    """Bytes of all inputs, weights and outputs; of a gathered table, only the rows read."""
    gathers = any(node.op_type == "Gather" for node in model.graph.node)
    moved = sum(array.nbytes for array in outputs)
    weights = sum(numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
    read = moved if gathers else weights + sum(array.nbytes for array in feeds.values())
    return moved + read


def _gelu(g: GraphBuilder) -> str:
    scaled = g.node("Div", "x", g.array(np.float32(math.sqrt(2))))
    erf = g.node("Add", g.node("Erf", scaled), g.array(np.float32(1)))
    return g.node("Mul", g.node("Mul", "x", erf), g.array(np.float32(0.5)))


def _layer_norm(width: int) -> Body:
    def body(g: GraphBuilder) -> str:
        gamma = g.array(g.rng.uniform(0.5, 1.5, width).astype(np.float32))
        beta = g.array(g.rng.uniform(-0.5, 0.5, width).astype(np.float32))
        return g.node("LayerNormalization", "x", gamma, beta, axis=-1, epsilon=1e-5)
    return body


def _add_relu(operands: int) -> Body:
    def body(g: GraphBuilder) -> str:
        value = "x"
        for i in range(1, operands):
            value = g.node("Relu", g.node("Add", value, f"x{i}"))
        return value
    return body


def _chain(g: GraphBuilder) -> str:
    return g.node("Mul", g.node("Sigmoid", g.node("Tanh", "x")), "x")


def _op(name: str, **attrs: object) -> Body:
    return lambda g: g.node(name, "x", **attrs)


def _reduce_sum(*axes: int) -> Body:
    return lambda g: g.node("ReduceSum", "x", g.array(np.array(axes, np.int64)), keepdims=0)


def _blocked(shape: Shape, block: int) -> Body:
    """NCHW to channels in blocks, by Reshape and Transpose."""
    n, c, h, w = shape

    def body(g: GraphBuilder) -> str:
        sizes = g.array(np.array([n, c // block, block, h, w], np.int64))
        return g.node("Transpose", g.node("Reshape", "x", sizes), perm=[0, 1, 3, 4, 2])
    return body


def _pad(g: GraphBuilder) -> str:
    return g.node("Pad", "x", g.array(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)))


def _slice(g: GraphBuilder) -> str:
    starts, ends = ([0, 3, 2], [64, 53, 54])
    arrays = [g.array(np.array(v, np.int64)) for v in (starts, ends, [1, 2, 3])]
    return g.node("Slice", "x", *arrays)


def _gather(g: GraphBuilder) -> str:
    return g.node("Gather", "x", g.array(g.rng.integers(0, 30522, 512)), axis=0)


def _expand(g: GraphBuilder) -> str:
    return g.node("Expand", "x", g.array(np.array([1, 64, 56, 56], np.int64)))


def _batch_norm(channels: int) -> Body:
    def body(g: GraphBuilder) -> str:
        draws = [g.rng.uniform(low, high, channels).astype(np.float32)
                 for low, high in ((0.8, 1.2), (-0.1, 0.1), (-0.1, 0.1), (0.8, 1.2))]
        y = g.node("BatchNormalization", "x", *map(g.array, draws), epsilon=1e-5)
        return g.node("Relu", y)
    return body


def _depthwise(channels: int, kernel: int, strides: Sequence[int]) -> Body:
    def body(g: GraphBuilder) -> str:
        y = "x"
        for stride in strides:
            weight = g.weight((channels, 1, kernel, kernel), kernel * kernel)
            y = g.node("Conv", y, weight, kernel_shape=[kernel, kernel],
                       strides=[stride, stride], pads=[kernel // 2] * 4, group=channels)
        return y
    return body


def _depthwise_kernel(channels: int, size: int, kernel: int, stride: int) -> Kernel:
    layers = 8 if stride == 1 else 1
    flops = 2.0 * channels * kernel * kernel * (size // stride) ** 2 * layers
    name = f"depthwise{kernel}x{kernel}/{stride} {channels}@{size}" + (" x8" if layers > 1 else "")
    return _kernel(name, (1, channels, size, size),
                   _depthwise(channels, kernel, [stride] * layers), flops=flops, passes=layers)


MILLIONS = (4096, 4096)
IMAGE = (1, 64, 56, 56)

KERNELS: list[Kernel] = [
    _kernel("softmax 12x128x128", (12, 128, 128), _op("Softmax", axis=-1)),
    _kernel("softmax 1x1000", (1, 1000), _op("Softmax", axis=-1)),
    _kernel("softmax 64x50257", (64, 50257), _op("Softmax", axis=-1)),
    _kernel("log softmax 128x1000", (128, 1000), _op("LogSoftmax", axis=-1)),
    _kernel("layer norm 128x768", (128, 768), _layer_norm(768)),
    _kernel("layer norm 197x1003", (197, 1003), _layer_norm(1003)),
    _kernel("gelu 128x3072", (128, 3072), _gelu),
    _kernel("tanh 1M", (1024, 1024), _op("Tanh")),
    _kernel("sigmoid 1M", (1024, 1024), _op("Sigmoid")),
    _kernel("exp 1M", (1024, 1024), _op("Exp")),
    _kernel("x sigmoid(tanh x) 1M", (1024, 1024), _chain),
    _kernel("relu 100k", (100_003,), _op("Relu")),
    _kernel("add relu 64 MB", [MILLIONS] * 2, _add_relu(2)),
    _kernel("add relu x4 64 MB", [MILLIONS] * 5, _add_relu(5)),
    _kernel("batch norm relu 64@112", (1, 64, 112, 112), _batch_norm(64)),
    _kernel("sum 64 MB", MILLIONS, _reduce_sum(0, 1)),
    _kernel("sum rows 64 MB", MILLIONS, _reduce_sum(1)),
    _kernel("sum columns 64 MB", MILLIONS, _reduce_sum(0)),
    _kernel("sum rows 1003x517", (1003, 517), _reduce_sum(1)),
    _kernel("max rows 128x768", (128, 768), _op("ReduceMax", axes=[1], keepdims=0)),
    _kernel("mean HW 256@56", (1, 256, 56, 56), _op("ReduceMean", axes=[2, 3], keepdims=0)),
    _kernel("global average 2048@7", (1, 2048, 7, 7), _op("GlobalAveragePool")),
    _kernel("argmax 64x1000", (64, 1000), _op("ArgMax", axis=1, keepdims=0)),
    _kernel("argmax 1x50257", (1, 50257), _op("ArgMax", axis=1, keepdims=0)),
    _kernel("transpose 4096x4096", MILLIONS, _op("Transpose", perm=[1, 0])),
    _kernel("transpose 513x771", (513, 771), _op("Transpose", perm=[1, 0])),
    _kernel("transpose heads 128x12x64", (1, 128, 12, 64), _op("Transpose", perm=[0, 2, 1, 3])),
    _kernel("transpose keys 128x12x64", (1, 128, 12, 64), _op("Transpose", perm=[0, 2, 3, 1])),
    _kernel("NCHW to NHWC 64@56", IMAGE, _op("Transpose", perm=[0, 2, 3, 1])),
    _kernel("NHWC to NCHW 64@56", (1, 56, 56, 64), _op("Transpose", perm=[0, 3, 1, 2])),
    _kernel("NCHW to NHWC 3@224", (1, 3, 224, 224), _op("Transpose", perm=[0, 2, 3, 1])),
    _kernel("NHWC to NCHW 3@224", (1, 224, 224, 3), _op("Transpose", perm=[0, 3, 1, 2])),
    _kernel("NCHW to NCHW16c 64@56", IMAGE, _blocked(IMAGE, 16)),
    _kernel("NCHW to NCHW16c 256@14", (1, 256, 14, 14), _blocked((1, 256, 14, 14), 16)),
    _kernel("concat 4x64@28", [(1, 64, 28, 28)] * 4,
            lambda g: g.node("Concat", "x", "x1", "x2", "x3", axis=1)),
    _kernel("concat columns 256x(300,513)", [(256, 300), (256, 513)],
            lambda g: g.node("Concat", "x", "x1", axis=1)),
    _kernel("pad 64@56", IMAGE, _pad),
    _kernel("slice 64@56", IMAGE, _slice),
    _kernel("gather 512 rows of 768", (30522, 768), _gather),
    _kernel("broadcast channels 64@56", (1, 64, 1, 1), _expand),
    _kernel("add bias 64@56", [IMAGE, (1, 64, 1, 1)], lambda g: g.node("Add", "x", "x1")),
    _kernel("max pool 3x3/2 64@112", (1, 64, 112, 112),
            _op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
    _kernel("max pool 2x2/2 64@56", IMAGE, _op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])),
    _kernel("average pool 3x3 64@56", IMAGE,
            _op("AveragePool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])),
    _kernel("lrn 96@55", (1, 96, 55, 55), _op("LRN", size=5, alpha=1e-4, beta=0.75, bias=1.0)),
    *(
        _depthwise_kernel(*shape)
        for shape in ((32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 3, 2),
                      (192, 28, 3, 1), (384, 14, 3, 1), (576, 14, 3, 2), (960, 7, 3, 1),
                      (96, 28, 5, 1))
    ),
]
