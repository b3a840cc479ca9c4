"""Converters of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import ml_dtypes

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, constant_value, tensor_type
from weft.frontend.onnx.ops.cast import cast_to, saturating_cast
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import DType, Expr, float32
from weft.op.qnn.composed import INTEGERS
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError


@dataclass(frozen=True)
class Scaling:
    """Quantisation parameters: ``q`` represents ``scale * (q - zero)``; ``None`` is zero 0."""

    scale: Expr
    zero: Expr | None


def _along_axis(node: Node, value: Expr, like: Expr) -> Expr:
    """Reshape a vector of scales or zero points to broadcast along the attribute ``axis``.

    With ``block_size`` each scale is repeated for that many elements along the axis.
    """
    type_, shape = tensor_type(value), tensor_type(like).shape
    if type_.ndim == 0 or type_.shape == (1,):
        return reshape_to(node, value, ())
    axis = node.axis(node.attrs.integer("axis", 1), len(shape))
    block = node.attrs.integer("block_size", 0)
    if block:
        return _repeated(node, value, axis, block, shape[axis])
    if type_.ndim != 1:
        raise node.fail("the scales are neither a scalar nor a vector", got=str(type_))
    return reshape_to(node, value, (type_.shape[0], *(1,) * (len(shape) - axis - 1)))


def _repeated(node: Node, value: Expr, axis: int, block: int, size: object) -> Expr:
    shape = tensor_type(value).shape
    if not isinstance(size, int) or not all(isinstance(d, int) for d in shape):
        raise UnsupportedModelError(f"{node.op} in blocks of symbolic size", where=node.span)
    positions = node.constant(arrays.arange(size) // block, "int64")
    return node.call(op.take, value, positions, axis=axis, mode="clip")


def quantized(node: Node, x: Expr, scaling: Scaling, dtype: DType) -> Expr:
    """Quantise: round half to even, add the zero point, clip to the range of ``dtype``."""
    real = tensor_type(x).dtype
    scale = cast_to(node, scaling.scale, real)
    steps = node.call(op.round, node.call(op.divide, x, scale))
    if real.bits < 32:
        steps = node.call(op.cast, steps, dtype="float32")
    if scaling.zero is not None:
        steps = node.call(op.add, steps, cast_to(node, scaling.zero, tensor_type(steps).dtype))
    limits = ml_dtypes.iinfo(dtype.numpy)
    clipped = node.call(op.clip, steps, a_min=float(limits.min), a_max=float(limits.max))
    return node.call(op.cast, clipped, dtype=dtype.name)


def dequantized(node: Node, q: Expr, scaling: Scaling) -> Expr:
    """Dequantise: ``(q - zero) * scale``, with the difference in int32."""
    scale_dtype = tensor_type(scaling.scale).dtype
    wide = cast_to(node, q, DType.of("int32"))
    if scaling.zero is not None:
        wide = node.call(op.subtract, wide, cast_to(node, scaling.zero, DType.of("int32")))
    return node.call(op.multiply, cast_to(node, wide, scale_dtype), scaling.scale)


def scaling_at(node: Node, first: int, like: Expr) -> Scaling:
    """Return the scale and zero point in inputs ``first`` and ``first + 1`` for data ``like``."""
    zero = _along_axis(node, node.input(first + 1), like) if node.has_input(first + 1) else None
    return Scaling(_along_axis(node, node.input(first), like), zero)


def _quantized_float(node: Node, x: Expr, scaling: Scaling, dtype: DType) -> Expr:
    """Quantise to an 8-bit or 4-bit float; the zero point is 0 and only gives the dtype."""
    ratio = node.call(op.divide, x, cast_to(node, scaling.scale, tensor_type(x).dtype))
    if node.attrs.flag("saturate", True):
        return saturating_cast(node, ratio, dtype)
    return cast_to(node, ratio, dtype)


def _parameters(node: Node, x: Expr) -> tuple[Expr, Expr] | None:
    """Return the scale (float32) and zero point (int32) for the ``qnn`` operators.

    Returns ``None`` if the operators do not support the scale: another dtype, or blocks.
    """
    scale = tensor_type(node.input(1))
    if scale.dtype != float32 or scale.ndim > 1 or node.attrs.integer("block_size", 0):
        return None
    if scale.shape not in ((), (1,)) and tensor_type(x).ndim == 0:
        return None
    if not node.has_input(2):
        return node.input(1), node.constant(arrays.zeros(scale.concrete_shape), "int32")
    known = constant_value(node.input(2))
    if known is not None:
        return node.input(1), node.constant(known, "int32")
    return node.input(1), cast_to(node, node.input(2), DType.of("int32"))


def _axis(node: Node, x: Expr) -> int:
    """Return the axis of a vector of scales; -1 for a scalar scale, where it is unused."""
    if tensor_type(node.input(1)).shape in ((), (1,)):
        return -1
    return node.axis(node.attrs.integer("axis", 1), tensor_type(x).ndim)


@converts("QuantizeLinear", since=10,
          attributes=("axis", "block_size", "output_dtype", "precision", "saturate"))
def quantize_linear(node: Node) -> Expr:
    x = node.input(0)
    dtype = node.dtype(2) if node.has_input(2) else DType.of("uint8")
    if node.attrs.integer("output_dtype", 0):
        code = node.attrs.integer("output_dtype", 0)
        dtype = dtype_of(code, "the result of QuantizeLinear", node.span)
    if not dtype.is_int and not dtype.is_small_float:
        raise node.fail("the result is not a quantised dtype", got=str(dtype))
    if not tensor_type(x).dtype.is_float:
        x = node.call(op.cast, x, dtype="float32")
    if node.attrs.integer("precision", 0):
        code = node.attrs.integer("precision", 0)
        x = cast_to(node, x, dtype_of(code, "the precision of QuantizeLinear", node.span))
    parameters = _parameters(node, x)
    if parameters is not None and tensor_type(x).dtype == float32 and dtype.name in INTEGERS:
        return node.call(op.qnn.quantize, x, *parameters, out_dtype=dtype.name,
                         axis=_axis(node, x))
    scaling = scaling_at(node, 1, x)
    if dtype.is_small_float:
        return _quantized_float(node, x, scaling, dtype)
    return quantized(node, x, scaling, dtype)


@converts("DequantizeLinear", since=10, attributes=("axis", "block_size", "output_dtype"))
def dequantize_linear(node: Node) -> Expr:
    x = node.input(0)
    parameters = _parameters(node, x)
    if parameters is not None and node.dtype().name in INTEGERS:
        result = node.call(op.qnn.dequantize, x, *parameters, axis=_axis(node, x))
        return _in_output_dtype(node, result)
    scaling = scaling_at(node, 1, x)
    if node.dtype().is_small_float:
        real = tensor_type(scaling.scale).dtype
        result = node.call(op.multiply, cast_to(node, x, real), scaling.scale)
    else:
        result = dequantized(node, x, scaling)
    return _in_output_dtype(node, result)


def _in_output_dtype(node: Node, result: Expr) -> Expr:
    code = node.attrs.integer("output_dtype", 0)
    if not code:
        return result
    return cast_to(node, result, dtype_of(code, "the result of DequantizeLinear", node.span))
