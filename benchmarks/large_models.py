"""Large models as ONNX graphs with seeded random weights: VGG-16, BERT-base, GPT-2."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.models import GraphBuilder

WIDTH, HEADS, LAYERS = 768, 12, 12


def vgg16(batch: int = 1) -> onnx.ModelProto:
    """VGG-16, 224 x 224: 138 million weights, most of them of the first dense layer."""
    g = GraphBuilder("vgg16", (batch, 3, 224, 224), seed=4)
    x, c_in = "x", 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            weight, bias = g.weight((width, c_in, 3, 3), 9 * c_in), g.bias(width)
            x = g.node("Relu", g.node("Conv", x, weight, bias, kernel_shape=[3, 3], pads=[1] * 4))
            c_in = width
        x = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, c_in = g.node("Flatten", x, axis=1), 512 * 7 * 7
    for c_out in (4096, 4096, 1000):
        x = g.node("Gemm", x, g.weight((c_out, c_in), c_in), g.bias(c_out), transB=1)
        x, c_in = x if c_out == 1000 else g.node("Relu", x), c_out
    return g.build(x)


def bert_base(length: int = 128) -> onnx.ModelProto:
    """The encoder of BERT-base for one sequence of token ids: 109 million weights."""
    g = TextBuilder("bert", length, seed=5)
    x = g.norm(g.embed(30522, 512))
    for _ in range(LAYERS):
        x = g.norm(g.node("Add", x, g.attention(x)))
        x = g.norm(g.node("Add", x, g.dense(g.gelu(g.dense(x, WIDTH, 4 * WIDTH)),
                                            4 * WIDTH, WIDTH)))
    return g.build(x)


def gpt2(length: int = 64) -> onnx.ModelProto:
    """GPT-2 for one sequence of token ids: 124 million weights and the transposed embeddings.

    Exporters store the embeddings twice: as a table, and as the last matrix.
    """
    g = TextBuilder("gpt2", length, seed=6)
    x = g.embed(50257, 1024)
    mask = np.triu(np.full((length, length), -1e4, np.float32), 1)
    for _ in range(LAYERS):
        x = g.node("Add", x, g.attention(g.norm(x), g.array(mask)))
        y = g.gelu(g.dense(g.norm(x), WIDTH, 4 * WIDTH))
        x = g.node("Add", x, g.dense(y, 4 * WIDTH, WIDTH))
    return g.build(g.node("MatMul", g.norm(x), g.weight((WIDTH, 50257), WIDTH)))


class TextBuilder(GraphBuilder):
    """A graph whose input ``x`` are the token ids of one sequence, int64 (1, length)."""

    def __init__(self, name: str, length: int, seed: int) -> None:
        super().__init__(name, (1, length), seed)
        self.length = length

    def embed(self, vocabulary: int, positions: int) -> str:
        """The sum of the embeddings of tokens and of positions."""
        tokens = self.node("Gather", self.weight((vocabulary, WIDTH), WIDTH), "x")
        places = self.array(np.arange(self.length, dtype=np.int64)[None])
        return self.node("Add", tokens, self.node("Gather", self.weight((positions, WIDTH), WIDTH),
                                                  places))

    def dense(self, x: str, c_in: int, c_out: int) -> str:
        """A matrix product and a bias."""
        y = self.node("MatMul", x, self.weight((c_in, c_out), 2 * c_in))
        return self.node("Add", y, self.bias(c_out))

    def norm(self, x: str) -> str:
        """Layer normalisation."""
        return self.node("LayerNormalization", x, self.bias(WIDTH, near=1.0), self.bias(WIDTH),
                         axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """x * (1 + erf(x / sqrt 2)) / 2, spelled out."""
        erf = self.node("Erf", self.node("Div", x, self.array(np.float32(math.sqrt(2)))))
        y = self.node("Mul", x, self.node("Add", erf, self.array(np.float32(1))))
        return self.node("Mul", y, self.array(np.float32(0.5)))

    def attention(self, x: str, mask: str | None = None) -> str:
        """Self-attention of 12 heads, with a mask that is added to the scores."""
        size = WIDTH // HEADS
        split = self.array(np.array([1, self.length, HEADS, size], np.int64))
        q, k, v = (self.node("Transpose", self.node("Reshape", self.dense(x, WIDTH, WIDTH), split),
                             perm=perm)
                   for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.node("Div", self.node("MatMul", q, k),
                           self.array(np.float32(math.sqrt(size))))
        if mask is not None:
            scores = self.node("Add", scores, mask)
        y = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        joined = self.array(np.array([1, self.length, WIDTH], np.int64))
        y = self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), joined)
        return self.dense(y, WIDTH, WIDTH)

    def build(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, self.name,
            [helper.make_tensor_value_info("x", TensorProto.INT64, self.input_shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
