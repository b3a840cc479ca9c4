"""Quantization arithmetic: ``real = scale * (integer - zero)``.

All arithmetic from real to quantized numbers is in float32, in the order in which it is written
here, and rounds once to an integer; halves go to even unless the attribute ``rounding`` says
otherwise, as in ONNX's QuantizeLinear. The references below do the same in NumPy, bit for bit. Two
rules ensure that. A linear function multiplies once, by the ratio of two scales, because later
passes would fold two constant scales into one factor, which rounds differently. And a sum never
contains a float32 product, because machine code may contract both into one fused multiply-add;
sums are computed in float64, where a product of a quantized integer and a ratio is exact.
"""

from __future__ import annotations

import numpy as np

from weft.ir import Attrs, Constant, DType, Expr, attr, const, one_of
from weft.op.broadcast import add, divide, multiply, subtract
from weft.op.elementwise import abs as absolute
from weft.op.elementwise import cast, clip, floor, sign
from weft.op.elementwise import round as round_even
from weft.op.gradients import tensor_type
from weft.op.transform.shape import expand_dims, squeeze
from weft.support.dataclass import dataclass

FLOAT, DOUBLE, INT = DType.of("float32"), DType.of("float64"), DType.of("int32")
ROUNDINGS = ("even", "upward", "away")


@dataclass(frozen=True, kw_only=True)
class RoundingAttrs(Attrs):
    rounding: str = attr("even", "rounding of halves: to even, upward, or away from 0",
                         check=one_of(*ROUNDINGS), expected=" or ".join(ROUNDINGS))


def ndim_of(expr: Expr) -> int:
    return tensor_type(expr).ndim


def dtype_of(expr: Expr) -> DType:
    return tensor_type(expr).dtype


def is_zero(expr: Expr) -> bool:
    """Whether a zero point is a constant 0."""
    return isinstance(expr, Constant) and not expr.data.any()


def along(parameter: Expr, axis: int, ndim: int) -> Expr:
    """A scale or zero point, shaped to broadcast with a tensor of ``ndim`` axes."""
    type_ = tensor_type(parameter)
    if type_.ndim == 0:
        return parameter
    if type_.shape == (1,):
        return squeeze(parameter, axis=(0,))
    trailing = ndim - 1 - axis % ndim
    return expand_dims(parameter, axis=1, num_newaxis=trailing) if trailing else parameter


def centred(data: Expr, zero: Expr, axis: int = -1) -> Expr:
    """``data - zero`` in int32."""
    wide = data if dtype_of(data) == INT else cast(data, dtype=INT)
    return wide if is_zero(zero) else subtract(wide, along(zero, axis, ndim_of(data)))


def dequantized(data: Expr, scale: Expr, zero: Expr, axis: int = -1) -> Expr:
    """``(data - zero) * scale`` in float32."""
    steps = data if is_zero(zero) else centred(data, zero, axis)
    real = cast(steps, dtype=FLOAT)
    return multiply(real, along(scale, axis, ndim_of(data)))


def quantized(
    real: Expr, ndim: int, scale: Expr, zero: Expr, dtype: DType, *, axis: int = -1,
    rounding: str = "even",
) -> Expr:
    """``round(real / scale) + zero``, clipped to the range of ``dtype``."""
    steps = divide(real, along(scale, axis, ndim))
    return stored(steps, along(zero, axis, ndim), dtype, rounding)


def ratio_of(scale: Expr, out_scale: Expr, axis: int, ndim: int) -> Expr:
    """``scale / out_scale``, shaped to broadcast with a tensor of ``ndim`` axes."""
    return divide(along(scale, axis, ndim), along(out_scale, axis, ndim))


def steps_of(
    data: Expr, scale: Expr, zero: Expr, out_scale: Expr, axis: int = -1, real: DType = FLOAT
) -> Expr:
    """``(data - zero) * (scale / out_scale)``: the value in units of another scale."""
    ratio = ratio_of(scale, out_scale, axis, ndim_of(data))
    ratio = ratio if real == FLOAT else cast(ratio, dtype=real)
    return multiply(cast(centred(data, zero, axis), dtype=real), ratio)


