"""Converters of quantised programs (``quantized_decomposed``, as PT2E writes them) and of int8 mm.

One scale per tensor or channel becomes ``qnn.quantize`` and ``qnn.dequantize``, from which the
compiler makes integer GEMMs and convolutions. Scales per token or group stay arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from weft import op
from weft.frontend.torch.aten.linear import transposed
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in, size_of
from weft.frontend.torch.registry import converts
from weft.ir import DType
from weft.ir.expr import Constant, Expr
from weft.op.qnn.composed import INTEGERS

_LIBRARY = "quantized_decomposed."


def _names(*names: str) -> tuple[str, ...]:
    return tuple(_LIBRARY + name for name in names)


def _integer(node: Node, dtype: torch.dtype) -> DType:
    found = node.dtype_named(dtype)
    if found.name not in INTEGERS:
        raise node.unsupported(f"the dtype {found}", expected=", ".join(INTEGERS))
    return found


def _bound(node: Node, value: Any) -> int:
    """A limit of the stored integers, which some overloads have as a tensor."""
    if isinstance(value, Constant) and value.data.size == 1:
        return int(value.data.reshape(()).item())
    if isinstance(value, Expr):
        raise node.unsupported("limits of integers that are computed at run time")
    return int(value)


def _parameter(node: Node, value: Any, dtype: str, *, vector: bool) -> Expr:
    """A scale (float32) or zero point (int32): a scalar, or a vector per channel."""
    found = node.tensor(0 if value is None else value, dtype)
    if isinstance(found, Constant):
        _check_parameter(node, found.data)
    if vector and size_of(found) != 1:
        return node.reshape(found, (size_of(found),))
    return node.reshape(found, ())


def _check_parameter(node: Node, value: np.ndarray) -> None:
    if value.dtype.kind == "f" and not (np.isfinite(value) & (value > 0)).all():
        raise node.fail("a scale is not a positive number", got=str(value.reshape(-1)[:4]))


def _check_zero(node: Node, zero: Expr, dtype: DType) -> None:
    limits = ml_dtypes.iinfo(dtype.numpy)
    if isinstance(zero, Constant) and not (
            (zero.data >= limits.min) & (zero.data <= limits.max)).all():
        raise node.fail("a zero point is out of range", got=str(zero.data.reshape(-1)[:4]),
                        expected=f"{limits.min} to {limits.max}, the range of {dtype}")


def _quantized(node: Node, x: Expr, scale: Any, zero: Any, axis: int | None,
               limits: tuple[Any, Any], dtype: torch.dtype) -> Expr:
    stored, vector = _integer(node, dtype), axis is not None
    zero = _parameter(node, zero, "int32", vector=vector)
    _check_zero(node, zero, stored)
    result = node.call(op.qnn.quantize, x, _parameter(node, scale, "float32", vector=vector), zero,
                       axis=-1 if axis is None else axis_of(axis, rank_of(x)),
                       out_dtype=stored.name)
    return _clipped(node, result, limits)


def _clipped(node: Node, stored: Expr, limits: tuple[Any, Any]) -> Expr:
    low, high = (_bound(node, limit) for limit in limits)
    full = ml_dtypes.iinfo(dtype_in(stored).numpy)
    if low <= full.min and high >= full.max:
        return stored
    return node.call(op.clip, stored, a_min=float(low), a_max=float(high))


def _dequantized(node: Node, x: Expr, scale: Any, zero: Any, axis: int | None) -> Expr:
    vector = axis is not None
    zero = _parameter(node, zero, "int32", vector=vector)
    if dtype_in(x).name not in INTEGERS:
        raise node.unsupported(f"the dtype {dtype_in(x)}", expected=", ".join(INTEGERS))
    _check_zero(node, zero, dtype_in(x))
    real = node.call(op.qnn.dequantize, x, _parameter(node, scale, "float32", vector=vector), zero,
                     axis=-1 if axis is None else axis_of(axis, rank_of(x)))
    return node.cast(real, node.dtype())


@converts(*_names("quantize_per_tensor"))
def quantize_per_tensor(node: Node, x: Expr, scale: Any, zero: Any, low: Any, high: Any,
                        dtype: torch.dtype) -> Expr:
    return _quantized(node, x, scale, zero, None, (low, high), dtype)


@converts(*_names("dequantize_per_tensor"))
def dequantize_per_tensor(node: Node, x: Expr, scale: Any, zero: Any, _low: Any, _high: Any,
                          _dtype: torch.dtype, _out: Any = None) -> Expr:
    return _dequantized(node, x, scale, zero, None)


@converts(*_names("quantize_per_channel"))
def quantize_per_channel(node: Node, x: Expr, scales: Expr, zeros: Expr, axis: int, low: int,
                         high: int, dtype: torch.dtype) -> Expr:
    return _quantized(node, x, scales, zeros, axis, (low, high), dtype)


@converts(*_names("dequantize_per_channel"))
def dequantize_per_channel(node: Node, x: Expr, scales: Expr, zeros: Expr | None, axis: int,
                           _low: int, _high: int, _dtype: torch.dtype, _out: Any = None) -> Expr:
    return _dequantized(node, x, scales, zeros, axis)


@converts(*_names("fake_quant_per_channel"))
def fake_quant_per_channel(node: Node, x: Expr, scales: Expr, zeros: Expr, axis: int, low: int,
                           high: int) -> Expr:
    stored = torch.uint8 if low >= 0 and high <= 255 else torch.int8
    if high - low > 255:
        stored = torch.int32
    integers = _quantized(node, x, scales, zeros, axis, (low, high), stored)
    return _dequantized(node, integers, scales, zeros, axis)


# Scales of a token (the last axis shares one), or of a group of neighbours.


@converts(*_names("quantize_per_token"))
def quantize_per_token(node: Node, x: Expr, scales: Expr, zeros: Expr, low: int, high: int,
                       dtype: torch.dtype) -> Expr:
    stored = _integer(node, dtype)
    steps = node.call(op.divide, node.cast(x, "float32"), node.cast(scales, "float32"))
    steps = node.call(op.round, node.call(op.add, steps, node.cast(zeros, "float32")))
    return node.cast(node.call(op.clip, steps, a_min=float(low), a_max=float(high)), stored)


@converts(*_names("dequantize_per_token"))
def dequantize_per_token(node: Node, x: Expr, scales: Expr, zeros: Expr, _low: int, _high: int,
                         _dtype: torch.dtype, _out: torch.dtype) -> Expr:
    centred = node.call(op.subtract, node.cast(x, "float32"), node.cast(zeros, "float32"))
    return node.cast(node.call(op.multiply, centred, node.cast(scales, "float32")), node.dtype())


def _groups(node: Node, x: Expr, values: Expr, size: int) -> Expr:
    """Scales or zero points of groups along the last axis, float32 (rows, groups, 1)."""
    rows, columns = shape_in(x)
    if size < 1 or columns % size:
        raise node.fail("the groups do not divide the last axis", got=str(size),
                        expected=f"a divisor of {columns}")
    return node.reshape(node.cast(values, "float32"), (rows, columns // size, 1))


def _apart(node: Node, x: Expr, size: int) -> Expr:
    rows, columns = shape_in(x)
    return node.reshape(x, (rows, columns // size, size))


@converts(*_names("quantize_per_channel_group"))
def quantize_per_channel_group(node: Node, x: Expr, scales: Expr, zeros: Expr, low: int, high: int,
                               dtype: torch.dtype, size: int) -> Expr:
    shared = [_groups(node, x, values, size) for values in (scales, zeros)]
    found = quantize_per_token(node, _apart(node, x, size), *shared, low, high, dtype)
    return node.reshape(found, shape_in(x))


@converts(*_names("dequantize_per_channel_group"))
def dequantize_per_channel_group(node: Node, x: Expr, scales: Expr, zeros: Expr | None, _low: int,
                                 _high: int, _dtype: torch.dtype, size: int, _out: torch.dtype
                                 ) -> Expr:
    shared = _groups(node, x, scales, size)
    apart = node.cast(_apart(node, x, size), "float32")
    if zeros is not None:
        apart = node.call(op.subtract, apart, _groups(node, x, zeros, size))
    real = node.reshape(node.call(op.multiply, apart, shared), shape_in(x))
    return node.cast(real, node.dtype())


# Scales and zero points that are found at run time.


def _range(node: Node, x: Expr, axes: Sequence[int] | None) -> tuple[Expr, Expr]:
    """The least and the largest value, float32, including zero."""
    x = node.cast(x, "float32")
    zero = node.constant(0.0, "float32")
    kept = {} if axes is None else {"axis": tuple(axes), "keepdims": True}
    return (node.call(op.minimum, node.call(op.min, x, **kept), zero),
            node.call(op.maximum, node.call(op.max, x, **kept), zero))


def _results(node: Node, scale: Expr, zero: Expr) -> tuple[Expr, Expr]:
    """Both, in the dtypes and shapes that torch has."""
    made = []
    for index, value in enumerate((scale, zero)):
        shape = tuple(int(size) for size in node.result[index].shape) if rank_of(value) < 1 \
            else shape_in(value)
        made.append(node.cast(node.reshape(value, shape), node.dtype(index)))
    return made[0], made[1]


@converts(*_names("choose_qparams.tensor"))
def choose_qparams(node: Node, x: Expr, low: int, high: int, eps: float, _dtype: torch.dtype
                   ) -> tuple[Expr, Expr]:
    least, most = _range(node, x, None)
    scale = node.call(op.divide, node.call(op.subtract, most, least),
                      node.constant(high - low, "float32"))
    scale = node.call(op.maximum, scale, node.constant(eps, "float32"))
    zero = node.call(op.subtract, node.constant(low, "float32"),
                     node.call(op.round, node.call(op.divide, least, scale)))
    return _results(node, scale, node.call(op.clip, zero, a_min=float(low), a_max=float(high)))


@converts(*_names("choose_qparams_symmetric.tensor"))
def choose_qparams_symmetric(node: Node, x: Expr, low: int, high: int, eps: float,
                             dtype: torch.dtype) -> tuple[Expr, Expr]:
    least, most = _range(node, x, None)
    largest = node.call(op.maximum, node.call(op.negative, least), most)
    scale = node.call(op.divide, largest, node.constant((high - low) / 2, "float32"))
    scale = node.call(op.maximum, scale, node.constant(eps, "float32"))
    return _results(node, scale, node.constant(128 if dtype == torch.uint8 else 0, "float32"))


@converts(*_names("choose_qparams_per_token"))
def choose_qparams_per_token(node: Node, x: Expr, _dtype: torch.dtype) -> tuple[Expr, Expr]:
    largest = node.call(op.max, node.call(op.abs, node.cast(x, "float32")), axis=(-1,),
                        keepdims=True)
    scale = node.call(op.divide, node.call(op.maximum, largest, node.constant(1e-5, "float32")),
                      node.constant(127, "float32"))
    return _results(node, scale, node.call(op.zeros_like, scale))


@converts(*_names("choose_qparams_per_token_asymmetric"))
def choose_qparams_per_token_asymmetric(node: Node, x: Expr, _dtype: torch.dtype
                                        ) -> tuple[Expr, Expr]:
    """int8; the zero point is rounded at the end of the range that it errs less at."""
    least, most = _range(node, x, (-1,))
    scale = node.call(op.divide, node.call(op.subtract, most, least),
                      node.constant(255, "float32"))
    eps = float(np.finfo(np.float32).eps)
    scale = node.call(op.maximum, scale, node.constant(eps, "float32"))
    low, high = (node.call(op.divide, value, scale) for value in (least, most))
    first, last = (node.constant(value, "float32") for value in (-128, 127))
    error = node.call(op.add, node.call(op.add, first, low), node.call(op.add, last, high))
    zero = node.call(op.where, node.call(op.greater, error, node.constant(0, "float32")),
                     node.call(op.subtract, first, low), node.call(op.subtract, last, high))
    zero = node.call(op.round, node.call(op.clip, zero, a_min=-128.0, a_max=127.0))
    return _results(node, scale, zero)


@converts(*_names("convert_element_type.no_fuse"))
def convert_element_type(node: Node, x: Expr, dtype: torch.dtype) -> Expr:
    return node.cast(x, node.dtype_named(dtype))


@converts("_int_mm")
def int_mm(node: Node, a: Expr, b: Expr) -> Expr:
    """The matmul of int8 matrices, int32."""
    return node.call(op.nn.dense, a, transposed(node, b), out_dtype="int32")
