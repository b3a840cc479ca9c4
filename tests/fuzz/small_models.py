"""Small models that use many converters, quick enough to run thousands of damaged copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.parser import parse_model

node = helper.make_node


def _model(
    nodes: Sequence[NodeProto],
    shape: Sequence[Any],
    constants: dict[str, np.ndarray],
    output: Sequence[Any],
    opset: int,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def convolutional() -> ModelProto:
    """Convolutions, pools and normalisation, with a target shape computed by nodes."""
    rng = np.random.default_rng(1)

    def weight(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c1", "s", "b", "m", "v"], ["n1"], epsilon=1e-3),
        node("Relu", ["n1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p1", "w2"], ["c2"], group=2, kernel_shape=[1, 1]),
        node("LRN", ["c2"], ["l"], size=3, alpha=0.1, beta=0.5),
        node("Sum", ["l", "p1"], ["s1"]),
        node("Concat", ["s1", "p1"], ["k"], axis=1),
        node("AveragePool", ["k"], ["a"], kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Shape", ["g"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "axis0"], ["batch1"]),
        node("Concat", ["batch1", "rest"], ["target"], axis=0),
        node("Reshape", ["g", "target"], ["f"]),
        node("Dropout", ["f"], ["d"]),
        node("Gemm", ["d", "w3", "b3"], ["o"], transB=1, alpha=0.7),
        node("Softmax", ["o"], ["y"], axis=-1),
    ]
    constants = {
        "w1": weight(4, 3, 3, 3),
        "b1": weight(4),
        "s": np.abs(weight(4)) + 0.5,
        "b": weight(4),
        "m": weight(4),
        "v": np.abs(weight(4)) + 0.5,
        "w2": weight(4, 2, 1, 1),
        "zero": np.array(0, np.int64),
        "axis0": _ints(0),
        "rest": _ints(-1),
        "w3": weight(5, 8),
        "b3": weight(5),
    }
    return _model(nodes, [1, 3, 9, 8], constants, [1, 5], 13)


def shape_shuffling() -> ModelProto:
    """Slices, pads, transposes, gathers, reductions, products of stacked matrices."""
    weight = np.random.default_rng(2).normal(0, 1, (4, 5)).astype(np.float32)
    nodes = [
        node("Pad", ["x", "pads"], ["p"], mode="constant"),
        node("Slice", ["p", "starts", "ends", "axes", "steps"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        node("Gather", ["t", "rows"], ["g"], axis=1),
        node("MatMul", ["g", "w"], ["m"]),
        node("Split", ["m", "parts"], ["a", "b"], axis=2),
        node("Clip", ["a", "low", "high"], ["c"]),
        node("Sigmoid", ["b"], ["e"]),
        node("Expand", ["e", "wide"], ["e2"]),
        node("ReduceMean", ["e2"], ["e3"], axes=[-1], keepdims=1),
        node("Mul", ["c", "e3"], ["h"]),
        node("Greater", ["h", "low"], ["mask"]),
        node("Where", ["mask", "h", "low"], ["i"]),
        node("Squeeze", ["i", "axis0"], ["j"]),
        node("Flatten", ["j"], ["k"], axis=1),
        node("ArgMax", ["k"], ["q"], axis=1),
        node("Cast", ["q"], ["z"], to=TensorProto.FLOAT),
        node("ReduceSum", ["k", "axis1"], ["r"], keepdims=1),
        node("Add", ["r", "z"], ["y"]),
    ]
    constants = {
        "pads": _ints(0, 1, 0, 0, 0, 2),
        "starts": _ints(0, -1),
        "ends": _ints(4, -100),
        "axes": _ints(1, 2),
        "steps": _ints(1, -2),
        "rows": _ints(0, -1, 1),
        "w": weight,
        "parts": _ints(2, 3),
        "low": np.array(-0.5, np.float32),
        "high": np.array(0.5, np.float32),
        "wide": _ints(1, 3, 6),
        "axis0": _ints(0),
        "axis1": _ints(1),
    }
    nodes[8].input[0] = "e1"
    nodes.insert(8, node("ReduceMax", ["e"], ["e1"], axes=[2], keepdims=1))
    return _model(nodes, [1, 4, 5], constants, [3, 1], 13)


def branching() -> ModelProto:
    """Control flow, sequences, and quantised weights of four bits."""
    return parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    small (float[2, 4] x) => (float[2, 4] y)
    <int4[4, 4] w = {225, 67, 165, 7, 33, 77, 104, 7}, float[4] s = {1, 2, 3, 4},
     int64 three = {3}, bool go = {1}, float[2] zero = {0, 0}, int64 place = {1}> {
      r = DequantizeLinear<axis = 1>(w, s)
      n = Neg(r)
      h = MatMul(x, n)
      total = ReduceSum<keepdims = 0>(h)
      limit = Constant<value = float {0}>()
      big = Greater(total, limit)
      b = If(big) <
        then_branch = t () => (float[2, 4] p) { p = Tanh(h) },
        else_branch = e () => (float[2, 4] q) { q = Celu<alpha = 0.5>(h) }>
      l, seen = Loop(three, go, b) <body = step (int64 i, bool c, float[2, 4] v)
        => (bool d, float[2, 4] u, float[2, 4] o) {
          f = Cast<to = 1>(i)
          u = Add(v, f)
          o = Mul(u, x)
          d = Identity(c)
      }>
      last, all = Scan(zero, l) <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
        body = each (float[2] a, float[2] k) => (float[2] a2, float[2] k2) {
          a2 = Add(a, k)
          k2 = Sigmoid(a2)
      }>
      parts = SplitToSequence<axis = 0, keepdims = 1>(seen)
      one = SequenceAt(parts, place)
      flat = Squeeze(one, axis0)
      axis0 = Constant<value = int64[1] {0}>()
      y = Sub(all, flat)
    }""")


