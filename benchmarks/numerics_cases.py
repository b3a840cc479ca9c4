"""The cases of ``benchmarks.numerics``: operators of every family that sums, and their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.support.dataclass import dataclass

Generator = np.random.Generator
# Kinds of data: normal numbers; normal numbers around 1000; both signs, magnitudes from 1e-10 to
# 1e10, all equally likely.
DATA: dict[str, Callable[[Generator, Sequence[int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "offset": lambda rng, shape: 1000 + rng.normal(size=shape),
    "range": lambda rng, shape: rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(-10, 10, shape),
}


@dataclass(frozen=True, slots=True)
class Case:
    """``node`` of ONNX over inputs of ``shapes``, and the same by torch.

    The first input has the data of the kind that is measured, the others are ``beside``. The inputs
    whose letters are in ``constants`` are weights of the model.
    """

    family: str
    name: str
    node: str
    shapes: tuple[tuple[int, ...], ...]
    torch: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: str = ""
    data: tuple[str, ...] = ("normal", "offset", "range")
    beside: Callable[[Generator, Sequence[int]], np.ndarray] = DATA["normal"]
    integers: dict[str, Any] = field(default_factory=dict)
    opset: int = 20

    def inputs(self, data: str, rng: Generator) -> list[np.ndarray]:
        first, *rest = self.shapes
        arrays = [DATA[data](rng, first), *(self.beside(rng, shape) for shape in rest)]
        return [a.astype(np.float32) for a in arrays]

    def model(self, arrays: Sequence[np.ndarray]) -> Any:
        """The ONNX model of one node."""
        from onnx import TensorProto, helper, numpy_helper

        names = "abcde"[:len(arrays)]
        weights = [numpy_helper.from_array(a, n) for n, a in zip(names, arrays, strict=True)
                   if n in self.constants]
        weights += [numpy_helper.from_array(np.asarray(v), n) for n, v in self.integers.items()]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
                  for n, a in zip(names, arrays, strict=True) if n not in self.constants]
        node = helper.make_node(self.node, [*names, *self.integers], ["y"], **self.attrs)
        graph = helper.make_graph([node], "g", inputs, [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=9)


def _functional(name: str, **options: Any) -> Callable[..., Any]:
    def call(*tensors: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, name)(*tensors, **options)
    return call


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _matmuls() -> list[Case]:
    shapes = {
        "small K": ((64, 16), (16, 64)), "square": ((256, 256), (256, 256)),
        "deep": ((128, 4096), (4096, 128)), "K = 10^5": ((24, 100_000), (100_000, 32)),
        "K = 10^6": ((4, 1_000_000), (1_000_000, 8)), "row": ((1, 4096), (4096, 512)),
        "column": ((512, 4096), (4096, 1)), "dot 10^6": ((1, 1_000_000), (1_000_000, 1)),
        "batched": ((8, 64, 1024), (8, 1024, 64)),
    }
    cases = [Case("GEMM", f"matmul, {name}", "MatMul", pair, _matmul)
             for name, pair in shapes.items()]
    return cases + [Case("GEMM", f"matmul, packed weight, {name}", "MatMul", shapes[name], _matmul,
                         constants="b") for name in ("small K", "square", "deep", "row")]


def _convolutions() -> list[Case]:
    def conv(name: str, data: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Case:
        rank = len(data) - 2
        options = {"stride": tuple(attrs.get("strides", (1,) * rank)),
                   "padding": tuple(attrs.get("pads", (0,) * 2 * rank)[:rank]),
                   "groups": attrs.get("group", 1)}
        return Case("convolution", name, "Conv", (data, kernel),
                    _functional(f"conv{rank}d", **options), attrs, constants="b")

    def transposed(name: str, data: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Case:
        rank = len(data) - 2
        options = {"stride": tuple(attrs.get("strides", (1,) * rank)),
                   "groups": attrs.get("group", 1)}
        return Case("convolution", name, "ConvTranspose", (data, kernel),
                    _functional(f"conv_transpose{rank}d", **options), attrs, constants="b")

    return [
        conv("conv 3x3", (1, 256, 28, 28), (64, 256, 3, 3), pads=(1, 1, 1, 1)),
        conv("conv 3x3, odd channels", (1, 250, 15, 15), (37, 250, 3, 3)),
        conv("conv 5x5", (1, 64, 20, 20), (32, 64, 5, 5), pads=(2, 2, 2, 2)),
        conv("conv 1x1", (1, 1024, 14, 14), (64, 1024, 1, 1)),
        conv("conv 3x3, stride 2", (1, 128, 28, 28), (64, 128, 3, 3), strides=(2, 2),
             pads=(1, 1, 1, 1)),
        conv("conv 7x7 of an image", (1, 3, 64, 64), (64, 3, 7, 7), strides=(2, 2)),
        conv("conv, few outputs", (1, 256, 28, 28), (3, 256, 3, 3)),
        conv("conv 64x64", (1, 4, 70, 70), (8, 4, 64, 64)),
        conv("conv, depthwise 7x7", (1, 64, 28, 28), (64, 1, 7, 7), group=64),
        conv("conv, depthwise 31x31", (1, 32, 64, 64), (32, 1, 31, 31), group=32),
        conv("conv, grouped", (1, 256, 14, 14), (64, 64, 3, 3), group=4),
        conv("conv, 1-d", (1, 256, 400), (64, 256, 9)),
        conv("conv, 3-d", (1, 64, 8, 14, 14), (32, 64, 3, 3, 3)),
        transposed("transposed conv 4x4", (1, 256, 14, 14), (256, 64, 4, 4), strides=(2, 2)),
        transposed("transposed conv, 1-d", (1, 256, 100), (256, 64, 8), strides=(4,)),
        transposed("transposed conv, grouped", (1, 64, 14, 14), (64, 8, 3, 3), group=4),
    ]


def _reductions() -> list[Case]:
    def torch_of(name: str, axes: tuple[int, ...], **options: Any) -> Callable[..., Any]:
        def call(x: Any) -> Any:
            import torch

            if name == "prod":
                return torch.prod(x, axes[0])
            function = getattr(torch, name, None) or getattr(torch.linalg, name)
            return function(x, dim=axes, **options)
        return call

    shapes = {"inner": ((64, 10_000), (1,)), "outer": ((10_000, 64), (0,)),
              "all": ((1000, 1000), (0, 1)), "long inner": ((2, 1_000_000), (1,)),
              "long outer": ((1_000_000, 2), (0,)), "page rows": ((5000, 1024), (0,)),
              "middle": ((4, 5000, 16), (1,)), "short": ((512, 50), (1,))}
    kinds = {"sum": ("ReduceSum", {}), "mean": ("ReduceMean", {}),
             "logsumexp": ("ReduceLogSumExp", {}), "vector_norm": ("ReduceL2", {"ord": 2}),
             "vector_norm 1": ("ReduceL1", {"ord": 1})}
    cases = []
    for kind, (node, options) in kinds.items():
        for where, (shape, axes) in shapes.items():
            data = ("normal", "offset") if kind == "logsumexp" else ("normal", "offset", "range")
            cases.append(Case(
                "reduction", f"{kind}, {where}", node, (shape,),
                torch_of(kind.split()[0], axes, **options), {"keepdims": 0}, data=data,
                integers={"axes": np.int64(axes)}))
    cases.append(Case("reduction", "prod, inner", "ReduceProd", ((64, 1000),),
                      torch_of("prod", (1,)), {"keepdims": 0}, data=("normal",),
                      integers={"axes": np.int64([1])}))
    return cases


def _pools() -> list[Case]:
    def pool(name: str, shape: tuple[int, ...], window: int) -> Case:
        return Case("pooling", name, "AveragePool", (shape,),
                    _functional("avg_pool2d", kernel_size=window),
                    {"kernel_shape": (window, window), "strides": (window, window)})

    return [pool("average pool 3x3", (1, 32, 30, 30), 3), pool("average pool 64x64",
            (1, 16, 128, 128), 64),
            Case("pooling", "global average pool", "GlobalAveragePool", ((1, 32, 112, 112),),
                 lambda x: x.mean((2, 3), keepdim=True)),
            Case("pooling", "global average pool 7x7", "GlobalAveragePool", ((1, 512, 7, 7),),
                 lambda x: x.mean((2, 3), keepdim=True))]


def _norms() -> list[Case]:
    def instance(x: Any, weight: Any, bias: Any) -> Any:
        import torch

        return torch.nn.functional.instance_norm(x, weight=weight, bias=bias, eps=1e-5)

    def group(x: Any, weight: Any, bias: Any) -> Any:
        import torch

        return torch.nn.functional.group_norm(x, 4, weight, bias)

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        import torch

        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)

    return [
        Case("normalisation", "layer norm 768", "LayerNormalization", ((128, 768), (768,), (768,)),
             layer, {"epsilon": 1e-5}),
        Case("normalisation", "layer norm 10^5", "LayerNormalization",
             ((4, 100_000), (100_000,), (100_000,)), layer, {"epsilon": 1e-5}),
        Case("normalisation", "instance norm", "InstanceNormalization",
             ((2, 16, 56, 56), (16,), (16,)), instance, {"epsilon": 1e-5}),
        Case("normalisation", "group norm", "GroupNormalization",
             ((2, 32, 56, 56), (32,), (32,)), group, {"epsilon": 1e-5, "num_groups": 4}, opset=21),
    ]


def _others() -> list[Case]:
    def cumsum(x: Any) -> Any:
        return x.cumsum(-1)

    axis = {"axis": np.int64(-1)}
    return [
        Case("softmax", "softmax 10^4", "Softmax", ((16, 10_000),), _functional("softmax", dim=-1),
             {"axis": -1}, data=("normal", "offset")),
        Case("softmax", "softmax 10^6", "Softmax", ((1, 1_000_000),),
             _functional("softmax", dim=-1), {"axis": -1}, data=("normal", "offset")),
        Case("softmax", "softmax of channels", "Softmax", ((1, 1000, 28, 28),),
             _functional("softmax", dim=1), {"axis": 1}, data=("normal", "offset")),
        Case("softmax", "log softmax 10^4", "LogSoftmax", ((16, 10_000),),
             _functional("log_softmax", dim=-1), {"axis": -1}, data=("normal", "offset")),
        Case("scan", "cumsum 10^4", "CumSum", ((16, 10_000),), cumsum, integers=axis),
        Case("scan", "cumsum 10^6", "CumSum", ((1, 1_000_000),), cumsum, integers=axis),
    ]


CASES: tuple[Case, ...] = (
    *_matmuls(), *_convolutions(), *_reductions(), *_pools(), *_norms(), *_others())
