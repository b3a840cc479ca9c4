"""Models with real graphs and made-up weights: seeded, and scaled so that activations stay finite.

The light models of the onnx wheel fill their weights with one constant each, which leaves every
channel equal. Here those constants become random initializers: convolutions and matmuls
are drawn with He's variance (K. He et al., "Delving Deep into Rectifiers", 2015), scales and
variances near one, shifts and means near zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.backend.test
from onnx import GraphProto, ModelProto, NodeProto, numpy_helper

LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
Users: TypeAlias = "dict[str, list[tuple[NodeProto, int]]]"
_FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"


def light_model_path(name: str) -> Path:
    return _FOLDER / f"light_{name}.onnx"


def light_model_output(name: str) -> np.ndarray:
    """The output that is stored beside the model, for an input of ones."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((_FOLDER / f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def randomize_weights(model: ModelProto, seed: int = 0) -> ModelProto:
    """A copy of ``model`` whose float weights, filled or stored, are seeded random initializers."""
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    shapes = {n: a.shape for n, a in stored.items() if a.dtype == np.float32}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(d) for d in stored[node.input[0]])
    users = _users(graph.node)
    rng = np.random.default_rng(seed)
    weights = {n: _draw(rng, shape, *_role(n, users)) for n, shape in shapes.items() if n in users}
    _replace(graph.node, [n for n in graph.node if n.op_type != "ConstantOfShape"])
    _replace(graph.initializer, [t for t in graph.initializer if t.name not in weights])
    graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    _drop_unused(graph)
    return result


def input_names(model: ModelProto) -> list[str]:
    """The inputs that a caller feeds: IR version 3 lists the initializers among them."""
    initializers = {t.name for t in model.graph.initializer}
    return [i.name for i in model.graph.input if i.name not in initializers]


def _users(nodes: Sequence[NodeProto]) -> Users:
    users: Users = {}
    for node in nodes:
        for position, name in enumerate(node.input):
            users.setdefault(name, []).append((node, position))
    return users


def _role(name: str, users: Users) -> tuple[str, int, bool]:
    """Where a weight is used, seen through ``Unsqueeze``, and whether a sum follows directly."""
    node, position = users[name][0]
    while node.op_type == "Unsqueeze":
        node, position = users[node.output[0]][0]
    followers = users.get(node.output[0], [])
    return node.op_type, position, any(user.op_type == "Sum" for user, _ in followers)


def _draw(
    rng: np.random.Generator, shape: tuple[int, ...], op: str, position: int, residual: bool
) -> np.ndarray:
    """Branches of residual sums are damped: the sums would grow with depth and saturate softmax."""
    if op in ("Conv", "Gemm") and position == 1:
        fan_in = max(1, int(np.prod(shape[1:])))
        return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / fan_in))
    if op == "BatchNormalization" and position == 1 and residual:
        return rng.uniform(0.1, 0.25, shape).astype(np.float32)
    if (op == "BatchNormalization" and position in (1, 4)) or op == "Mul":
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    return rng.uniform(-0.1, 0.1, shape).astype(np.float32)


def _drop_unused(graph: GraphProto) -> None:
    """The shapes that nothing reads any more, among initializers and inputs."""
    read = {name for node in graph.node for name in node.input}
    unused = {t.name for t in graph.initializer} - read
    _replace(graph.initializer, [t for t in graph.initializer if t.name in read])
    _replace(graph.input, [i for i in graph.input if i.name in read and i.name not in unused])


def _replace(field: Any, kept: Sequence[Any]) -> None:
    """Protobuf lists are changed in place."""
    del field[:]
    field.extend(kept)
