"""Random small models with QuantizeLinear and DequantizeLinear around every operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Build = Callable[["Chain", str], str]


class Chain:
    """A model while it grows: ``value`` names a real tensor behind its DequantizeLinear."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.signed = bool(self.rng.random() < 0.5)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.shapes[name] = shape
        return name

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.shapes[name] = shape
        return self.quantised(name, 4.0)

    def quantised(self, value: str, reach: float) -> str:
        """``value`` through a QuantizeLinear that holds about ``reach`` to both sides."""
        kind = np.int8 if self.signed else np.uint8
        scale = np.float32(reach / 127 * self.rng.uniform(0.7, 1.1))
        point = self.int(-9, 9) + (0 if self.signed else 128)
        ends = [self.constant(np.array(scale)), self.constant(np.array(point, kind))]
        shape = self.shapes[value]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [value, *ends], shape),
                                              *ends], shape)

    def weight(self, *shape: int, axis: int | None = None) -> str:
        """A stored int8 weight, with a scale for all or for each place along ``axis``."""
        stored = self.rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
        count = () if axis is None or self.rng.random() < 0.5 else (shape[axis],)
        scale = self.rng.uniform(0.003, 0.006, count).astype(np.float32)
        inputs = [self.constant(stored), self.constant(scale),
                  self.constant(np.zeros(count, np.int8))]
        return self.node("DequantizeLinear", inputs, shape, **({"axis": axis} if count else {}))

    def bias(self, count: int) -> str:
        return self.constant(self.rng.uniform(-1, 1, count).astype(np.float32))

    def model(self, output: str) -> ModelProto:
        values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
                  for n, s in self.inputs.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, self.shapes[output])
        graph = helper.make_graph(
            self.nodes, "chain", values, [result],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def conv(c: Chain, x: str) -> str:
    n, channels, height, width = c.shapes[x]
    groups = channels if c.rng.random() < 0.3 else 1
    outputs, taps, pad = channels * c.int(1, 2), c.int(1, 3), c.int(0, 1)
    pad = min(pad, taps - 1)
    w = c.weight(outputs, channels // groups, taps, taps, axis=0)
    bias = [c.bias(outputs)] if c.rng.random() < 0.5 else []
    sides = tuple(s + 2 * pad - taps + 1 for s in (height, width))
    y = c.node("Conv", [x, w, *bias], (n, outputs, *sides), pads=[pad] * 4, group=groups,
               kernel_shape=[taps, taps])
    if c.rng.random() < 0.5:
        y = c.node("Relu", [y], c.shapes[y])
    return c.quantised(y, 6.0)


def matmul(c: Chain, x: str) -> str:
    *lead, inner = c.shapes[x]
    columns = c.int(1, 9)
    y = c.node("MatMul", [x, c.weight(inner, columns, axis=1)], (*lead, columns))
    if c.rng.random() < 0.5:
        y = c.node("Add", [y, c.bias(columns)], c.shapes[y])
    return c.quantised(y, 6.0)


def matmul_of_two(c: Chain, x: str) -> str:
    """A product of activations, as in attention."""
    *lead, rows, inner = c.shapes[x]
    columns = c.int(1, 6)
    y = c.input(*lead, inner, columns)
    return c.quantised(c.node("MatMul", [x, y], (*lead, rows, columns)), 40.0)


def gemm(c: Chain, x: str) -> str:
    shape = c.shapes[x]
    flat = c.node("Flatten", [x], (shape[0], int(np.prod(shape[1:]))))
    columns, inner = c.int(1, 7), c.shapes[flat][1]
    w = c.weight(columns, inner, axis=0)
    y = c.node("Gemm", [flat, w, c.bias(columns)], (shape[0], columns), transB=1)
    return c.quantised(y, 12.0)


def combine(c: Chain, x: str) -> str:
    op = ("Add", "Mul")[c.int(0, 1)]
    other = x if c.rng.random() < 0.2 else c.input(*c.shapes[x])
    return c.quantised(c.node(op, [x, other], c.shapes[x]), 8.0)


def concat(c: Chain, x: str) -> str:
    shape = c.shapes[x]
    other = c.input(*shape)
    joined = (shape[0], 2 * shape[1], *shape[2:])
    return c.quantised(c.node("Concat", [x, other], joined, axis=1), 5.0)


def pool(c: Chain, x: str) -> str:
    op = ("MaxPool", "AveragePool", "GlobalAveragePool")[c.int(0, 2)]
    n, channels, height, width = c.shapes[x]
    if op == "GlobalAveragePool":
        return c.quantised(c.node(op, [x], (n, channels, 1, 1)), 2.0)
    y = c.node(op, [x], (n, channels, height - 1, width - 1), kernel_shape=[2, 2])
    return c.quantised(y, 4.0)


def elementwise(c: Chain, x: str) -> str:
    op = ("Relu", "Sigmoid", "LeakyRelu", "HardSwish")[c.int(0, 3)]
    return c.quantised(c.node(op, [x], c.shapes[x]), 1.0 if op == "Sigmoid" else 4.0)


def softmax(c: Chain, x: str) -> str:
    return c.quantised(c.node("Softmax", [x], c.shapes[x], axis=-1), 1.0)


def layer_norm(c: Chain, x: str) -> str:
    last = c.shapes[x][-1]
    scale, shift = (c.constant(c.rng.uniform(0.5, 1.5, last).astype(np.float32)) for _ in range(2))
    y = c.node("LayerNormalization", [x, scale, shift], c.shapes[x], axis=-1, epsilon=0.01)
    return c.quantised(y, 4.0)


def moved(c: Chain, x: str) -> str:
    order = c.rng.permutation(len(c.shapes[x])).tolist()
    shape = tuple(c.shapes[x][i] for i in order)
    return c.quantised(c.node("Transpose", [x], shape, perm=order), 4.0)


IMAGES: tuple[Build, ...] = (conv, conv, pool, combine, concat, elementwise, gemm)
ROWS: tuple[Build, ...] = (matmul, matmul, matmul_of_two, combine, elementwise, softmax, layer_norm,
                           moved)  # fmt: skip


def draw_chain(seed: int, length: int) -> ModelProto:
    """A model of ``length`` operators, over images or over rows of a matrix."""
    c = Chain(seed)
    over_images = c.rng.random() < 0.5
    size = c.int(3, 6)
    x = c.input(c.int(1, 2), c.int(1, 5), size, size) if over_images else \
        c.input(c.int(1, 2), c.int(2, 5), c.int(2, 9))
    for _ in range(length):
        if over_images and (len(c.shapes[x]) < 4 or c.shapes[x][-1] < 3):
            break
        builds = IMAGES if over_images else ROWS
        x = builds[c.int(0, len(builds) - 1)](c, x)
    return c.model(x)
