"""Conversion between float32 and floats of 8 and 4 bits, which are stored in a byte each.

Formats: "FP8 Formats for Deep Learning" (Micikevicius et al., 2022); "8-bit Numerical Formats for
Deep Neural Networks" (Noune et al., 2022; the ``fnuz`` formats, without infinities and negative
zero); the OCP Microscaling specification (2023; ``e8m0``, ``e2m1``). Results agree with
``ml_dtypes`` bit for bit.
"""

from __future__ import annotations

from weft.codegen.ir_text.floats.i32_vector import I32Vector
from weft.codegen.ir_text.types import float_constant, splat
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType, float32
from weft.support.dataclass import dataclass

_FLOAT32_BIAS = 127
_FLOAT32_MANTISSA = 23
_INFINITY = 0x7F800000
_QUIET_NAN = 0x7FC00000
_SCALE_ONLY = "float8_e8m0fnu"


@dataclass(frozen=True, slots=True)
class _Format:
    """A format of one sign bit, an exponent with ``bias`` and ``mantissa`` bits.

    ``largest`` is the code of the largest finite number, ``overflow`` the code of larger ones.
    In formats without ``negative_zero``, its code is the only NaN. In the others, all codes above
    infinity, or above ``largest`` if there is no infinity, are NaN.
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    has_infinity: bool = False
    negative_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


_FORMATS = {
    "float8_e4m3fn": _Format(8, 3, 7, largest=0x7E, overflow=0x7F, nan=0x7F),
    "float8_e5m2": _Format(8, 2, 15, largest=0x7B, overflow=0x7C, nan=0x7E, has_infinity=True),
    "float8_e4m3fnuz": _Format(
        8, 3, 8, largest=0x7F, overflow=0x80, nan=0x80, negative_zero=False
    ),
    "float8_e5m2fnuz": _Format(
        8, 2, 16, largest=0x7F, overflow=0x80, nan=0x80, negative_zero=False
    ),
    # Has no NaN; ml_dtypes converts NaN to a zero of the opposite sign.
    "float4_e2m1fn": _Format(4, 1, 1, largest=0x7, overflow=0x7, nan=0x8),
}


def widen_small(out: FunctionWriter, value: str, dtype: DType) -> str:
    """A float of 8 or 4 bits as float32; exact."""
    conversion = _SmallFloats(out, dtype.lanes)
    if dtype.code == _SCALE_ONLY:
        return conversion.widen_scale(value)
    return conversion.widen(value, _FORMATS[dtype.code])


def narrow_small(out: FunctionWriter, value: str, dtype: DType) -> str:
    """float32 rounded to nearest in ``dtype``, ties to even."""
    conversion = _SmallFloats(out, dtype.lanes)
    if dtype.code == _SCALE_ONLY:
        return conversion.narrow_to_scale(value)
    return conversion.narrow(value, _FORMATS[dtype.code])


class _SmallFloats(I32Vector):
    def power_of_two(self, exponent: int) -> str:
        return splat(float_constant(2.0**exponent, float32), "float", self.lanes)

    def widen(self, value: str, form: _Format) -> str:
        bits = self.extended(value, self.byte)
        negative = self.op("and", bits, self.const(form.sign))
        sign = self.op("shl", negative, self.const(32 - form.bits))
        magnitude = self.op("and", bits, self.const(form.sign - 1))
        # Read as float32, these bits are the number times 2**(bias - 127), denormals included.
        aligned = self.op("shl", magnitude, self.const(_FLOAT32_MANTISSA - form.mantissa))
        scale = self.power_of_two(_FLOAT32_BIAS - form.bias)
        number = self.out.emit(f"fmul {self.float} {self.real(aligned)}, {scale}")
        result = self.op("or", self.bits(number), sign)
        if form.has_infinity:
            infinite = self.op("or", sign, self.const(_INFINITY))
            result = self.choose(self.equal(magnitude, form.overflow), infinite, result)
        if not form.negative_zero:
            result = self.choose(self.equal(bits, form.nan), self.const(_QUIET_NAN), result)
        elif form.largest < form.sign - 1:
            last = form.overflow if form.has_infinity else form.largest
            quiet = self.op("or", sign, self.const(_QUIET_NAN))
            result = self.choose(self.above(magnitude, last), quiet, result)
        return self.real(result)

    def narrow(self, value: str, form: _Format) -> str:
        bits = self.bits(value)
        negative = self.op("lshr", bits, self.const(32 - form.bits))
        sign = self.op("and", negative, self.const(form.sign))
        magnitude = self.op("and", bits, self.const(0x7FFFFFFF))
        finite = self._code(magnitude, form)
        code = self.choose(self.above(finite, form.largest), self.const(form.overflow), finite)
        if form.negative_zero:
            nan = self.op("xor", sign, self.const(form.nan))
            code = self.op("or", code, sign)
        else:
            nan = self.const(form.nan)
            code = self.choose(self.equal(code, 0), code, self.op("or", code, sign))
        result = self.choose(self.is_nan(value), nan, code)
        return self.truncated(result, self.byte)

    def _code(self, magnitude: str, form: _Format) -> str:
        """The code of a magnitude, not yet clamped to the largest finite number."""
        # Adding this power of two aligns the last bit of denormals with the last bit of float32, so
        # that the addition rounds correctly.
        exponent = _FLOAT32_MANTISSA + 1 - form.bias - form.mantissa
        shift = self.power_of_two(exponent)
        sum_ = self.out.emit(f"fadd {self.float} {self.real(magnitude)}, {shift}")
        denormal = self.op(
            "sub", self.bits(sum_), self.const(_FLOAT32_BIAS + exponent << _FLOAT32_MANTISSA)
        )
        rebased = self.op(
            "sub", magnitude, self.const(_FLOAT32_BIAS - form.bias << _FLOAT32_MANTISSA)
        )
        normal = self.rounded(rebased, _FLOAT32_MANTISSA - form.mantissa)
        smallest = _FLOAT32_BIAS + 1 - form.bias << _FLOAT32_MANTISSA
        return self.choose(self.above(magnitude, smallest - 1), normal, denormal)

    def widen_scale(self, value: str) -> str:
        """An e8m0 scale as float32: 2**(code - 127)."""
        code = self.extended(value, self.byte)
        power = self.op("shl", code, self.const(_FLOAT32_MANTISSA))
        smallest = self.const(1 << _FLOAT32_MANTISSA - 1)  # 2**-127 is a denormal
        result = self.choose(self.equal(code, 0), smallest, power)
        return self.real(self.choose(self.equal(code, 0xFF), self.const(_QUIET_NAN), result))

    def narrow_to_scale(self, value: str) -> str:
        """The nearest power of two as e8m0, ties upwards; NaN for zero and negative numbers."""
        bits = self.bits(value)
        half = 1 << _FLOAT32_MANTISSA - 1
        normal = self.op(
            "lshr", self.op("add", bits, self.const(half)), self.const(_FLOAT32_MANTISSA)
        )
        is_normal = self.above(bits, (1 << _FLOAT32_MANTISSA) - 1)
        # Numbers between 2**-127 and 2**-126 round up, as in ml_dtypes.
        is_above = self.above(bits, half)
        denormal = self.out.emit(f"zext {self.flag} {is_above} to {self.i32}")
        code = self.choose(is_normal, normal, denormal)
        # Subtracting 1 wraps zero to the largest unsigned integer. The bits of infinity, NaN and
        # negative numbers are above those of all positive finite numbers.
        is_nan = self.above(self.op("sub", bits, self.const(1)), _INFINITY - 2)
        return self.truncated(self.choose(is_nan, self.const(0xFF), code), self.byte)
