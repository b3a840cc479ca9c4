"""Converters of onnxruntime's operators on quantised tensors (domain ``com.microsoft``).

An operator is converted to DequantizeLinear, the operator on floats, and QuantizeLinear; matmuls
multiply the stored integers. Specification: onnxruntime's ContribOperators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from weft import op
from weft.frontend.onnx.node import Node, Value, tensor_type
from weft.frontend.onnx.ops.activation import leaky_relu, softmax, softmax_flattened
from weft.frontend.onnx.ops.index import concat
from weft.frontend.onnx.ops.integer import integer_product, spread_along
from weft.frontend.onnx.ops.linear import transposed
from weft.frontend.onnx.ops.pool import average_pool, global_average_pool
from weft.frontend.onnx.ops.quantize import (
    Scaling,
    dequantize_linear,
    dequantized,
    quantize_linear,
    quantized,
)
from weft.frontend.onnx.ops.reduce import reduced_axes
from weft.frontend.onnx.registry import converts, register
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES
from weft.ir import DType, Expr

DOMAIN = "com.microsoft"
_SOFTMAX_OF_ONE_AXIS = 13


def _name(op_type: str) -> str:
    return f"{DOMAIN}::{op_type}"


def _scalar(node: Node, index: int) -> Expr:
    return reshape_to(node, node.input(index), ())


def _scaling(node: Node, first: int) -> Scaling:
    """Return the scale in input ``first`` and the optional zero point in the next input."""
    zero = _scalar(node, first + 1) if node.has_input(first + 1) else None
    return Scaling(_scalar(node, first), zero)


def _real(node: Node, index: int) -> Expr:
    """Dequantise input ``index``; the next two inputs are its scale and zero point."""
    return dequantized(node, node.input(index), _scaling(node, index + 1))


def _stored(node: Node, value: Expr, first: int, stored_like: int = 0) -> Expr:
    """Quantise ``value`` with the scale in input ``first`` and the zero point in the next one.

    The dtype is that of the zero point, or of input ``stored_like`` if the zero point is omitted.
    """
    dtype = node.dtype(first + 1 if node.has_input(first + 1) else stored_like)
    return quantized(node, value, _scaling(node, first), dtype)


def _on(node: Node, *inputs: Value | None) -> Node:
    """Return ``node`` with other inputs, to call the converter of the float operator."""
    return replace(node, inputs=inputs)


# Unary operators. Inputs: X, its scale and zero point, the scale and zero point of the result.


def _unary(function: Callable[[Node], Expr]) -> Callable[[Node], Expr]:
    return lambda node: _stored(node, function(_on(node, _real(node, 0))), 3)


def _sigmoid(node: Node) -> Expr:
    return node.call(op.sigmoid, node.input(0))


def _softmax(node: Node) -> Expr:
    """Softmax as defined in ``opset``: before 13 over all axes from ``axis`` on, flattened."""
    newer = node.attrs.integer("opset", _SOFTMAX_OF_ONE_AXIS) >= _SOFTMAX_OF_ONE_AXIS
    return softmax(node) if newer else softmax_flattened(node)


def _reduce_mean(node: Node) -> Expr:
    axes = reduced_axes(node, node.attrs.integers("axes"))
    keepdims = node.attrs.flag("keepdims", True)
    return node.call(op.mean, node.input(0), axis=axes, keepdims=keepdims)


def _channels_first(pool: Callable[[Node], Expr]) -> Callable[[Node], Expr]:
    """Transpose (N, axes…, C) data around ``pool`` if ``channels_last`` is set."""

    def convert(node: Node) -> Expr:
        if not node.attrs.flag("channels_last"):
            return pool(node)
        rank = node.rank()
        images = node.call(op.transpose, node.input(0), axes=(0, rank - 1, *range(1, rank - 1)))
        pooled = pool(_on(node, images))
        return node.call(op.transpose, pooled, axes=(0, *range(2, rank), 1))

    return convert


_UNARY: dict[str, tuple[Callable[[Node], Expr], Sequence[str]]] = {
    "QLinearSigmoid": (_sigmoid, ()),
    "QLinearLeakyRelu": (leaky_relu, ("alpha",)),
    "QLinearSoftmax": (_softmax, ("axis", "opset")),
    "QLinearReduceMean": (_reduce_mean, ("axes", "keepdims")),
    "QLinearGlobalAveragePool": (_channels_first(global_average_pool), ("channels_last",)),
    "QLinearAveragePool": (
        _channels_first(average_pool),
        (*WINDOW_ATTRIBUTES, "ceil_mode", "channels_last", "count_include_pad"),
    ),
}
for _op, (_function, _attributes) in _UNARY.items():
    register(_name(_op), _unary(_function), attributes=_attributes)


# Operators of several tensors, each followed by its scale and zero point.


@converts(_name("QLinearAdd"))
def qlinear_add(node: Node) -> Expr:
    return _stored(node, node.call(op.add, _real(node, 0), _real(node, 3)), 6)


@converts(_name("QLinearMul"))
def qlinear_mul(node: Node) -> Expr:
    return _stored(node, node.call(op.multiply, _real(node, 0), _real(node, 3)), 6)


@converts(_name("QLinearWhere"))
def qlinear_where(node: Node) -> Expr:
    chosen = node.call(op.where, node.input(0), _real(node, 1), _real(node, 4))
    return _stored(node, chosen, 7, stored_like=1)


@converts(_name("QLinearConcat"), attributes=("axis",))
def qlinear_concat(node: Node) -> Expr:
    """The scale and zero point of the result come first."""
    parts = [_real(node, i) for i in range(2, len(node.inputs), 3)]
    if not parts:
        raise node.fail("no inputs to concatenate", expected="a tensor, its scale and zero point")
    return _stored(node, concat(_on(node, *parts)), 0, stored_like=2)


register(_name("QuantizeLinear"), quantize_linear, attributes=("axis",))
register(_name("DequantizeLinear"), dequantize_linear, attributes=("axis",))


# Matmuls.


@converts(_name("QGemm"), attributes=("alpha", "transA", "transB"))
def qgemm(node: Node) -> Expr:
    """Inputs: A and B with scales and zero points, an int32 C at the scale of the product.

    The result is float if its scale is omitted.
    """
    a = transposed(node, node.input(0)) if node.attrs.flag("transA") else node.input(0)
    b = transposed(node, node.input(3)) if node.attrs.flag("transB") else node.input(3)
    product = integer_product(_on(node, a, *node.inputs[1:3], b, *node.inputs[4:]), 0, 2, 3, 5)
    if node.has_input(6):
        product = node.call(op.add, product, node.input(6))
    alpha = node.scalar_like(node.attrs.number("alpha", 1.0), node.input(1))
    left = node.call(op.multiply, _scalar(node, 1), alpha)
    value = _scaled(node, product, left, spread_along(node, node.input(4), 3, -1))
    return _stored(node, value, 7) if node.has_input(7) else value


def _scaled(node: Node, product: Expr, left: Expr, right: Expr) -> Expr:
    """Scale the product of stored integers to a float."""
    scale = node.call(op.multiply, left, right)
    real = node.call(op.cast, product, dtype=tensor_type(scale).dtype.name)
    return node.call(op.multiply, real, scale)


@converts(_name("MatMulIntegerToFloat"))
def matmul_integer_to_float(node: Node) -> Expr:
    """Inputs: A, B, their scales, their zero points, and an optional float bias."""
    product = integer_product(node, 0, 4, 1, 5)
    left, right = (spread_along(node, node.input(2 + i), i, i - 2) for i in range(2))
    value = _scaled(node, product, left, right)
    return node.call(op.add, value, node.input(6)) if node.has_input(6) else value


@converts(_name("DynamicQuantizeMatMul"))
def dynamic_quantize_matmul(node: Node) -> Expr:
    """Inputs: float A, quantised at run time; B, its scale and zero point; an optional bias."""
    stored, scaling = _dynamically_quantized(node, node.input(0))
    rest = [node.inputs[i] if node.has_input(i) else None for i in (3, 4)]
    inputs = (stored, node.input(1), scaling.scale, node.input(2), scaling.zero, *rest)
    return matmul_integer_to_float(replace(node, inputs=inputs))


def _dynamically_quantized(node: Node, x: Expr) -> tuple[Expr, Scaling]:
    """Quantise ``x`` to uint8; the scale and zero point cover its range and zero."""
    zero = node.scalar_like(0, x)
    low = node.call(op.minimum, node.call(op.min, x), zero)
    high = node.call(op.maximum, node.call(op.max, x), zero)
    extent = node.call(op.subtract, high, low)
    scale = node.call(op.divide, extent, node.scalar_like(255, x))
    scale = node.call(op.where, node.call(op.equal, extent, zero), node.scalar_like(1, x), scale)
    point = node.call(op.round, node.call(op.divide, node.call(op.negative, low), scale))
    byte = DType.of("uint8")
    point = node.call(op.cast, node.call(op.clip, point, a_min=0.0, a_max=255.0), dtype=byte.name)
    scaling = Scaling(scale, point)
    return quantized(node, x, scaling, byte), scaling
