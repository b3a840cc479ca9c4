"""Contractions that the usual networks seldom hold: narrow dtypes, odd sizes, rare attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.attention_kernels import Attention
from benchmarks.contraction_kernels import Convolution, layer
from benchmarks.kernel_models import Kernel
from benchmarks.lite_kernels import lite_convolution
from benchmarks.models import matmul, mlp

_NARROW = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_TENSORS = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}

CONVOLUTIONS = (
    Convolution("conv1x1 1024-256@64 (SegFormer)", 1024, 256, (1, 1), (64, 64)),
    Convolution("conv1x1 1024-1024@64", 1024, 1024, (1, 1), (64, 64)),
    Convolution("conv3d 64-128 k3/2@8x28x28", 64, 128, (3, 3, 3), (8, 28, 28), stride=2),
    Convolution("conv3d 32-32 k3 d2@8x28x28", 32, 32, (3, 3, 3), (8, 28, 28), dilation=2),
    Convolution("conv3d 64-64 k3 g8@4x28x28", 64, 64, (3, 3, 3), (4, 28, 28), groups=8),
    Convolution("depthwise conv3d 64@8x28x28", 64, 64, (3, 3, 3), (8, 28, 28), groups=64),
    Convolution("grouped conv3x3/2 256-256 g32@28", 256, 256, (3, 3), (28, 28), 2, groups=32),
    Convolution("grouped conv3x3 96-96 g4@28", 96, 96, (3, 3), (28, 28), groups=4),
    Convolution("grouped conv1x1 512-512 g8@14", 512, 512, (1, 1), (14, 14), groups=8),
    Convolution("depthwise x2 32-64@56", 32, 64, (3, 3), (56, 56), groups=32),
    Convolution("depthwise x4 16-64@56", 16, 64, (3, 3), (56, 56), groups=16),
    Convolution("depthwise7x7 96@56", 96, 96, (7, 7), (56, 56), groups=96),
    Convolution("depthwise3x3 d2 96@56", 96, 96, (3, 3), (56, 56), groups=96, dilation=2),
    Convolution("depthwise conv1d k31 256@1000", 256, 256, (31,), (1000,), groups=256),
    Convolution("transposed conv4x4/2 256-128@16", 256, 128, (4, 4), (16, 16), 2, transposed=True),
    Convolution("transposed conv3x3 64-64@28", 64, 64, (3, 3), (28, 28), transposed=True),
    Convolution("transposed conv3x3/2 g4 64-64@28", 64, 64, (3, 3), (28, 28), 2, 4,
                transposed=True),
    Convolution("transposed conv3x3 d2 64-64@28", 64, 64, (3, 3), (28, 28), dilation=2,
                transposed=True),
    Convolution("transposed conv1d k16/8 512-256@100", 512, 256, (16,), (100,), 8,
                transposed=True),
    Convolution("transposed conv3d k2/2 64-32@4x14x14", 64, 32, (2, 2, 2), (4, 14, 14), 2,
                transposed=True),
)
NARROW_CONVOLUTIONS = (
    Convolution("conv3x3 64-64@56", 64, 64, (3, 3), (56, 56)),
    Convolution("conv1x1 256-512@28", 256, 512, (1, 1), (28, 28)),
    Convolution("conv3x3/2 128-128@56", 128, 128, (3, 3), (56, 56), stride=2),
    Convolution("depthwise3x3 144@56", 144, 144, (3, 3), (56, 56), groups=144),
)
NARROW_GEMMS = ((512, 2048, 2048), (128, 3072, 768), (256, 1024, 4096), (1, 4096, 4096))
LITE_CONVOLUTIONS = (
    Convolution("conv7x7/2 3-64@224", 3, 64, (7, 7), (224, 224), stride=2),
    Convolution("conv3x3 512-512@7", 512, 512, (3, 3), (7, 7)),
    Convolution("conv1x1 1024-256@14", 1024, 256, (1, 1), (14, 14)),
    Convolution("conv3x3 72-40@13", 72, 40, (3, 3), (13, 13)),
)
ATTENTIONS = (
    *(Attention(f"attention token of {keys // 1024}k", 12, 1, keys, 64)
      for keys in (4096, 8192, 32768)),
    *(Attention(f"attention llama token of {keys // 1024}k", 32, 1, keys, 128, shared=4)
      for keys in (4096, 16384)),
    Attention("attention 4 tokens of 4k", 12, 4, 4096, 64),
)
GEMVS = ((1, 1000, 777), (1, 4097, 1023), (1, 33, 5000), (2, 1001, 1003), (1, 11008, 4096))
# Matrices of a batch, then M, N and K.
BATCHED = ((256, 8, 8, 8), (4096, 4, 4, 4), (1000, 16, 16, 16), (64, 33, 31, 17),
           (128, 1, 64, 64), (96, 64, 64, 32))
EINSUMS = (
    ("bqhd,bkhd->bhqk", (1, 128, 12, 64), (1, 128, 12, 64)),
    ("bhqk,bkhd->bqhd", (1, 12, 128, 128), (1, 128, 12, 64)),
    ("abc,cde->abde", (4, 32, 64), (64, 8, 64)),
    ("bij,bkj->bik", (16, 96, 64), (16, 80, 64)),
    ("ijk,jkl->il", (64, 16, 48), (16, 48, 96)),
    ("bchw,bdhw->bcd", (4, 64, 28, 28), (4, 64, 28, 28)),
    ("nctv,vw->nctw", (8, 64, 50, 25), (25, 25)),
    ("bhwc,hkc->bhwk", (8, 14, 14, 64), (14, 14, 64)),
)


def narrowed(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The same graph with inputs, weights and results of a 16-bit float."""
    dtype, kind = _NARROW[name], _TENSORS[name]
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(helper.make_tensor(tensor.name, kind, array.shape,
                                               array.astype(dtype).tobytes(), raw=True))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = kind
    del model.graph.value_info[:]
    model.opset_import[0].version = 22  # the first with bfloat16 convolutions
    model.ir_version = 10
    return model


