"""Elementwise functions of quantized tensors: computed in float32, and requantized.

A result is the integer nearest to the float32 result; where that is within the error of a
transcendental function (2 ulp) of a half, it may be the neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir import Case, Expr, Op, OpPattern, attr, const, infer_expr, op_case
from weft.op import elementwise
from weft.op.broadcast import (
    add,
    divide,
    greater_equal,
    maximum,
    minimum,
    multiply,
    subtract,
    where,
)
from weft.op.elementwise import cast
from weft.op.qnn.composed import Build, Quantized, define_composed, scale, zero
from weft.op.qnn.scaling import (
    DOUBLE,
    FLOAT,
    RoundingAttrs,
    along,
    dequantized,
    dtype_of,
    ndim_of,
    np_along,
    np_dequantized,
    np_quantized,
    np_steps_of,
    np_stored,
    quantized,
    steps_of,
    stored,
)
from weft.support.dataclass import dataclass

BYTES = ("int8", "uint8", "int16")
_IN, _OUT = (np.float32(0.05), np.int32(3)), (np.float32(0.03), np.int32(-4))
_PLAIN = (np.float32(1), np.int32(0))


@dataclass(frozen=True, kw_only=True)
class BinaryAttrs(RoundingAttrs):
    lhs_axis: int = attr(-1, "axis along which the parameters of lhs vary, if they do")
    rhs_axis: int = attr(-1, "axis along which the parameters of rhs vary, if they do")


def _lhs_axis(attrs: Any, _: int) -> int:
    axis: int = attrs.lhs_axis
    return axis


def _rhs_axis(attrs: Any, _: int) -> int:
    axis: int = attrs.rhs_axis
    return axis


def _sum(name: str, combine: Op, reference: Callable[..., np.ndarray], doc: str) -> Op:
    """Both operands are rescaled to the result's scale, and added or subtracted."""

    def build(x: Expr, y: Expr, xs: Expr, xz: Expr, ys: Expr, yz: Expr, s: Expr, z: Expr,
              attrs: BinaryAttrs) -> Expr:
        steps = combine(steps_of(x, xs, xz, s, attrs.lhs_axis, DOUBLE),
                        steps_of(y, ys, yz, s, attrs.rhs_axis, DOUBLE))
        return stored(steps, along(z, -1, 1), dtype_of(x), attrs.rounding, DOUBLE)

    def meaning(
        x: np.ndarray, y: np.ndarray, xs: np.ndarray, xz: np.ndarray, ys: np.ndarray,
        yz: np.ndarray, s: np.ndarray, z: np.ndarray, lhs_axis: int = -1, rhs_axis: int = -1,
        rounding: str = "even",
    ) -> np.ndarray:
        steps = reference(np_steps_of(x, xs, xz, s, lhs_axis, np.float64),
                          np_steps_of(y, ys, yz, s, rhs_axis, np.float64))
        return np_stored(steps, np_along(z, -1, 1), x.dtype, rounding)

    return _binary(name, build, meaning, doc)


def _product(
    x: Expr, y: Expr, xs: Expr, xz: Expr, ys: Expr, yz: Expr, s: Expr, z: Expr, attrs: BinaryAttrs
) -> Expr:
    steps = multiply(steps_of(x, xs, xz, s, attrs.lhs_axis),
                     dequantized(y, ys, yz, attrs.rhs_axis))
    return stored(steps, along(z, -1, 1), dtype_of(x), attrs.rounding)


def _product_reference(
    x: np.ndarray, y: np.ndarray, xs: np.ndarray, xz: np.ndarray, ys: np.ndarray, yz: np.ndarray,
    s: np.ndarray, z: np.ndarray, lhs_axis: int = -1, rhs_axis: int = -1, rounding: str = "even",
) -> np.ndarray:
    steps = np_steps_of(x, xs, xz, s, lhs_axis) * np_dequantized(y, ys, yz, rhs_axis)
    return np_stored(steps, np_along(z, -1, 1), x.dtype, rounding)


