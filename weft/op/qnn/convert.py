"""Conversion between real and quantized tensors: quantize, dequantize, requantize, simulations."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op
from weft.ir import Call, DType, Expr, OpPattern, attr, const, infer_expr, op_case
from weft.op.broadcast import (
    add,
    divide,
    greater_equal,
    less_equal,
    logical_and,
    multiply,
    subtract,
    where,
)
from weft.op.elementwise import cast, clip, negative
from weft.op.gradients import attrs_of, sum_to, tensor_type, typed_zeros
from weft.op.qnn.composed import INTEGERS, Quantized, Real, define_composed, scale, zero
from weft.op.qnn.scaling import (
    FLOAT,
    RoundingAttrs,
    along,
    dequantized,
    dtype_of,
    limits,
    ndim_of,
    np_along,
    np_dequantized,
    np_quantized,
    np_steps_of,
    np_stored,
    quantized,
    rounded,
    steps_of,
    stored,
)
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class QuantizeAttrs(RoundingAttrs):
    axis: int = attr(-1, "axis along which scales and zero points vary, if they do")
    out_dtype: DType = attr(DType.of("int8"), "integer dtype of the result",
                            check=lambda d: d.name in INTEGERS, expected=" or ".join(INTEGERS))


@dataclass(frozen=True, kw_only=True)
class DequantizeAttrs(RoundingAttrs):
    axis: int = attr(-1, "axis along which scales and zero points vary, if they do")


def _axis(attrs: Any, _: int) -> int:
    axis: int = attrs.axis
    return axis


def _float(data: Expr) -> Expr:
    return data if dtype_of(data) == FLOAT else cast(data, dtype=FLOAT)


def _quantize(data: Expr, s: Expr, z: Expr, attrs: QuantizeAttrs) -> Expr:
    return quantized(_float(data), ndim_of(data), s, z, attrs.out_dtype, axis=attrs.axis,
                     rounding=attrs.rounding)


def _quantize_reference(x: np.ndarray, s: np.ndarray, z: np.ndarray, axis: int = -1,
                        out_dtype: Any = "int8", rounding: str = "even") -> np.ndarray:
    return np_quantized(x, s, z, DType.of(out_dtype), axis=axis, rounding=rounding)


_HALVES = np.array([[-2.5, -1.5, -0.5, 0.5], [1.5, 2.5, 130.0, -200.0]], np.float32)
_ODD = np.array([[-5, -3, -1, 1, 3, 5]], np.int32)
_S, _Z = np.float32(0.0625), np.int32(3)
_S4, _Z4 = np.array([0.1, 0.02, 1.0, 0.5], np.float32), np.array([0, -3, 7, 100], np.int32)
ONE = (np.float32(1), np.int32(0))

quantize = define_composed(
    "qnn.quantize", _quantize, _quantize_reference,
    *(op_case(_HALVES, *ONE, rounding=r) for r in ("even", "upward", "away")),
    op_case((3, 5), _S, _Z, low=-9, high=9), op_case((), _S, _Z), op_case((0, 4), _S4, _Z4),
    op_case((2, 4, 3), _S4, _Z4, axis=1, out_dtype="uint8", low=-20, high=20),
    op_case((2, 4), _S4, _Z4, out_dtype="int16", low=-900, high=900),
    op_case((3,), np.array([1e-7], np.float32), np.array([5], np.int32), out_dtype="int32",
            low=-400, high=400),
    op_case((3, 4), _S, _Z, dtypes="float16"),
    attrs=QuantizeAttrs, pattern=OpPattern.BROADCAST,
    roles=(("data", Real()), ("scale", scale(0, _axis)), ("zero_point", zero(0, _axis))),
    doc="The nearest integer to ``data / scale``, plus ``zero_point``, clipped to ``out_dtype``.",
)


quantize.no_gradient("integers have no derivative; qnn.simulated_quantize is straight-through")


def _dequantize(data: Expr, s: Expr, z: Expr, attrs: DequantizeAttrs) -> Expr:
    return dequantized(data, s, z, attrs.axis)


def _dequantize_reference(x: np.ndarray, s: np.ndarray, z: np.ndarray, axis: int = -1,
                          **_: Any) -> np.ndarray:
    return np_dequantized(x, s, z, axis)


dequantize = define_composed(
    "qnn.dequantize", _dequantize, _dequantize_reference,
    op_case((3, 5), _S, _Z, dtypes="int8", low=-128, high=127),
    op_case((), _S, _Z, dtypes="uint8", low=0, high=255),
    op_case((2, 4, 3), _S4, _Z4, axis=-2, dtypes="uint8", low=0, high=255),
    op_case((0, 4), _S4, _Z4, dtypes="int32"),
    op_case((5,), _S, _Z, dtypes="int16", low=-99, high=99),
    attrs=DequantizeAttrs, pattern=OpPattern.BROADCAST,
    roles=(("data", Quantized()), ("scale", scale(0, _axis)), ("zero_point", zero(0, _axis))),
    doc="``(data - zero_point) * scale`` in float32.",
)


def _requantize(data: Expr, s: Expr, z: Expr, out_s: Expr, out_z: Expr,
                attrs: QuantizeAttrs) -> Expr:
    steps = steps_of(data, s, z, out_s, attrs.axis)
    return stored(steps, along(out_z, attrs.axis, ndim_of(data)), attrs.out_dtype, attrs.rounding)


def _requantize_reference(
    x: np.ndarray, s: np.ndarray, z: np.ndarray, out_s: np.ndarray, out_z: np.ndarray,
    axis: int = -1, out_dtype: Any = "int8", rounding: str = "even",
) -> np.ndarray:
    steps = np_steps_of(x, s, z, out_s, axis)
    return np_stored(steps, np_along(out_z, axis, x.ndim), DType.of(out_dtype), rounding)


requantize = define_composed(
    "qnn.requantize", _requantize, _requantize_reference,
    op_case((3, 5), np.float32(0.001), np.int32(0), _S, _Z, dtypes="int32", low=-9000, high=9000),
    op_case((2, 4), _S4, _Z4, np.float32(0.25), np.int32(128), dtypes="int32", out_dtype="uint8",
            low=-99, high=99),
    op_case((2, 4, 3), _S4, _Z4, _S4[::-1].copy(), _Z4, axis=1, dtypes="int8", low=-128, high=127),
    *(op_case(_ODD, np.float32(0.5), np.int32(0), *ONE, rounding=r)
      for r in ("even", "upward", "away")),
    op_case((), _S, _Z, _S, _Z, dtypes="int8"), op_case((0, 3), _S, _Z, _S, _Z, dtypes="int8"),
    attrs=QuantizeAttrs, pattern=OpPattern.BROADCAST,
    roles=(("data", Quantized()), ("input_scale", scale(0, _axis)),
           ("input_zero_point", zero(0, _axis)), ("output_scale", scale(0, _axis)),
           ("output_zero_point", zero(0, _axis))),
    doc="The same real numbers, quantized with another scale and zero point.\n\n"
        "``round((data - input_zero_point) * (input_scale / output_scale)) + output_zero_point``.",
)


def _simulated_quantize(data: Expr, s: Expr, z: Expr, attrs: QuantizeAttrs) -> Expr:
    ndim = ndim_of(data)
    steps = rounded(divide(_float(data), along(s, attrs.axis, ndim)), attrs.rounding)
    moved = add(steps, cast(along(z, attrs.axis, ndim), dtype=FLOAT))
    low, high = limits(attrs.out_dtype)
    return clip(moved, a_min=low, a_max=high)


simulated_quantize = define_composed(
    "qnn.simulated_quantize", _simulated_quantize,
    lambda *arrays, **attrs: _quantize_reference(*arrays, **attrs).astype(np.float32),
    op_case((3, 5), _S, _Z, low=-9, high=9),
    op_case((2, 4, 3), _S4, _Z4, axis=1, out_dtype="uint8", low=-20, high=20),
    attrs=QuantizeAttrs, pattern=OpPattern.BROADCAST,
    roles=(("data", Real()), ("scale", scale(0, _axis)), ("zero_point", zero(0, _axis))),
    doc="The result of ``qnn.quantize``, kept in float32.\n\n"
        "Its gradient is straight-through: rounding counts as the identity, and what is clipped\n"
        "has none.",
)


@simulated_quantize.gradient
def _straight_through(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The gradient of ``clip(data / scale + zero_point)``: rounding counts as the identity.

    The straight-through estimator of Bengio et al. (2013), which passes the gradient where the
    rounded value is in range; that of the scale is then the one of learned step sizes (Esser et
    al. 2020).
    """
    attrs = attrs_of(call, QuantizeAttrs)
    data, s, z = call.args
    ndim = ndim_of(data)
    wide, factor = _float(data), infer_expr(along(s, attrs.axis, ndim), trust=True)
    steps = rounded(divide(wide, factor), attrs.rounding)
    moved = add(steps, cast(along(z, attrs.axis, ndim), dtype=FLOAT))
    low, high = (const(limit, FLOAT) for limit in limits(attrs.out_dtype))
    inside = logical_and(greater_equal(moved, low), less_equal(moved, high))
    passed = infer_expr(divide(where(inside, dy, const(0.0, FLOAT)), factor), trust=True)
    per_element = infer_expr(negative(multiply(passed, divide(wide, factor))), trust=True)
    d_scale = sum_to(per_element, tensor_type(per_element), tensor_type(factor))
    return [cast(passed, dtype=dtype_of(data)),
            op.reshape(d_scale, newshape=tensor_type(s).shape, allowzero=True), typed_zeros(z)]


def _simulated_dequantize(data: Expr, s: Expr, z: Expr, attrs: DequantizeAttrs) -> Expr:
    ndim = ndim_of(data)
    point = cast(along(z, attrs.axis, ndim), dtype=FLOAT)
    return multiply(subtract(_float(data), point), along(s, attrs.axis, ndim))


def _simulated_dequantize_reference(x: np.ndarray, s: np.ndarray, z: np.ndarray, axis: int = -1,
                                    **_: Any) -> np.ndarray:
    point = np_along(z, axis, x.ndim).astype(np.float32)
    return (x.astype(np.float32) - point) * np_along(s, axis, x.ndim)


simulated_dequantize = define_composed(
    "qnn.simulated_dequantize", _simulated_dequantize, _simulated_dequantize_reference,
    op_case((3, 5), _S, _Z, low=-9, high=9), op_case((2, 4, 3), _S4, _Z4, axis=1, low=-9, high=9),
    attrs=DequantizeAttrs, pattern=OpPattern.BROADCAST,
    roles=(("data", Real()), ("scale", scale(0, _axis)), ("zero_point", zero(0, _axis))),
    doc="``(data - zero_point) * scale`` for quantized integers kept as floats.",
)
