"""Quantized concatenate, avg_pool2d and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir import Expr, OpPattern, Tuple, TupleGetItem, TupleType, attr, op_case
from weft.op.broadcast import multiply
from weft.op.elementwise import cast
from weft.op.nn.pool import AvgPool2DAttrs, avg_pool2d
from weft.op.nn.softmax import softmax
from weft.op.qnn.arithmetic import BYTES, UNARY_ROLES
from weft.op.qnn.composed import Quantized, define_composed, scale, zero
from weft.op.qnn.scaling import (
    FLOAT,
    RoundingAttrs,
    along,
    centred,
    dequantized,
    dtype_of,
    ndim_of,
    np_along,
    np_centred,
    np_dequantized,
    np_quantized,
    np_steps_of,
    np_stored,
    quantized,
    ratio_of,
    steps_of,
    stored,
)
from weft.op.transform.join import concatenate
from weft.support.dataclass import dataclass

_IN, _OUT = (np.float32(0.05), np.int32(3)), (np.float32(0.03), np.int32(-4))
_BYTES = {"dtypes": "int8", "low": -128, "high": 127}


@dataclass(frozen=True, kw_only=True)
class ConcatenateAttrs(RoundingAttrs):
    axis: int = attr(0, "axis along which the tensors are joined; negative counts from the end")


def _fields(expr: Expr) -> list[Expr]:
    """The tensors of a tuple."""
    if isinstance(expr, Tuple):
        return list(expr.fields)
    type_ = expr.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    fields = type_.fields if isinstance(type_, TupleType) else ()
    return [TupleGetItem(expr, i, checked_type=fields[i]) for i in range(count)]


def _concatenate(data: Expr, scales: Expr, zeros: Expr, s: Expr, z: Expr,
                 attrs: ConcatenateAttrs) -> Expr:
    """Each tensor is requantized to the result's scale; then all are joined."""
    parts = zip(_fields(data), _fields(scales), _fields(zeros), strict=True)
    alike = [stored(steps_of(x, xs, xz, s), along(z, -1, ndim_of(x)), dtype_of(x), attrs.rounding)
             for x, xs, xz in parts]
    return concatenate(Tuple(tuple(alike)), axis=attrs.axis)


def _concatenate_reference(
    data: tuple[np.ndarray, ...], scales: tuple[np.ndarray, ...], zeros: tuple[np.ndarray, ...],
    s: np.ndarray, z: np.ndarray, axis: int = 0, rounding: str = "even",
) -> np.ndarray:
    alike = [np_stored(np_steps_of(x, xs, xz, s), np_along(z, -1, x.ndim), x.dtype, rounding)
             for x, xs, xz in zip(data, scales, zeros, strict=True)]
    return np.concatenate(alike, axis)


_SCALES, _ZEROS = [np.float32(0.05), np.float32(0.02)], [np.int32(3), np.int32(-9)]
qnn_concatenate = define_composed(
    "qnn.concatenate", _concatenate, _concatenate_reference,
    op_case([(2, 3), (2, 4)], _SCALES, _ZEROS, *_OUT, axis=1, **_BYTES),
    op_case([(2, 3), (0, 3)], _SCALES, _ZEROS, *_OUT, **_BYTES),
    op_case([(2, 1, 3), (2, 2, 3)], _SCALES, _ZEROS, *_OUT, axis=-2, rounding="upward", **_BYTES),
    roles=(("data", Quantized(BYTES, many=True)), ("input_scales", scale(many=True)),
           ("input_zero_points", zero(many=True)),
           ("output_scale", scale()), ("output_zero_point", zero())),
    attrs=ConcatenateAttrs, pattern=OpPattern.INJECTIVE,
    doc="Quantized tensors, each with its own scale and zero point, joined along an axis.",
)


def _avg_pool2d(x: Expr, s: Expr, z: Expr, out_s: Expr, out_z: Expr,
                attrs: AvgPool2DAttrs) -> Expr:
    """Sums of integers are exact; their average is rescaled."""
    ndim = ndim_of(x)
    steps = avg_pool2d(cast(centred(x, z), dtype=FLOAT), **dict(attrs.items()))
    return stored(multiply(steps, ratio_of(s, out_s, -1, ndim)), along(out_z, -1, ndim),
                  dtype_of(x))


def _avg_pool2d_reference(x: np.ndarray, s: np.ndarray, z: np.ndarray, out_s: np.ndarray,
                          out_z: np.ndarray, **attrs: Any) -> np.ndarray:
    meaning: Any = avg_pool2d.reference
    steps = meaning(np_centred(x, z).astype(np.float32), **attrs)
    steps = steps * (np_along(s, -1, x.ndim) / np_along(out_s, -1, x.ndim))
    return np_stored(steps, np_along(out_z, -1, x.ndim), x.dtype)


qnn_avg_pool2d = define_composed(
    "qnn.avg_pool2d", _avg_pool2d, _avg_pool2d_reference,
    op_case((1, 2, 6, 8), *_IN, *_OUT, pool_size=(2, 4), strides=(2, 2), **_BYTES),
    op_case((2, 2, 7, 7), *_IN, *_OUT, pool_size=(4, 4), strides=(3, 3), padding=(1, 1),
            count_include_pad=True, **_BYTES),
    op_case((1, 4, 4, 3), *_IN, *_OUT, pool_size=(2, 2), strides=(2, 2), layout="NHWC", **_BYTES),
    roles=UNARY_ROLES, attrs=AvgPool2DAttrs,
    doc="``nn.avg_pool2d`` of a quantized tensor; padding represents real zeros; halves to even.",
)


@dataclass(frozen=True, kw_only=True)
class SoftmaxAttrs(RoundingAttrs):
    axis: int = attr(-1, "axis normalised over; negative counts from the end")


def _softmax(x: Expr, s: Expr, z: Expr, out_s: Expr, out_z: Expr, attrs: SoftmaxAttrs) -> Expr:
    real = softmax(dequantized(x, s, z), axis=attrs.axis)
    return quantized(real, ndim_of(x), out_s, out_z, dtype_of(x), rounding=attrs.rounding)


def _softmax_reference(
    x: np.ndarray, s: np.ndarray, z: np.ndarray, out_s: np.ndarray, out_z: np.ndarray,
    axis: int = -1, rounding: str = "even",
) -> np.ndarray:
    real = np_dequantized(x, s, z).astype(np.float64)
    powers = np.exp(real - real.max(axis, keepdims=True, initial=-np.inf))
    share = powers / powers.sum(axis, keepdims=True)
    return np_quantized(share.astype(np.float32), out_s, out_z, x.dtype, rounding=rounding)


_SHARE = (np.float32(1 / 256), np.int32(-128))
qnn_softmax = define_composed(
    "qnn.softmax", _softmax, _softmax_reference,
    op_case((3, 5), *_IN, *_SHARE, **_BYTES), op_case((2, 4, 3), *_IN, *_SHARE, axis=1, **_BYTES),
    op_case((0, 4), *_IN, *_SHARE, **_BYTES),
    roles=UNARY_ROLES, attrs=SoftmaxAttrs,
    doc="The softmax of a quantized tensor along an axis, computed in float32 and requantized.",
)
