"""``Body``: builds the expression of an elementary function as a sequence of lets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.tir.expr import Call, ExprLike, Let, PrimExpr, Var, const


@dataclass(frozen=True, slots=True)
class Format:
    """Parameters of a floating-point format."""

    mantissa_bits: int
    bias: int
    integer: str

    @property
    def round_magic(self) -> float:
        """Adding it to a number leaves the nearest integer in the low mantissa bits."""
        return 1.5 * 2.0**self.mantissa_bits


# From this many terms on, polynomials are evaluated in pairs.
_PAIRED_TERMS = 5

FORMATS = {32: Format(23, 127, "int32"), 64: Format(52, 1023, "int64")}


class Body:
    """A sequence of values bound by ``let``; ``result`` nests the lets around the last value.

    With lets the expression has linear size, and every value is computed once.
    """

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.lanes = dtype.lanes
        self.format = FORMATS[dtype.bits]
        self.integer = DType.of(self.format.integer).vector(dtype.lanes)
        self._lets: list[tuple[Var, PrimExpr]] = []

    def within(self, dtype: DType) -> Body:
        """A body for another element type that appends to the same sequence of lets."""
        inner = Body(dtype.vector(self.lanes))
        inner._lets = self._lets
        return inner

    def let(self, name: str, value: PrimExpr) -> PrimExpr:
        var = Var(name, value.dtype)
        self._lets.append((var, value))
        return var

    def result(self, value: PrimExpr) -> PrimExpr:
        for var, bound in reversed(self._lets):
            value = Let(var, bound, value)
        return value

    def real(self, value: float) -> PrimExpr:
        return const(value, self.dtype)

    def whole(self, value: int) -> PrimExpr:
        return const(value, self.integer)

    def fma(self, a: ExprLike, b: ExprLike, c: ExprLike) -> PrimExpr:
        """``a * b + c`` with a single rounding, for results that depend on it."""
        return self._of_three("fma", a, b, c)

    def multiply_add(self, a: ExprLike, b: ExprLike, c: ExprLike) -> PrimExpr:
        """``a * b + c``; CPUs without FMA instructions round the product too."""
        return self._of_three("multiply_add", a, b, c)

    def _of_three(self, name: str, *operands: ExprLike) -> PrimExpr:
        args = tuple(v if isinstance(v, PrimExpr) else self.real(v) for v in operands)
        return Call(self.dtype, name, args)

    def polynomial(self, name: str, at: PrimExpr, coefficients: Sequence[ExprLike]) -> PrimExpr:
        """The polynomial in ``at``; the constant term comes first.

        Many terms are evaluated by Horner's rule over pairs of terms (Estrin): one multiplication
        more, but half the latency.
        """
        terms = list(coefficients)
        if len(terms) >= _PAIRED_TERMS:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            whole = [self.let(name, self.multiply_add(b, at, a)) for a, b in pairs]
            terms = [*whole, *terms[len(whole) * 2 :]]
            at = self.let("square", at * at)
        value = terms[-1]
        for c in reversed(terms[:-1]):
            value = self.multiply_add(value, at, c)
        return self.let(name, value if isinstance(value, PrimExpr) else self.real(value))

    def bits(self, value: PrimExpr) -> PrimExpr:
        return Call(self.integer, "reinterpret", (value,))

    def from_bits(self, value: PrimExpr) -> PrimExpr:
        return Call(self.dtype, "reinterpret", (value,))

    def shift_left(self, value: PrimExpr, count: int) -> PrimExpr:
        return Call(self.integer, "shift_left", (value, self.whole(count)))

    def shift_right(self, value: PrimExpr, count: int) -> PrimExpr:
        return Call(self.integer, "shift_right", (value, self.whole(count)))

    def table_lookup(
        self, name: str, number: PrimExpr, entries: Sequence[float] | Sequence[int]
    ) -> PrimExpr:
        """Entry ``number`` of a table of 2**k constants; the index is taken modulo the length."""
        dtype = self.integer if isinstance(entries[0], int) else self.dtype
        constants = tuple(const(entry, dtype.element) for entry in entries)
        return self.let(name, Call(dtype, "table_lookup", (number, *constants)))

    def magnitude(self, value: PrimExpr) -> PrimExpr:
        return Call(self.dtype, "abs", (value,))

    def negative_magnitude(self, value: PrimExpr) -> PrimExpr:
        return self.from_bits(Call(self.integer, "bitwise_or", (self.bits(value), self._sign)))

    @property
    def _sign(self) -> PrimExpr:
        return self.whole(-(1 << (self.dtype.bits - 1)))

    def with_sign_of(self, magnitude: PrimExpr, x: PrimExpr) -> PrimExpr:
        """``magnitude``, which is not negative, with the sign of ``x``."""
        bit = Call(self.integer, "bitwise_and", (self.bits(x), self._sign))
        return self.from_bits(Call(self.integer, "bitwise_or", (self.bits(magnitude), bit)))

    def nearest(self, name: str, scaled: tuple[PrimExpr, float]) -> tuple[PrimExpr, PrimExpr]:
        """The integer nearest to a product of two values, as a float and as an integer.

        Its magnitude must be below ``2**(mantissa_bits - 1)``. For NaN both are unspecified.
        """
        magic = self.format.round_magic
        shifted = self.let(f"{name}_shifted", self.multiply_add(scaled[0], scaled[1], magic))
        as_float = self.let(name, shifted - self.real(magic))
        # The bits of the shifted number exceed those of the magic number by the integer.
        as_int = self.let(f"{name}_int", self.bits(shifted) - self.bits(self.real(magic)))
        return as_float, as_int


INFINITY = math.inf
