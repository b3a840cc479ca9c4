"""Converters between element types."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.protos import TensorProto
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import DType, Expr

_SCALE_ONLY = "float8_e8m0fnu"
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-127, 2.0**127
_ROUND_MODES = ("up", "down", "nearest")


@converts("Cast", attributes=("to", "saturate", "round_mode"))
def cast(node: Node) -> Expr:
    code = node.attrs.integer("to", TensorProto.UNDEFINED)
    return _converted(node, dtype_of(code, "the result of Cast", node.span))


@converts("CastLike", attributes=("saturate", "round_mode"))
def cast_like(node: Node) -> Expr:
    return _converted(node, node.dtype(1))


@converts("BitCast", since=26, attributes=("to",))
def bit_cast(node: Node) -> Expr:
    """Reinterpret the bits of each element as another dtype of the same size."""
    code = node.attrs.integer("to", TensorProto.UNDEFINED)
    dtype, source = dtype_of(code, "the result of BitCast", node.span), node.dtype()
    if dtype == source:
        return node.input(0)
    if dtype.itemsize != source.itemsize:
        raise node.fail("the types differ in size", expected=str(source), got=str(dtype))
    value = node.input(0)
    if source.is_bool:  # stored as a byte that is 0 or 1
        value, source = node.call(op.cast, value, dtype="uint8"), DType.of("uint8")
    if dtype.is_bool:
        byte = node.call(op.reinterpret, value, dtype="uint8") if source.name != "uint8" else value
        return node.call(op.cast, byte, dtype="bool")
    return value if dtype == source else node.call(op.reinterpret, value, dtype=dtype.name)


def _converted(node: Node, dtype: DType) -> Expr:
    """Cast input 0 to ``dtype``; ``saturate`` and ``round_mode`` only affect 8-bit floats."""
    saturate = node.attrs.flag("saturate", True)
    if dtype.name == _SCALE_ONLY:
        return _rounded_to_scale(node, node.input(0), saturate)
    if saturate:
        return saturating_cast(node, node.input(0), dtype)
    return cast_to(node, node.input(0), dtype)


def cast_to(node: Node, value: Expr, dtype: DType) -> Expr:
    """Cast ``value`` to ``dtype``: floats are truncated to integers, integers wrap."""
    same = tensor_type(value).dtype == dtype
    return value if same else node.call(op.cast, value, dtype=dtype.name)


def saturating_cast(node: Node, value: Expr, dtype: DType) -> Expr:
    """Cast like ``cast_to``, but clip to the finite range if ``dtype`` is an 8-bit float."""
    source = tensor_type(value).dtype
    if not dtype.is_small_float or source == dtype or source.is_bool:
        return cast_to(node, value, dtype)
    if source.is_small_float:
        value = node.call(op.cast, value, dtype="float32")
    import ml_dtypes

    largest = float(ml_dtypes.finfo(dtype.numpy).max)
    return cast_to(node, node.call(op.clip, value, a_min=-largest, a_max=largest), dtype)


def _rounded_to_scale(node: Node, value: Expr, saturate: bool) -> Expr:
    """Round the magnitude of ``value`` to a float8_e8m0 power of two according to ``round_mode``.

    The sign is dropped, and zero becomes the smallest scale.
    """
    dtype = DType.of(_SCALE_ONLY)
    if tensor_type(value).dtype == dtype:
        return value
    mode = node.attrs.one_of("round_mode", "up", _ROUND_MODES)
    real = cast_to(node, value, DType.of("float32"))
    size = node.call(op.maximum, node.call(op.abs, real), node.scalar_like(_SMALLEST_SCALE, real))
    nearest = cast_to(node, cast_to(node, size, dtype), DType.of("float32"))
    power = nearest
    if mode != "nearest":
        is_off = node.call(op.less if mode == "up" else op.greater, nearest, size)
        factor = node.scalar_like(2.0 if mode == "up" else 0.5, real)
        power = node.call(op.where, is_off, node.call(op.multiply, nearest, factor), nearest)
    if saturate or mode == "down":
        is_finite = node.call(op.isfinite, size)
        bound = node.scalar_like(_LARGEST_SCALE, real)
        is_above = node.call(op.logical_not, node.call(op.less_equal, power, bound))
        power = node.call(op.where, node.call(op.logical_and, is_finite, is_above), bound, power)
    return cast_to(node, power, dtype)
