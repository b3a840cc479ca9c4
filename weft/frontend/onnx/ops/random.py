"""Converters of operators that draw random numbers, and of dropout.

ONNX leaves the generator open, so the numbers differ from those of other implementations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node, constant_value
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.protos import TensorProto
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import known_sizes
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import Dim, DType, Expr, Op, float32, float64
from weft.op.random.threefry import threefry_key
from weft.support.errors import InvalidModelError, UnsupportedModelError

_UNIFORM, _NORMAL = ("low", "high"), ("mean", "scale")


@converts("RandomUniform", attributes=("dtype", "shape", "seed", *_UNIFORM))
def random_uniform(node: Node) -> Expr:
    return _drawn(node, op.random.uniform, _UNIFORM, _declared_shape(node), float32)


@converts("RandomNormal", attributes=("dtype", "shape", "seed", *_NORMAL))
def random_normal(node: Node) -> Expr:
    return _drawn(node, op.random.normal, _NORMAL, _declared_shape(node), float32)


@converts("RandomUniformLike", attributes=("dtype", "seed", *_UNIFORM))
def random_uniform_like(node: Node) -> Expr:
    return _drawn(node, op.random.uniform, _UNIFORM, node.shape(), node.dtype())


@converts("RandomNormalLike", attributes=("dtype", "seed", *_NORMAL))
def random_normal_like(node: Node) -> Expr:
    return _drawn(node, op.random.normal, _NORMAL, node.shape(), node.dtype())


@converts("Bernoulli", attributes=("dtype", "seed"))
def bernoulli(node: Node) -> Expr:
    drawn = node.call(op.random.bernoulli, _key(node), node.input(0))
    return cast_to(node, node.field(drawn, 1), _dtype(node, node.dtype()))


@converts("Multinomial", attributes=("dtype", "sample_size", "seed"))
def multinomial(node: Node) -> Expr:
    """Indices drawn for each row; the input holds logarithms of probabilities."""
    weights = node.call(op.nn.softmax, node.input(0), axis=-1)
    count = node.attrs.integer("sample_size", 1)
    if count < 1:
        raise node.fail("sample_size out of range", expected="1 or more", got=str(count))
    drawn = node.call(op.random.multinomial, _key(node), weights, num_samples=count)
    return cast_to(node, node.field(drawn, 1), _dtype(node, DType.of("int32")))


@converts("Dropout", attributes=("ratio", "seed"), outputs=2)
def dropout(node: Node) -> Sequence[Expr]:
    """Drop elements in training mode; else return the input and an all-true mask."""
    x = node.input(0)
    ratio = _scalar(node, 1, "ratio") if node.has_input(1) else 0.5
    if node.has_input(2) and ratio != 0 and _scalar(node, 2, "training_mode"):
        if not 0 <= ratio < 1:
            raise node.fail("ratio out of range", expected="0 <= ratio < 1", got=str(ratio))
        dropped = node.call(op.random.dropout, _key(node), x, rate=ratio)
        return node.field(dropped, 1), node.field(dropped, 2)
    if node.outputs_read <= 1:
        return (x,)
    somewhere = node.call(op.cast, x, dtype="bool")
    return x, node.call(op.logical_or, somewhere, node.constant(True, "bool"))


def _scalar(node: Node, index: int, name: str) -> float:
    value = constant_value(node.input(index))
    if value is None or value.size != 1:
        raise UnsupportedModelError(f"{name} of Dropout is computed at run time", where=node.span,
                                    expected="a constant scalar", help="fold it into the model")
    return float(value.reshape(()))


def _drawn(
    node: Node, distribution: Op, names: tuple[str, str], shape: Sequence[Dim], default: DType
) -> Expr:
    """Numbers from a distribution with two parameters, drawn in float32 or float64."""
    wanted = _dtype(node, default)
    if not wanted.is_float:
        raise node.fail("the dtype is not a float", got=str(wanted))
    kind = wanted if wanted == float64 else float32
    first, second = (node.constant(node.attrs.number(name, value), kind)
                     for name, value in zip(names, (0.0, 1.0), strict=True))
    drawn = node.call(distribution, _key(node), first, second,
                      out_shape=known_sizes(node, shape))
    return cast_to(node, node.field(drawn, 1), wanted)


def _declared_shape(node: Node) -> tuple[int, ...]:
    shape = node.attrs.integers("shape")
    if shape is None or min(shape, default=0) < 0:
        raise InvalidModelError(f"invalid shape of {node.op}", where=node.span,
                                expected="sizes of 0 or more", got=str(shape))
    return shape


def _dtype(node: Node, default: DType) -> DType:
    if "dtype" not in node.attrs:
        return default
    code = node.attrs.integer("dtype", TensorProto.UNDEFINED)
    return dtype_of(code, f"the result of {node.op}", node.span)


def _key(node: Node) -> Expr:
    """The key of the attribute ``seed``, else one split from an input of the model.

    A seed gives the same numbers in each call. Without one the model gains an input for the key.
    """
    if "seed" in node.attrs:
        if node.op == "Dropout":
            return threefry_key(node.attrs.integer("seed", 0) % 2**64)
        # The other operators have a float as seed; its bits tell any two apart.
        bits = np.float32(node.attrs.number("seed", 0.0)).view(np.uint32)
        return threefry_key(int(bits))
    if node.keys is None:
        raise UnsupportedModelError(
            f"{node.op} in the body of a loop or branch draws random numbers", where=node.span,
            help="move it out of the body, or give it a seed")
    return node.keys.next(node.span)
