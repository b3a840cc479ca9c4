"""Division of integers by a positive literal: shifts, masks and multiplications.

LLVM multiplies by a reciprocal itself, but no CPU has the high half of a product of vectors of 64
bits, and LLVM then divides element by element. Four products of 32 bits give that half (Granlund
and Montgomery, "Division by invariant integers using multiplication", 1994).
"""

from __future__ import annotations

from weft.codegen.ir_text.emit.arith import emit_signed_division
from weft.codegen.ir_text.types import int_constant, splat, value_type
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType
from weft.target import CpuTarget
from weft.tir import expr as tir

# With fewer lanes the multiplications of single elements, which have a high half, are faster.
_FEWEST_LANES = 4
_LOW = (1 << 32) - 1  # the lower half of a number


def emit_constant_division(
    out: FunctionWriter, op: type, dtype: DType, a: str, divisor: int, *, nonnegative: bool
) -> str:
    """``a op divisor``, as shift or mask where the divisor is a power of two.

    ``nonnegative`` says that ``a`` is known to be at least 0, which allows unsigned division.
    """
    kind = value_type(dtype)

    def const(value: int) -> str:
        return splat(int_constant(value, dtype), f"i{dtype.bits}", dtype.lanes)

    unsigned = nonnegative or dtype.code == "uint"
    if divisor & (divisor - 1) == 0 and (op is not tir.Div or unsigned):
        if op is tir.FloorMod:
            return out.emit(f"and {kind} {a}, {const(divisor - 1)}")
        # An arithmetic shift rounds down, as ``FloorDiv`` does; ``Div`` rounds towards zero.
        shift = "lshr" if unsigned else "ashr"
        return out.emit(f"{shift} {kind} {a}, {const(divisor.bit_length() - 1)}")
    if _by_halves(out, dtype) and (op is not tir.Div or unsigned):
        quotient = _Halves(out, dtype).floordiv(a, divisor, nonnegative=nonnegative)
        if op is not tir.FloorMod:
            return quotient
        product = out.emit(f"mul {kind} {quotient}, {const(divisor)}")
        return out.emit(f"sub {kind} {a}, {product}")
    if unsigned:
        return out.emit(f"{'urem' if op is tir.FloorMod else 'udiv'} {kind} {a}, {const(divisor)}")
    return emit_signed_division(out, op, dtype, a, const(divisor))


def _by_halves(out: FunctionWriter, dtype: DType) -> bool:
    target = out.module.target
    return (dtype.bits == 64 and dtype.lanes >= _FEWEST_LANES and isinstance(target, CpuTarget)
            and target.lanes(dtype.element) >= _FEWEST_LANES)


class _Halves:
    """Division of vectors of 64 bits, by products of halves."""

    def __init__(self, out: FunctionWriter, dtype: DType) -> None:
        self._out, self._dtype, self._kind = out, dtype, value_type(dtype)

    def floordiv(self, a: str, divisor: int, *, nonnegative: bool) -> str:
        """The quotient, rounded down, by a divisor that is no power of two."""
        if self._dtype.code == "uint" and not nonnegative:
            return self._of_all_bits(a, divisor)
        if nonnegative:
            return self._of_63_bits(a, divisor)
        # ~(~a / d) is the quotient of a negative ``a``, rounded down.
        sign = self._do("ashr", a, 63)
        quotient = self._of_63_bits(self._do("xor", a, sign), divisor)
        return self._do("xor", quotient, sign)

    def _of_63_bits(self, a: str, divisor: int) -> str:
        """With the reciprocal rounded up to 64 bits, which are enough for numbers of 63."""
        bits = (divisor - 1).bit_length()
        high = self._high_half(a, -(-(1 << (63 + bits)) // divisor))
        return self._do("lshr", high, bits - 1)

    def _of_all_bits(self, a: str, divisor: int) -> str:
        """The reciprocal has 65 bits, of which the first is 1: that adds ``a`` to the product."""
        bits = (divisor - 1).bit_length()
        high = self._high_half(a, (((1 << bits) - divisor) << 64) // divisor + 1)
        half = self._do("lshr", self._do("sub", a, high), 1)
        return self._do("lshr", self._do("add", half, high), bits - 1)

    def _high_half(self, a: str, factor: int) -> str:
        """The upper 64 of the 128 bits of a product."""
        low, upper = self._do("and", a, _LOW), self._do("lshr", a, 32)
        first, second = factor & _LOW, factor >> 32
        carried = self._do("lshr", self._do("mul", low, first), 32)
        cross = self._do("add", self._do("mul", upper, first), carried)
        other = self._do("add", self._do("mul", low, second), self._do("and", cross, _LOW))
        high = self._do("add", self._do("mul", upper, second), self._do("lshr", cross, 32))
        return self._do("add", high, self._do("lshr", other, 32))

    def _do(self, op: str, a: str, b: str | int) -> str:
        if isinstance(b, int):
            constant = int_constant(b, DType("uint", 64))
            b = splat(constant, "i64", self._dtype.lanes)
        return self._out.emit(f"{op} {self._kind} {a}, {b}")
