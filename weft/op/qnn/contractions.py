"""Contractions of quantized tensors: sums of ``(x - zero) * (w - zero)``, exact in int32.

The result has the product of both scales as scale, and zero point 0; ``qnn.requantize`` converts it
back to 8 bits. The scales are operands only to record what the integers mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir import Attrs, Constant, Expr, OpPattern, const, op_case
from weft.op.broadcast import multiply, subtract
from weft.op.elementwise import cast
from weft.op.gradients import tensor_type
from weft.op.nn.conv import Conv2DAttrs, conv2d
from weft.op.nn.conv_transpose import Conv2DTransposeAttrs, conv2d_transpose
from weft.op.nn.dense import DenseAttrs, dense
from weft.op.nn.matmul import BatchMatmulAttrs, batch_matmul
from weft.op.nn.pad import pad
from weft.op.qnn.composed import Quantized, Role, define_composed, scale, zero
from weft.op.qnn.scaling import INT, along, centred, dtype_of, is_zero, ndim_of, np_centred
from weft.op.reduce import sum as sum_op
from weft.op.transform.shape import expand_dims
from weft.topi.layout import Layout
from weft.topi.nn.conv import side_padding

BYTES = ("int8", "uint8")


def _roles(weight: str, axis: Any) -> tuple[tuple[str, Role], ...]:
    """The arguments in Relay's order: both tensors, their zero points, their scales."""
    return (("data", Quantized()), (weight, Quantized()),
            ("input_zero_point", zero()), (f"{weight}_zero_point", zero(1, axis)),
            ("input_scale", scale()), (f"{weight}_scale", scale(1, axis)))


def _in_int32(attrs: Attrs) -> dict[str, Any]:
    """The attributes with an int32 accumulator."""
    return {**dict(attrs.items()), "out_dtype": INT}


def _are_bytes(*values: Expr) -> bool:
    return all(tensor_type(v).dtype.name in BYTES for v in values)


def _weight_rows(attrs: Any, _: int) -> int:
    return Layout.parse(attrs.weight_layout).index_of("N")


def _dense(x: Expr, w: Expr, xz: Expr, wz: Expr, _xs: Expr, _ws: Expr, attrs: DenseAttrs) -> Expr:
    """``(x - a)(w - b) = x w - a sum(w - b) - b sum(x)``, if the operands are 8-bit integers."""
    is_plain = attrs.weight_layout == "NK" and min(ndim_of(x), ndim_of(w)) > 0
    if not (_are_bytes(x, w) and is_plain):
        rows = centred(w, wz, _weight_rows(attrs, 2))
        return dense(centred(x, xz), rows, **_in_int32(attrs))
    # As bytes, the operands suit dot-product instructions; centred ones exceed 8 bits.
    result = dense(x, w, **_in_int32(attrs))
    a, b = along(xz, 0, 1), along(wz, -1, 1)
    if not is_zero(xz):
        sums = sum_op(centred(w, wz, 0), axis=(1,))
        result = subtract(result, multiply(sums, a))
    if not is_zero(wz):
        sums = sum_op(cast(x, dtype=INT), axis=(-1,), keepdims=True)
        result = subtract(result, multiply(sums, b))
    return result


def _dense_reference(x: np.ndarray, w: np.ndarray, xz: np.ndarray, wz: np.ndarray, *_: Any,
                     weight_layout: str = "NK", **__: Any) -> np.ndarray:
    wide = np_centred(w, wz, 0 if weight_layout == "NK" else 1).astype(np.int64)
    result = np_centred(x, xz).astype(np.int64) @ (wide.T if weight_layout == "NK" else wide)
    return result.astype(np.int32)


_ZX, _ZW = np.int32(5), np.int32(-3)
_ONE, _NONE = np.float32(0.5), np.int32(0)
_Z4 = np.array([0, -3, 7, 100], np.int32)
_S4 = np.array([0.1, 0.02, 1.0, 0.5], np.float32)
_BYTES = {"low": -128, "high": 127, "dtypes": "int8"}
_MIXED = {"low": 0, "high": 127, "dtypes": ("uint8", "int8")}