def binary(op: str, shapes: Sequence[Sequence[int]], **attrs: object) -> onnx.ModelProto:
    """One operator of two inputs."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in zip("xy", shapes, strict=True)]
    graph = helper.make_graph([helper.make_node(op, ["x", "y"], ["z"], **attrs)], "binary", inputs,
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return onnx.shape_inference.infer_shapes(model)


def quantized(convolution: Convolution) -> onnx.ModelProto:
    """uint8 data and int8 weights with a scale for each channel, in the form of QDQ."""
    model = convolution.build()
    graph, weight = model.graph, model.graph.initializer[0]
    array, rng = numpy_helper.to_array(weight), np.random.default_rng(11)
    scales = np.abs(array).reshape(len(array), -1).max(1) / np.float32(127)
    shape = (-1,) + (1,) * (array.ndim - 1)
    constants = {
        "w8": np.rint(array / scales.reshape(shape)).astype(np.int8), "ws": scales,
        "wz": np.zeros(len(array), np.int8), "xs": np.float32(0.03), "xz": np.uint8(128),
        "ys": np.float32(0.05), "yz": np.uint8(0),
        "b": rng.integers(-999, 999, len(array)).astype(np.int32), "bs": scales * np.float32(0.03),
        "bz": np.zeros(len(array), np.int32)}
    conv, relu = graph.node
    del graph.initializer[:], graph.value_info[:]
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k)
                             for k, v in constants.items())
    made = helper.make_node
    nodes = [made("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
             made("DequantizeLinear", ["w8", "ws", "wz"], ["wf"], axis=0),
             made("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0), conv, relu,
             made("QuantizeLinear", [relu.output[0], "ys", "yz"], ["y"])]
    conv.input[:] = ["xf", "wf", "bf"]
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.UINT8, None))
    return onnx.shape_inference.infer_shapes(model)


def _narrow(dtype: str, kernel: Kernel) -> Kernel:
    build = kernel.build
    return replace(kernel, name=f"{dtype} {kernel.name}", build=lambda: narrowed(build(), dtype),
                   tolerance=2e-2)


def _quantized(convolution: Convolution) -> Kernel:
    kernel = convolution.kernel()
    return replace(kernel, name=f"int8 {kernel.name}", build=lambda: quantized(convolution),
                   tolerance=1e-2)


def _lite(convolution: Convolution) -> Kernel:
    """The same in a file of TensorFlow Lite."""
    kernel = convolution.kernel()
    return replace(kernel, name=f"int8 NHWC {kernel.name}", tolerance=1e-2,
                   build=lambda: lite_convolution(convolution))


def _layer(m: int, n: int, k: int) -> Kernel:
    return Kernel(f"layer {m}x{n}x{k}", lambda: layer(m, n, k), 2.0 * m * n * k)


def _gemm(m: int, n: int, k: int) -> Kernel:
    return Kernel(f"gemm {m}x{n}x{k}", lambda: matmul(m, n, k), 2.0 * m * n * k)


def _batched(batch: int, m: int, n: int, k: int) -> Kernel:
    return Kernel(f"batched gemm {batch} of {m}x{n}x{k}",
                  lambda: binary("MatMul", [(batch, m, k), (batch, k, n)]), 2.0 * batch * m * n * k)


def _einsum(equation: str, *shapes: Sequence[int]) -> Kernel:
    letters = equation.replace("->", ",").split(",")
    sizes = dict(zip("".join(letters[:2]), (s for shape in shapes for s in shape), strict=True))
    return Kernel(f"einsum {equation}", lambda: binary("Einsum", shapes, equation=equation),
                  2.0 * math.prod(sizes.values()))


def _mlp(batch: int) -> Kernel:
    return Kernel(f"mlp 784-512-512-10 of {batch}", lambda: mlp(batch),
                  2.0 * batch * (784 * 512 + 512 * 512 + 5120))


def _attention(shape: Attention) -> Kernel:
    build: Callable[[], onnx.ModelProto] = shape.build
    return Kernel(shape.name, build, shape.flops)


CORNERS: list[Kernel] = [
    *(_mlp(batch) for batch in (1, 8, 64)),
    *(convolution.kernel() for convolution in CONVOLUTIONS),
    *(_narrow(dtype, _layer(*size)) for dtype in _NARROW for size in NARROW_GEMMS),
    *(_narrow(dtype, _gemm(512, 1024, 1024)) for dtype in _NARROW),
    *(_narrow(dtype, c.kernel()) for dtype in _NARROW for c in NARROW_CONVOLUTIONS),
    *(_quantized(c) for c in NARROW_CONVOLUTIONS),
    *map(_lite, (*NARROW_CONVOLUTIONS, *LITE_CONVOLUTIONS)),
    *map(_attention, ATTENTIONS),
    *(_layer(*size) for size in GEMVS),
    _gemm(1, 1001, 1003), _gemm(1001, 1, 1003),
    *(_batched(*size) for size in BATCHED),
    *(_einsum(*row) for row in EINSUMS),
]