def _binary(name: str, build: Build, meaning: Callable[..., np.ndarray], doc: str) -> Op:
    per_channel = (np.array([0.1, 0.02, 0.3, 0.004], np.float32),
                   np.array([0, -3, 7, 100], np.int32))
    bytes_ = {"dtypes": "int8", "low": -128, "high": 127}
    return define_composed(
        name, build, meaning,
        op_case((3, 5), (3, 5), *_IN, *_OUT, *_OUT, **bytes_),
        op_case((2, 1, 4), (3, 1), *_IN, *_OUT, np.float32(2), np.int32(7), dtypes="uint8", low=0,
                high=255),
        op_case((2, 4), (2, 4), *per_channel, *_IN, *_OUT, **bytes_),
        op_case((4, 2), (4, 2), *per_channel, *per_channel, *_OUT, lhs_axis=0, rhs_axis=0,
                rounding="upward", **bytes_),
        op_case((), (2, 3), *_IN, *_IN, *_OUT, **bytes_), op_case((0, 4), (1, 4), *_IN, *_IN, *_OUT,
                                                                  **bytes_),
        attrs=BinaryAttrs, pattern=OpPattern.BROADCAST, doc=doc,
        roles=(("lhs", Quantized(BYTES)), ("rhs", Quantized(BYTES)),
               ("lhs_scale", scale(0, _lhs_axis)), ("lhs_zero_point", zero(0, _lhs_axis)),
               ("rhs_scale", scale(1, _rhs_axis)), ("rhs_zero_point", zero(1, _rhs_axis)),
               ("output_scale", scale()), ("output_zero_point", zero())),
    )


qnn_add = _sum("qnn.add", add, np.add, "The sum of two quantized tensors, with broadcasting.")
qnn_subtract = _sum("qnn.subtract", subtract, np.subtract,
                    "The difference of two quantized tensors, with broadcasting.")
qnn_mul = _binary("qnn.mul", _product, _product_reference,
                  "The product of two quantized tensors, with broadcasting.")

UNARY_ROLES = (("data", Quantized(BYTES)), ("scale", scale()), ("zero_point", zero()),
               ("output_scale", scale()), ("output_zero_point", zero()))


def _unary(
    name: str, function: Callable[[Expr], Expr], reference: Callable[[np.ndarray], np.ndarray],
    *cases: Case, doc: str,
) -> Op:
    def build(x: Expr, s: Expr, z: Expr, out_s: Expr, out_z: Expr, attrs: RoundingAttrs) -> Expr:
        real = function(dequantized(x, s, z))
        return quantized(real, ndim_of(x), out_s, out_z, dtype_of(x), rounding=attrs.rounding)

    def meaning(x: np.ndarray, s: np.ndarray, z: np.ndarray, out_s: np.ndarray,
                out_z: np.ndarray, rounding: str = "even") -> np.ndarray:
        with np.errstate(all="ignore"):
            real = np.asarray(reference(np_dequantized(x, s, z))).astype(np.float32)
        return np_quantized(real, out_s, out_z, x.dtype, rounding=rounding)

    return define_composed(name, build, meaning, *cases, roles=UNARY_ROLES, attrs=RoundingAttrs,
                           pattern=OpPattern.ELEMWISE, doc=doc)


_BYTES = {"dtypes": "int8", "low": -128, "high": 127}
_ANY = (op_case((3, 5), *_IN, *_OUT, **_BYTES), op_case((), *_IN, *_OUT, **_BYTES),
        op_case((0, 4), *_IN, *_OUT, **_BYTES),
        op_case((2, 9), np.array([0.02], np.float32), np.array([128], np.int32), *_PLAIN,
                dtypes="uint8", low=0, high=255, rounding="away"))
_POSITIVE = tuple(op_case(shape, np.float32(0.05), np.int32(-1), *_OUT, dtypes="int8", low=0,
                          high=127)
                  for shape in ((3, 5), (), (0, 4)))


