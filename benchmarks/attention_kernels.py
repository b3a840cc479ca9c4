"""Attention of known models in plain ONNX operators, for one and for many queries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.kernel_models import Kernel
from benchmarks.models import GraphBuilder


@dataclass(frozen=True)
class Attention:
    """Attention in which ``shared`` consecutive query heads share one head of keys and values.

    ``mask`` is "causal", "padding" (an input with a number to add for each key), or empty.
    """

    name: str
    heads: int
    queries: int
    keys: int
    depth: int
    shared: int = 1
    mask: str = ""

    @property
    def flops(self) -> float:
        """The FLOPs needed; a causal mask halves them."""
        all_of = 4.0 * self.heads * self.queries * self.keys * self.depth
        return all_of / 2 if self.mask == "causal" else all_of

    def build(self) -> onnx.ModelProto:
        """softmax(scale * Q K^T + mask) V, in plain ONNX operators."""
        query = (1, self.heads, self.queries, self.depth)
        key = (1, self.heads // self.shared, self.keys, self.depth)
        inputs = {"x": query, "x1": key, "x2": key}
        g = GraphBuilder("attention", query, seed=7)
        k, v = (self._repeated(g, name) for name in ("x1", "x2"))
        transposed = g.node("Transpose", k, perm=[0, 1, 3, 2])
        scale = g.array(np.float32(1 / math.sqrt(self.depth)))
        scores = g.node("Mul", g.node("MatMul", "x", transposed), scale)
        if self.mask == "causal":
            past = np.tri(self.queries, self.keys, dtype=bool)[None, None]
            lowest = np.finfo(np.float32).min
            scores = g.node("Add", scores, g.array(np.where(past, 0, lowest).astype(np.float32)))
        elif self.mask == "padding":
            inputs["x3"] = (1, 1, 1, self.keys)
            scores = g.node("Add", scores, "x3")
        output = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
        graph = helper.make_graph(
            g.nodes, "attention",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], g.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)

    def _repeated(self, g: GraphBuilder, name: str) -> str:
        if self.shared == 1:
            return name
        heads = self.heads // self.shared
        one = g.array(np.array([1, heads, 1, self.keys, self.depth], np.int64))
        many = g.array(np.array([1, heads, self.shared, self.keys, self.depth], np.int64))
        merged = g.array(np.array([1, self.heads, self.keys, self.depth], np.int64))
        return g.node("Reshape", g.node("Expand", g.node("Reshape", name, one), many), merged)


SHAPES = (
    Attention("attention bert 12x128x64", 12, 128, 128, 64, mask="padding"),
    Attention("attention vit 12x197x64", 12, 197, 197, 64),
    Attention("attention gpt2 12x1024x64", 12, 1024, 1024, 64, mask="causal"),
    Attention("attention gpt2 token of 1024", 12, 1, 1024, 64),
    Attention("attention llama 32/8x256x128", 32, 256, 256, 128, shared=4, mask="causal"),
    Attention("attention llama token of 1024", 32, 1, 1024, 128, shared=4),
    Attention("attention long 8x4096x64", 8, 4096, 4096, 64),
    Attention("attention cross 8x1024of77x40", 8, 1024, 77, 40),
    Attention("attention odd 7x93x40", 7, 93, 93, 40),
)


def _kernel(shape: Attention) -> Kernel:
    build: Callable[[], onnx.ModelProto] = shape.build
    return Kernel(shape.name, build, shape.flops)


ATTENTIONS = tuple(map(_kernel, SHAPES))