qnn_dense = define_composed(
    "qnn.dense", _dense, _dense_reference,
    op_case((3, 5), (4, 5), _ZX, _ZW, _ONE, _ONE, **_BYTES),
    op_case((2, 3, 5), (4, 5), _ZX, _Z4, _ONE, _S4, units=4, **_MIXED),
    op_case((3, 5), (4, 5), _NONE, _NONE, _ONE, _ONE, **_BYTES),
    op_case((3, 5), (5, 4), _ZX, _Z4, _ONE, _S4, weight_layout="KN", **_BYTES),
    op_case((3, 5), (4, 5), _ZX, _ZW, _ONE, _ONE, dtypes="int16", low=-999, high=999),
    op_case((0, 5), (4, 5), _ZX, _ZW, _ONE, _ONE, **_BYTES),
    roles=_roles("weight", _weight_rows), attrs=DenseAttrs, pattern=OpPattern.OUT_FUSABLE,
    doc="``nn.dense`` of quantized tensors, accumulated in int32.\n\n"
        "The result has scale ``input_scale * weight_scale`` and zero point 0.",
)


def _batch_matmul(x: Expr, y: Expr, xz: Expr, yz: Expr, _xs: Expr, _ys: Expr,
                  attrs: BatchMatmulAttrs) -> Expr:
    """``(x - a)(y - b) = x y - a sum(y - b) - b sum(x)``, if the operands are 8-bit integers."""
    if not _are_bytes(x, y):
        return batch_matmul(centred(x, xz), centred(y, yz), **_in_int32(attrs))
    result = batch_matmul(x, y, **_in_int32(attrs))
    if not is_zero(xz):
        sums = sum_op(centred(y, yz), axis=(2 if attrs.transpose_b else 1,))
        result = subtract(result, multiply(expand_dims(sums, axis=1), along(xz, 0, 3)))
    if not is_zero(yz):
        sums = sum_op(cast(x, dtype=INT), axis=(1 if attrs.transpose_a else 2,))
        result = subtract(result, multiply(expand_dims(sums, axis=2), along(yz, 0, 3)))
    return result


def _batch_matmul_reference(
    x: np.ndarray, y: np.ndarray, xz: np.ndarray, yz: np.ndarray, *_: Any,
    transpose_a: bool = False, transpose_b: bool = True, **__: Any,
) -> np.ndarray:
    a, b = np_centred(x, xz).astype(np.int64), np_centred(y, yz).astype(np.int64)
    a, b = a.swapaxes(1, 2) if transpose_a else a, b.swapaxes(1, 2) if transpose_b else b
    return (a @ b).astype(np.int32)


qnn_batch_matmul = define_composed(
    "qnn.batch_matmul", _batch_matmul, _batch_matmul_reference,
    op_case((2, 3, 5), (2, 4, 5), _ZX, _ZW, _ONE, _ONE, **_BYTES),
    op_case((1, 5, 3), (2, 5, 4), _ZX, _NONE, _ONE, _ONE, transpose_a=True, transpose_b=False,
            **_MIXED),
    roles=_roles("rhs", None), attrs=BatchMatmulAttrs, pattern=OpPattern.OUT_FUSABLE,
    doc="``nn.batch_matmul`` of quantized tensors, accumulated in int32.\n\n"
        "The result has scale ``input_scale * rhs_scale`` and zero point 0.",
)


def _kernel_outputs(attrs: Any, _: int) -> int:
    return Layout.parse(attrs.kernel_layout).index_of("O")


def _conv2d(x: Expr, w: Expr, xz: Expr, wz: Expr, _xs: Expr, _ws: Expr,
            attrs: Conv2DAttrs) -> Expr:
    """Padding represents real zeros: it is the zero point for 8-bit operands, and 0 if zero points
    are subtracted first.
    """
    w, wz = _around_zero(w, wz)
    is_plain = all(Layout.parse(name).is_primal for name in (
        attrs.data_layout, attrs.kernel_layout, attrs.result_layout))
    if _are_bytes(x, w) and is_zero(wz) and attrs.groups == 1 and is_plain:
        return _byte_conv2d(x, w, xz, attrs)
    kernel = centred(w, wz, _kernel_outputs(attrs, 4))
    return conv2d(centred(x, xz), kernel, **_in_int32(attrs))


def _byte_conv2d(x: Expr, w: Expr, xz: Expr, attrs: Conv2DAttrs) -> Expr:
    """``(x - a) w = x w - a sum(w)``, with ``x`` padded by ``a``."""
    if is_zero(xz):
        return conv2d(x, w, **_in_int32(attrs))
    data, kernel = Layout.parse(attrs.data_layout), Layout.parse(attrs.kernel_layout)
    sides = [(0, 0)] * data.ndim
    for letter, around in zip(attrs.spatial, side_padding(attrs.padding, 2), strict=True):
        sides[data.index_of(letter)] = around
    if any(map(any, sides)):
        x = pad(x, cast(along(xz, 0, 1), dtype=dtype_of(x)), pad_width=tuple(sides))
    inner = _in_int32(attrs)
    inner["padding"] = (0, 0)
    result = conv2d(x, w, **inner)
    taps = tuple(i for i in range(kernel.ndim) if i != kernel.index_of("O"))
    sums = multiply(sum_op(cast(w, dtype=INT), axis=taps), along(xz, 0, 1))
    behind = data.ndim - 1 - Layout.parse(attrs.result_layout).index_of("C")
    sums = expand_dims(sums, axis=1, num_newaxis=behind) if behind else sums
    return subtract(result, sums)