def _in_float64(function: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x: function(x.astype(np.float64))


_vector_erf = np.vectorize(math.erf, otypes=[np.float64])


def _hardswish(x: Expr) -> Expr:
    """Divides by 6 before the multiplication; the result's scale is applied last."""
    moved = cast(add(cast(x, dtype=DOUBLE), const(3.0, DOUBLE)), dtype=FLOAT)
    gate = minimum(maximum(moved, const(0.0, FLOAT)), const(6.0, FLOAT))
    return multiply(x, divide(gate, const(6.0, FLOAT)))


def _hardswish_reference(x: np.ndarray) -> np.ndarray:
    moved = (x.astype(np.float64) + 3).astype(np.float32)
    gate = np.clip(moved, np.float32(0), np.float32(6))
    return x * (gate / np.float32(6))


qnn_abs = _unary("qnn.abs", elementwise.abs, np.abs, *_ANY, doc="|x| of a quantized tensor.")
qnn_sqrt = _unary("qnn.sqrt", elementwise.sqrt, np.sqrt, *_POSITIVE,
                  doc="The square root of a quantized tensor without negative values.")
qnn_rsqrt = _unary("qnn.rsqrt", elementwise.rsqrt, _in_float64(lambda x: 1 / np.sqrt(x)),
                   *_POSITIVE, doc="1 / sqrt x of a quantized tensor of positive values.")
qnn_exp = _unary("qnn.exp", elementwise.exp, _in_float64(np.exp), *_ANY,
                 doc="e**x of a quantized tensor.")
qnn_log = _unary("qnn.log", elementwise.log, _in_float64(np.log), *_POSITIVE,
                 doc="The natural logarithm of a quantized tensor of positive values.")
qnn_tanh = _unary("qnn.tanh", elementwise.tanh, _in_float64(np.tanh), *_ANY,
                  doc="The hyperbolic tangent of a quantized tensor.")
qnn_sigmoid = _unary("qnn.sigmoid", elementwise.sigmoid,
                     _in_float64(lambda x: 1 / (1 + np.exp(-x))), *_ANY,
                     doc="1 / (1 + e**-x) of a quantized tensor.")
qnn_erf = _unary("qnn.erf", elementwise.erf, _in_float64(_vector_erf), *_ANY,
                 doc="The error function of a quantized tensor.")
qnn_hardswish = _unary("qnn.hardswish", _hardswish, _hardswish_reference, *_ANY,
                       doc="x * min(max(x + 3, 0), 6) / 6 of a quantized tensor.")


@dataclass(frozen=True, kw_only=True)
class LeakyReluAttrs(RoundingAttrs):
    alpha: float = attr(0.01, "slope below zero")


def _leaky_relu(x: Expr, s: Expr, z: Expr, out_s: Expr, out_z: Expr,
                attrs: LeakyReluAttrs) -> Expr:
    slope = infer_expr(multiply(s, const(attrs.alpha, FLOAT)))
    above, below = steps_of(x, s, z, out_s), steps_of(x, slope, z, out_s)
    steps = where(greater_equal(above, const(0.0, FLOAT)), above, below)
    return stored(steps, along(out_z, -1, ndim_of(x)), dtype_of(x), attrs.rounding)


def _leaky_relu_reference(
    x: np.ndarray, s: np.ndarray, z: np.ndarray, out_s: np.ndarray, out_z: np.ndarray,
    alpha: float = 0.01, rounding: str = "even",
) -> np.ndarray:
    above, below = (np_steps_of(x, f, z, out_s) for f in (s, s * np.float32(alpha)))
    steps = np.where(above >= 0, above, below)
    return np_stored(steps, np_along(out_z, -1, x.ndim), x.dtype, rounding)


qnn_leaky_relu = define_composed(
    "qnn.leaky_relu", _leaky_relu, _leaky_relu_reference, *_ANY,
    op_case((3, 5), *_IN, *_OUT, alpha=0.5, **_BYTES),
    roles=UNARY_ROLES, attrs=LeakyReluAttrs, pattern=OpPattern.ELEMWISE,
    doc="x of a quantized tensor, times ``alpha`` where it is negative.",
)
