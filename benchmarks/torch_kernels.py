"""Operators of the single-kernel benchmarks in torch eager, with ONNX attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from onnx import helper, numpy_helper

from benchmarks.peers import Feeds, Runner
from benchmarks.torch_eager import OPS, Attrs


def _sizes(x: torch.Tensor) -> list[int]:
    return [int(v) for v in x]


def _slice(_: Attrs, x: torch.Tensor, *bounds: torch.Tensor) -> torch.Tensor:
    for start, end, axis in zip(*map(_sizes, bounds), strict=True):
        x = x.narrow(axis, start, min(end, x.shape[axis]) - start)
    return x


def _pad(_: Attrs, x: torch.Tensor, pads: torch.Tensor) -> torch.Tensor:
    sizes = _sizes(pads)
    begin, end = sizes[: x.ndim], sizes[x.ndim:]
    both = zip(reversed(begin), reversed(end), strict=True)
    return F.pad(x, [size for pair in both for size in pair])


def _average(attrs: Attrs, x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(x, attrs["kernel_shape"], attrs["strides"], attrs["pads"][:2],
                        count_include_pad=False)


def _largest(attrs: Attrs, x: torch.Tensor) -> torch.Tensor:
    pads = attrs.get("pads", [0, 0])[:2]
    return F.max_pool2d(x, attrs["kernel_shape"], attrs["strides"], pads)


def _conv(attrs: Attrs, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Convolution of any rank, with the same padding on both sides."""
    function = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    return function(x, w, None, attrs["strides"], attrs["pads"][: x.ndim - 2],
                    attrs.get("dilations", 1), attrs.get("group", 1))


def _conv_transpose(attrs: Attrs, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.ndim - 3]
    return function(x, w, None, attrs["strides"], attrs["pads"][: x.ndim - 2], 0,
                    attrs["group"], attrs["dilations"])


MORE_OPS: dict[str, Any] = {
    **OPS,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _largest,
    "AveragePool": _average,
    "LogSoftmax": lambda a, x: F.log_softmax(x, a["axis"]),
    "LayerNormalization": lambda a, x, g, b: F.layer_norm(x, x.shape[-1:], g, b, a["epsilon"]),
    "Div": lambda _, x, y: x / y,
    "Mul": lambda _, x, y: x * y,
    "Erf": lambda _, x: torch.erf(x),
    "Tanh": lambda _, x: torch.tanh(x),
    "Sigmoid": lambda _, x: torch.sigmoid(x),
    "Exp": lambda _, x: torch.exp(x),
    "ReduceSum": lambda _, x, axes: x.sum(_sizes(axes)),
    "ReduceMax": lambda a, x: x.amax(a["axes"]),
    "ReduceMean": lambda a, x: x.mean(a["axes"]),
    "ArgMax": lambda a, x: x.argmax(a["axis"]),
    "Transpose": lambda a, x: x.permute(a["perm"]).contiguous(),
    "Reshape": lambda _, x, shape: x.reshape(_sizes(shape)),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Pad": _pad,
    "Slice": _slice,
    "Gather": lambda _, x, i: torch.index_select(x, 0, i),
    "Expand": lambda _, x, shape: x.expand(_sizes(shape)).contiguous(),
    "Einsum": lambda a, *xs: torch.einsum(a["equation"].decode(), *xs),
    "LRN": lambda a, x: F.local_response_norm(x, a["size"], a["alpha"], a["beta"], a["bias"]),
}


def load(path: Path, threads: int) -> Runner:
    """Load a model that reads the input arrays without copying them."""
    torch.set_num_threads(threads)
    graph = onnx.load(path).graph
    weights = {i.name: _tensor(np.array(numpy_helper.to_array(i))) for i in graph.initializer}
    steps = [
        (MORE_OPS[n.op_type], {a.name: helper.get_attribute_value(a) for a in n.attribute},
         list(n.input), n.output[0])
        for n in graph.node
    ]

    def run(feeds: Feeds) -> list[np.ndarray]:
        values = {**weights, **{k: _tensor(v) for k, v in feeds.items()}}
        with torch.inference_mode():
            for function, attrs, inputs, output in steps:
                values[output] = function(attrs, *(values[i] for i in inputs))
        return [_array(values[o.name].contiguous()) for o in graph.output]

    return run


def _tensor(array: np.ndarray) -> torch.Tensor:
    """The tensor on the same memory; torch reads no bfloat16 of NumPy."""
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def _array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