def _around_zero(w: Expr, wz: Expr) -> tuple[Expr, Expr]:
    """Constant uint8 weights around 128 as int8 weights around 0."""
    if not (isinstance(w, Constant) and isinstance(wz, Constant)):
        return w, wz
    if w.data.dtype != np.uint8 or (wz.data != 128).any():
        return w, wz
    signed = (w.data.astype(np.int16) - 128).astype(np.int8)
    return const(signed), const(0, INT)


def _conv2d_reference(x: np.ndarray, w: np.ndarray, xz: np.ndarray, wz: np.ndarray, *_: Any,
                      kernel_layout: str = "OIHW", **attrs: Any) -> np.ndarray:
    kernel = np_centred(w, wz, Layout.parse(kernel_layout).index_of("O"))
    meaning: Any = conv2d.reference
    attrs["out_dtype"] = INT
    return meaning(np_centred(x, xz), kernel, kernel_layout=kernel_layout, **attrs)


qnn_conv2d = define_composed(
    "qnn.conv2d", _conv2d, _conv2d_reference,
    op_case((1, 3, 5, 6), (4, 3, 3, 3), _ZX, _Z4, _ONE, _S4, padding=(1, 1), **_BYTES),
    op_case((2, 4, 7, 5), (6, 2, 3, 2), _ZX, _ZW, _ONE, _ONE, strides=(2, 1), padding=(0, 1, 2, 0),
            groups=2, **_MIXED),
    op_case((1, 5, 5, 3), (3, 3, 3, 4), _ZX, _Z4, _ONE, _S4, data_layout="NHWC",
            kernel_layout="HWIO", dilation=(2, 1), **_BYTES),
    op_case((0, 3, 5, 5), (4, 3, 1, 1), _NONE, _NONE, _ONE, _ONE, **_BYTES),
    roles=_roles("kernel", _kernel_outputs), attrs=Conv2DAttrs, pattern=OpPattern.OUT_FUSABLE,
    doc="``nn.conv2d`` of quantized tensors, accumulated in int32; padding is real zeros.\n\n"
        "The result has scale ``input_scale * kernel_scale`` and zero point 0.",
)


def _conv2d_transpose(x: Expr, w: Expr, xz: Expr, wz: Expr, _xs: Expr, _ws: Expr,
                      attrs: Conv2DTransposeAttrs) -> Expr:
    kernel = centred(w, wz, _kernel_outputs(attrs, 4))
    return conv2d_transpose(centred(x, xz), kernel, **_in_int32(attrs))


def _conv2d_transpose_reference(
    x: np.ndarray, w: np.ndarray, xz: np.ndarray, wz: np.ndarray, *_: Any,
    kernel_layout: str = "IOHW", **attrs: Any,
) -> np.ndarray:
    kernel = np_centred(w, wz, Layout.parse(kernel_layout).index_of("O"))
    meaning: Any = conv2d_transpose.reference
    attrs["out_dtype"] = INT
    return meaning(np_centred(x, xz), kernel, kernel_layout=kernel_layout, **attrs)


qnn_conv2d_transpose = define_composed(
    "qnn.conv2d_transpose", _conv2d_transpose, _conv2d_transpose_reference,
    op_case((1, 3, 4, 5), (3, 4, 3, 3), _ZX, _Z4, _ONE, _S4, strides=(2, 2), padding=(1, 1),
            **_BYTES),
    op_case((1, 2, 3, 3), (2, 3, 2, 2), _ZX, _ZW, _ONE, _ONE, strides=(2, 2),
            output_padding=(1, 0), **_MIXED),
    roles=_roles("kernel", _kernel_outputs), attrs=Conv2DTransposeAttrs,
    pattern=OpPattern.OUT_FUSABLE,
    doc="``nn.conv2d_transpose`` of quantized tensors, accumulated in int32.\n\n"
        "The result has scale ``input_scale * kernel_scale`` and zero point 0.",
)