def transforming() -> ModelProto:
    """Operators that compute with constants at import: transforms, windows, n-grams, places."""
    return parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    small (float[2, 8] x) => (float[2, 4] y)
    <int64 last = {-2}, int64[1] end = {2}, int64[3] shape = {2, 8, 1}, int64[1] axis = {1},
     bool[8] kept = {1, 0, 1, 1, 0, 0, 1, 0}> {
      complex = Reshape(x, shape)
      spectrum = DFT<onesided = 1>(complex, "", last)
      power = ReduceSumSquare<keepdims = 0>(spectrum, end)
      some = Compress<axis = 1>(x, kept)
      tokens = Cast<to = 7>(some)
      counts = TfIdfVectorizer<max_gram_length = 2, max_skip_count = 1, min_gram_length = 1,
        mode = "TF", ngram_counts = [0, 2], ngram_indexes = [0, 3, 1], pool_int64s = [0, 1, 0, 0]
      >(tokens)
      a, b = Split<axis = 1, num_outputs = 2>(x)
      part = Slice(b, zero, three, axis)
      zero = Constant<value = int64[1] {0}>()
      three = Constant<value = int64[1] {3}>()
      cols = Reshape(a, shape2)
      shape2 = Constant<value = int64[3] {1, 2, 4}>()
      back = Col2Im(cols, image2, block2)
      image2 = Constant<value = int64[2] {2, 4}>()
      block2 = Constant<value = int64[2] {2, 1}>()
      m = Reshape(a, square2)
      square2 = Constant<value = int64[3] {2, 2, 2}>()
      d = Det(m)
      d2 = Unsqueeze(d, axis)
      flat = Reshape(back, rows)
      rows = Constant<value = int64[2] {2, 4}>()
      ends = Concat<axis = 1>(part, d2)
      sum = Sum(counts, d2, flat, ends)
      picked = Slice(power, zero, four, axis)
      four = Constant<value = int64[1] {4}>()
      y = Add(sum, picked)
    }""")
