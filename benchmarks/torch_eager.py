"""An ONNX graph run node by node by torch in eager mode, as a torch user's model would run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from onnx import helper, numpy_helper

Attrs = dict[str, Any]


def _conv(attrs: Attrs, x: torch.Tensor, w: torch.Tensor,
          b: torch.Tensor | None = None) -> torch.Tensor:
    return F.conv2d(x, w, b, attrs["strides"], attrs["pads"][:2], 1, attrs.get("group", 1))


def _batch_norm(attrs: Attrs, x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
    gamma, beta, mean, var = p
    return F.batch_norm(x, mean, var, gamma, beta, eps=attrs["epsilon"])


def _gemm(attrs: Attrs, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return F.linear(a, b if attrs.get("transB") else b.T, c)


def _max_pool(attrs: Attrs, x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, attrs["kernel_shape"], attrs["strides"], attrs["pads"][:2])


OPS: dict[str, Callable[..., torch.Tensor]] = {
    "Conv": _conv,
    "BatchNormalization": _batch_norm,
    "Relu": lambda _, x: F.relu(x),
    "Clip": lambda _, x, low, high: torch.clamp(x, low, high),
    "Add": lambda _, a, b: a + b,
    "MaxPool": _max_pool,
    "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
    "Flatten": lambda attrs, x: torch.flatten(x, attrs["axis"]),
    "Gemm": _gemm,
    "MatMul": lambda _, a, b: a @ b,
    "Softmax": lambda attrs, x: F.softmax(x, attrs["axis"]),
}


def load(path: Path, threads: int) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """Load a model; 4-d weights are stored in channels-last, torch's fastest layout.

    Inputs are converted at the first call with them, so timed calls do not copy them.
    """
    torch.set_num_threads(threads)
    graph = onnx.load(path).graph
    if missing := {n.op_type for n in graph.node} - OPS.keys():
        raise SystemExit(f"torch: no operator for {', '.join(sorted(missing))}")
    weights = {i.name: _tensor(numpy_helper.to_array(i)) for i in graph.initializer}
    steps = [
        (OPS[n.op_type], {a.name: helper.get_attribute_value(a) for a in n.attribute},
         list(n.input), n.output[0])
        for n in graph.node
    ]
    outputs = [o.name for o in graph.output]
    tensors = held_tensors()

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        values = {**weights, **tensors(feeds)}
        with torch.inference_mode():
            for function, attrs, inputs, output in steps:
                values[output] = function(attrs, *(values[i] for i in inputs))
        return [values[o].numpy() for o in outputs]

    return run


def held_tensors() -> Callable[[dict[str, np.ndarray]], dict[str, torch.Tensor]]:
    """A function from arrays by name to tensors, which are kept while the same arrays come."""
    held: list[tuple[dict[str, np.ndarray], dict[str, torch.Tensor]]] = []

    def tensors(feeds: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
        if not held or held[0][0] is not feeds:
            held[:] = [(feeds, {name: _tensor(array) for name, array in feeds.items()})]
        return held[0][1]

    return tensors


def _tensor(array: np.ndarray) -> torch.Tensor:
    """A copy of an array; of an image in channels-last."""
    made = torch.from_numpy(np.array(array))
    return made.to(memory_format=torch.channels_last) if made.ndim == 4 else made
