"""Damage to model files: bytes and fields, chosen by a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Callable

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

EXTREME_INTS = (-(2**63), -(2**31), -100, -2, -1, 0, 1, 2, 3, 5, 64, 1000, 2**31, 2**40, 2**63 - 1)
EXTREME_FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
SMALL_INTS = (-2, -1, 0, 1, 2, 3, 4, 5, 7)
OPERATORS = (
    "Add",
    "Concat",
    "Conv",
    "Flatten",
    "Gemm",
    "MatMul",
    "Relu",
    "Reshape",
    "Shape",
    "Softmax",
    "Split",
    "Transpose",
    "Unsqueeze",
    "Loop",
    "NoSuchOperator",
)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few flipped bits or overwritten bytes, a cut, a removed, or a doubled piece."""
    damaged = bytearray(data)
    kind = rng.randrange(5)
    start = rng.randrange(len(damaged))
    length = rng.randrange(1, 16)
    if kind == 0:
        for _ in range(rng.randrange(1, 5)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        damaged[start : start + length] = rng.randbytes(length)
    elif kind == 2:
        del damaged[start:]
    elif kind == 3:
        del damaged[start : start + length]
    else:
        damaged[start:start] = damaged[start : start + length]
    return bytes(damaged)


def mutate_fields(model: ModelProto, rng: random.Random) -> ModelProto:
    """A copy with one to three fields changed to something plausible, often wrong."""
    damaged = ModelProto()
    damaged.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_MUTATIONS)(damaged, rng)
    return damaged


def _names(graph: GraphProto) -> list[str]:
    found = [i.name for i in graph.input] + [t.name for t in graph.initializer]
    return found + [name for node in graph.node for name in node.output]


def _edge(model: ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if node.input:
        choices = [*_names(model.graph), "", "nowhere"]
        node.input[rng.randrange(len(node.input))] = rng.choice(choices)


def _edge_count(model: ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if node.input and rng.random() < 0.5:
        del node.input[rng.randrange(len(node.input))]
    else:
        node.input.append(rng.choice(_names(model.graph)))


def _output_name(model: ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if rng.random() < 0.3:
        node.output.append(rng.choice([*_names(model.graph), "extra", ""]))
    elif node.output:
        node.output[0] = rng.choice([*_names(model.graph), "renamed", ""])


def _operator(model: ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if rng.random() < 0.2:
        node.domain = rng.choice(("com.microsoft", "ai.onnx", "ai.onnx.ml"))
    else:
        node.op_type = rng.choice(OPERATORS)


def _order(model: ModelProto, rng: random.Random) -> None:
    nodes = list(model.graph.node)
    if rng.random() < 0.5:
        rng.shuffle(nodes)
    else:
        nodes.pop(rng.randrange(len(nodes)))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _attribute(model: ModelProto, rng: random.Random) -> None:
    nodes = [n for n in model.graph.node if n.attribute]
    if nodes:
        node = rng.choice(nodes)
        index = rng.randrange(len(node.attribute))
        kind = rng.random()
        if kind < 0.1:
            del node.attribute[index]
        elif kind < 0.2:
            node.attribute[index].name = rng.choice(("axis", "pads", "group", "to", "nothing"))
        else:
            _attribute_value(node.attribute[index], rng)


def _integer(rng: random.Random) -> int:
    return rng.choice(EXTREME_INTS if rng.random() < 0.2 else SMALL_INTS)


def _attribute_value(attribute: AttributeProto, rng: random.Random) -> None:
    if rng.random() < 0.1:
        attribute.type = rng.randrange(0, 15)  # type: ignore[assignment]
    elif attribute.type == AttributeProto.INT:
        attribute.i = _integer(rng)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(EXTREME_FLOATS) if rng.random() < 0.3 else rng.uniform(-2, 2)
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        kind = rng.random()
        if kind < 0.2:
            attribute.ints.append(_integer(rng))
        elif kind < 0.4:
            attribute.ints.pop()
        else:
            attribute.ints[rng.randrange(len(attribute.ints))] = _integer(rng)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice((b"", b"VALID", b"edge", b"\xff", b"reflect"))
    elif attribute.type == AttributeProto.TENSOR:
        _tensor(attribute.t, rng)


def _initializer(model: ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        _tensor(rng.choice(model.graph.initializer), rng)


def _tensor(tensor: TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(6)
    if kind == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = _integer(rng)
    elif kind == 1:
        tensor.dims.append(rng.choice((0, 1, 2)))
    elif kind == 2:
        tensor.data_type = rng.choice((*range(-1, 25), 99))
    elif kind == 3:
        tensor.raw_data = tensor.raw_data[: rng.randrange(1 + len(tensor.raw_data))]
    elif kind == 4:
        data = bytearray(tensor.raw_data)
        if data:
            data[rng.randrange(len(data)) & rng.choice((-1, ~7))] = rng.randrange(256)
        tensor.raw_data = bytes(data)
    else:
        tensor.name = rng.choice(("", "x", "renamed"))


def _signature(model: ModelProto, rng: random.Random) -> None:
    values = rng.choice((model.graph.input, model.graph.output))
    if not values:
        return
    value = rng.choice(values)
    kind = rng.random()
    dims = value.type.tensor_type.shape.dim
    if kind < 0.5 and dims:
        dim = rng.choice(dims)
        if rng.random() < 0.2:
            dim.dim_param = rng.choice(("n", "batch size", "?", ""))
        else:
            dim.dim_value = rng.choice((-1, 0, 1, 2, 3, 4, 5, 7, 12, 2**40))
    elif kind < 0.6:
        value.type.tensor_type.elem_type = rng.randrange(0, 25)
    elif kind < 0.7:
        value.name = rng.choice(_names(model.graph))
    elif kind < 0.8:
        value.type.ClearField("tensor_type")
    elif kind < 0.9:
        dims.add(dim_value=2)
    else:
        values.pop()


def _version(model: ModelProto, rng: random.Random) -> None:
    kind = rng.randrange(3)
    if kind == 0:
        model.ir_version = rng.choice(EXTREME_INTS)
    elif kind == 1 and model.opset_import:
        model.opset_import[0].version = rng.choice((*EXTREME_INTS, *range(5, 30)))
    else:
        model.opset_import.add(domain=rng.choice(("", "other")), version=1)


_MUTATIONS: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _edge, _edge, _edge_count, _output_name, _operator, _order,
    _attribute, _attribute, _attribute, _initializer, _initializer, _signature, _version,
)  # fmt: skip