def stored(
    steps: Expr, zero: Expr, dtype: DType, rounding: str = "even", real: DType = FLOAT
) -> Expr:
    """``round(steps) + zero`` (already broadcastable), clipped to the range of ``dtype``."""
    whole = rounded(steps, rounding, real)
    if not is_zero(zero):
        whole = add(whole, cast(zero, dtype=real))
    low, high = limits(dtype)
    return cast(clip(whole, a_min=low, a_max=high), dtype=dtype)


def rounded(steps: Expr, rounding: str, real: DType = FLOAT) -> Expr:
    """The rounded numbers, in the dtype ``real`` of the steps."""
    if rounding == "even":
        return round_even(steps)
    # In float32, the sum of 0.5 and the number just below it rounds up to 1.
    wide = steps if real == DOUBLE else cast(steps, dtype=DOUBLE)
    half = const(0.5, DOUBLE)
    if rounding == "upward":
        whole = floor(add(wide, half))
    else:
        whole = multiply(sign(wide), floor(add(absolute(wide), half)))
    return whole if real == DOUBLE else cast(whole, dtype=real)


def limits(dtype: DType) -> tuple[float, float]:
    """The range of an integer dtype, as far as float32 represents it."""
    info = np.iinfo(dtype.numpy)
    # 2**31 - 1 becomes 2**31 in float32, which does not fit into int32.
    high = np.float32(info.max)
    return float(info.min), float(high if int(high) <= info.max else np.nextafter(
        high, np.float32(0)))


def np_along(parameter: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, *(1,) * (ndim - 1 - axis % ndim))


def np_centred(data: np.ndarray, zero: np.ndarray, axis: int = -1) -> np.ndarray:
    """``data - zero`` in int32."""
    return data.astype(np.int32) - np_along(zero, axis, data.ndim)


def np_dequantized(
    data: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = -1
) -> np.ndarray:
    """``(data - zero) * scale`` in float32."""
    return np_centred(data, zero, axis).astype(np.float32) * np_along(scale, axis, data.ndim)


def np_quantized(
    real: np.ndarray, scale: np.ndarray, zero: np.ndarray, dtype: DType | np.dtype, *,
    axis: int = -1, rounding: str = "even",
) -> np.ndarray:
    """``round(real / scale) + zero``, clipped."""
    with np.errstate(all="ignore"):
        steps = np.asarray(real, np.float32) / np_along(scale, axis, np.ndim(real))
    return np_stored(steps, np_along(zero, axis, np.ndim(real)), dtype, rounding)


def np_steps_of(
    data: np.ndarray, scale: np.ndarray, zero: np.ndarray, out_scale: np.ndarray, axis: int = -1,
    real: type = np.float32,
) -> np.ndarray:
    """``(data - zero) * (scale / out_scale)``."""
    ratio = np_along(scale, axis, data.ndim) / np_along(out_scale, axis, data.ndim)
    return np_centred(data, zero, axis).astype(real) * ratio.astype(real)


def np_stored(
    steps: np.ndarray, zero: np.ndarray, dtype: DType | np.dtype, rounding: str = "even"
) -> np.ndarray:
    """``round(steps) + zero``, clipped."""
    wide = steps.astype(np.float64)
    with np.errstate(all="ignore"):
        if rounding == "even":
            whole = np.rint(steps)
        elif rounding == "upward":
            whole = np.floor(wide + 0.5).astype(steps.dtype)
        else:
            whole = (np.sign(wide) * np.floor(np.abs(wide) + 0.5)).astype(steps.dtype)
    target = DType.of(dtype)
    low, high = (steps.dtype.type(limit) for limit in limits(target))
    moved = whole + zero.astype(steps.dtype)
    return np.asarray(np.clip(moved, low, high)).astype(target.numpy)
