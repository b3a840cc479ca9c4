"""Converters of quantised matmul and convolution: MatMulInteger, ConvInteger, QLinear*."""

from __future__ import annotations

from dataclasses import replace

from weft import op
from weft.frontend.onnx.node import Node, constant_value, tensor_type
from weft.frontend.onnx.ops.conv_volume import convolve
from weft.frontend.onnx.ops.linear import multiplied
from weft.frontend.onnx.ops.quantize import Scaling, quantized
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, window_of
from weft.ir import DType, Expr


def _centred(node: Node, value: int, zero: int, *, vector_axis: int) -> Expr:
    """Subtract the zero point in input ``zero`` from input ``value``, in int32.

    A vector of zero points is broadcast along ``vector_axis`` of the value.
    """
    wide = node.call(op.cast, node.input(value), dtype="int32")
    if not node.has_input(zero):
        return wide
    point = node.call(op.cast, node.input(zero), dtype="int32")
    return node.call(op.subtract, wide, spread_along(node, point, value, vector_axis))


def spread_along(node: Node, vector: Expr, value: int, axis: int) -> Expr:
    """Reshape a scalar or vector to broadcast along ``axis`` of input ``value``."""
    shape = tensor_type(vector).shape
    if shape in ((), (1,)):
        return reshape_to(node, vector, ())
    rank = node.rank(value)
    if len(shape) > 1:
        return vector
    return reshape_to(node, vector, (shape[0], *(1,) * (rank - 1 - axis % rank)))


def _byte_product(node: Node, a: int, a_zero: int, b: int, b_zero: int) -> Expr:
    """Matmul of inputs ``a`` and ``b`` minus their zero points ``x`` and ``y``, in int32.

    ``(a - x) (b - y) = a b - x sum(b) - sum(a) y + K x y``, so the matmul reads the 8-bit operands;
    the sums of constant operands are folded.
    """
    left, right = node.input(a), node.input(b)
    product = multiplied(node, left, right, "int32")
    x = _zero_point(node, a, a_zero, axis=-2)
    y = _zero_point(node, b, b_zero, axis=-1)
    depth = tensor_type(left).shape[-1]
    if x is not None:
        sums = node.call(op.sum, _wide(node, right), axis=(-2,), keepdims=True)
        if y is not None:
            part = node.call(op.multiply, node.constant(depth, "int32"), y)
            sums = node.call(op.subtract, sums, part)
        product = node.call(op.subtract, product, node.call(op.multiply, sums, x))
    if y is not None:
        sums = node.call(op.sum, _wide(node, left), axis=(-1,), keepdims=True)
        product = node.call(op.subtract, product, node.call(op.multiply, sums, y))
    return product


def _wide(node: Node, value: Expr) -> Expr:
    return node.call(op.cast, value, dtype="int32")


def _zero_point(node: Node, value: int, zero: int, *, axis: int) -> Expr | None:
    """Return the zero point in input ``zero`` as int32; ``None`` if it is absent or constant 0."""
    if not node.has_input(zero):
        return None
    known = constant_value(node.input(zero))
    if known is not None and not known.any():
        return None
    return spread_along(node, _wide(node, node.input(zero)), value, axis)


def _can_multiply_bytes(node: Node, a: int, b: int) -> bool:
    """Whether both inputs have rank 2 or more and K is fixed."""
    return min(node.rank(a), node.rank(b)) > 1 and isinstance(node.shape(a)[-1], int)


def integer_product(node: Node, a: int, a_zero: int, b: int, b_zero: int) -> Expr:
    """NumPy's ``matmul`` of inputs ``a`` and ``b`` minus their zero points, in int32."""
    if _can_multiply_bytes(node, a, b):
        return _byte_product(node, a, a_zero, b, b_zero)
    left = _centred(node, a, a_zero, vector_axis=-2)
    return multiplied(node, left, _centred(node, b, b_zero, vector_axis=-1))


@converts("MatMulInteger", since=10)
def matmul_integer(node: Node) -> Expr:
    return integer_product(node, 0, 2, 1, 3)


@converts("ConvInteger", since=10, attributes=(*WINDOW_ATTRIBUTES, "group"))
def conv_integer(node: Node) -> Expr:
    return _byte_convolution(node, 0, 2, 1, 3)


def _byte_convolution(node: Node, x: int, x_zero: int, w: int, w_zero: int) -> Expr:
    """Convolve inputs ``x`` and ``w`` minus their zero points, in int32.

    If the weight has no zero point and there is one group, the 8-bit operands are convolved, with
    the border padded by the zero point of ``x``; then zero point * sum(weight) is subtracted.
    Otherwise both operands are upcast to int32 first.
    """
    data, weight = node.input(x), node.input(w)
    kernel = [d for d in tensor_type(weight).shape[2:] if isinstance(d, int)]
    window = window_of(node, kernel, node.shape(x)[2:])
    groups = node.attrs.integer("group", 1)
    zero = _zero_point(node, x, x_zero, axis=0)
    if _zero_point(node, w, w_zero, axis=0) is not None or groups > 1:
        return convolve(node, _centred(node, x, x_zero, vector_axis=0),
                        _centred(node, w, w_zero, vector_axis=0), window, groups)
    if zero is None:
        return convolve(node, data, weight, window, groups, "int32")
    sides = ((0, 0), (0, 0), *zip(window.before, window.after, strict=True))
    border = reshape_to(node, node.input(x_zero), ())
    padded = node.call(op.nn.pad, data, border, pad_width=sides)
    nothing = (0,) * len(kernel)
    inner = replace(window, before=nothing, after=nothing)
    product = convolve(node, padded, weight, inner, groups, "int32")
    rank = tensor_type(weight).ndim
    sums = node.call(op.sum, _wide(node, weight), axis=tuple(range(1, rank)))
    sums = reshape_to(node, sums, (tensor_type(weight).shape[0], *(1,) * (rank - 2)))
    return node.call(op.subtract, product, node.call(op.multiply, sums, zero))


@converts("QLinearMatMul", since=10)
def qlinear_matmul(node: Node) -> Expr:
    """Inputs: a and b, each with scale and zero point, the scale and zero point of the result."""
    product = integer_product(node, 0, 2, 3, 5)
    scales = node.call(op.multiply, spread_along(node, node.input(1), 0, -2),
                       spread_along(node, node.input(4), 3, -1))
    return _requantized(node, product, scales)


@converts("QLinearConv", since=10, attributes=(*WINDOW_ATTRIBUTES, "group"))
def qlinear_conv(node: Node) -> Expr:
    """Inputs as in ``QLinearMatMul``, then an int32 bias at the scale of the product."""
    product = _byte_convolution(node, 0, 2, 3, 5)
    if node.has_input(8):
        product = node.call(op.nn.bias_add, product, node.input(8), axis=1)
    scale = node.input(4)
    if tensor_type(scale).shape not in ((), (1,)):
        scale = reshape_to(node, scale, (tensor_type(scale).shape[0], *(1,) * (node.rank() - 2)))
    scales = node.call(op.multiply, reshape_to(node, node.input(1), ()), scale)
    return _requantized(node, product, scales)


def _requantized(node: Node, product: Expr, scales: Expr) -> Expr:
    real = node.call(op.cast, product, dtype="float32")
    if tensor_type(scales).dtype != DType.of("float32"):
        scales = node.call(op.cast, scales, dtype="float32")
    value = node.call(op.multiply, real, scales)
    dtype = node.dtype(7)
    return quantized(node, value, Scaling(node.input(6), node.input(7)), dtype)
