"""Convolutions of bytes as files of TensorFlow Lite hold them: NHWC, with int8 data and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.contraction_kernels import Convolution
from benchmarks.peers import Feeds, Runner
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file

DATA_SCALE = np.float32(0.05)


@dataclass(frozen=True)
class LiteModel:
    """A file, inputs for it, and its results by NumPy: peers need not be installed."""

    content: bytes
    feeds: Feeds
    expected: Callable[[], list[np.ndarray]]


def lite_convolution(convolution: Convolution) -> LiteModel:
    """The file of a 2-D convolution with SAME padding; depthwise if each channel is a group."""
    rng, depthwise = np.random.default_rng(11), convolution.groups > 1
    outputs, stride = convolution.outputs, convolution.stride
    shape = ((1, *convolution.taps, outputs) if depthwise
             else (outputs, *convolution.taps, convolution.inputs))
    weight = rng.integers(-127, 128, shape).astype(np.int8)
    bias = rng.integers(-999, 999, outputs).astype(np.int32)
    scales = np.full(outputs, 0.01, np.float32)
    zeros = np.zeros(outputs, np.int64)
    scale = DATA_SCALE * scales[0] * np.sqrt(weight.size / outputs) * 60
    sizes = tuple(-(-size // stride) for size in convolution.sizes)
    tensors = [T((1, *convolution.sizes, convolution.inputs), "int8", None, "x", DATA_SCALE, 3),
               T(shape, "int8", weight, "w", scales, zeros, 3 if depthwise else 0),
               T((outputs,), "int32", bias, "b", scales * DATA_SCALE, zeros),
               T((1, *sizes, outputs), "int8", None, "y", scale, -4)]
    options = {"StrideW": stride, "StrideH": stride, "Padding": 0, "FusedActivationFunction": 0,
               "DilationWFactor": 1, "DilationHFactor": 1}
    kind, table = (("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise
                   else ("CONV_2D", "Conv2DOptions"))
    options |= {"DepthMultiplier": 1} if depthwise else {}
    x = rng.integers(-128, 128, tensors[0].shape).astype(np.int8)
    ratio = float(DATA_SCALE * scales[0] / scale)

    def expected() -> list[np.ndarray]:
        sums = _sums(x.astype(np.float64) - 3, weight.astype(np.float64), convolution) + bias
        return [np.clip(np.rint(sums * ratio) - 4, -128, 127).astype(np.int8)]

    return LiteModel(tflite_file(
        Graph(tensors, [0], [3], [Op(kind, [0, 1, 2], [3], table, options)])), {"x": x}, expected)


def _sums(x: np.ndarray, weight: np.ndarray, convolution: Convolution) -> np.ndarray:
    """The convolution with SAME padding of TensorFlow, which puts the odd zero behind."""
    stride = convolution.stride
    missing = [max((-(-size // stride) - 1) * stride + taps - size, 0)
               for size, taps in zip(convolution.sizes, convolution.taps, strict=True)]
    padded = np.pad(x, ((0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, convolution.taps, (1, 2))
    windows = windows[:, ::stride, ::stride]
    if convolution.groups > 1:
        return np.einsum("nyxcij,ijc->nyxc", windows, weight[0])
    return np.tensordot(windows, weight, ((3, 4, 5), (3, 1, 2)))


def load_litert(path: Path, threads: int) -> Runner:
    """TensorFlow Lite with XNNPACK, from the package ai-edge-litert."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=threads)
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(feeds: Feeds) -> list[np.ndarray]:
        interpreter.set_tensor(given["index"], feeds["x"])
        interpreter.invoke()
        return [interpreter.get_tensor(result["index"])]

    return run
