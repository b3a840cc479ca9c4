"""Division of vectors of 64-bit integers by values, through float64 where the CPU converts them.

A quotient of floats has an error below ``2**-50`` of itself, so at most some thousands. That of the
remainder is then exact but for 1, which the sign of the next remainder tells.
"""

from __future__ import annotations

from weft.codegen.ir_text.types import splat, value_type, vector_of
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType
from weft.target import CpuTarget
from weft.tir import expr as tir


def divides_by_floats(out: FunctionWriter, dtype: DType) -> bool:
    """Whether vectors of signed integers are divided so: divisions take an element at a time."""
    target = out.module.target
    return (dtype.code == "int" and dtype.bits == 64 and dtype.lanes > 1
            and isinstance(target, CpuTarget) and target.has("avx512dq"))


class FloatDivision:
    """``a op b`` for floor division and modulo; ``b`` is not zero, and neither -1."""

    def __init__(self, out: FunctionWriter, dtype: DType) -> None:
        self._out, self._lanes, self._kind = out, dtype.lanes, value_type(dtype)
        self._float, self._flag = vector_of("double", dtype.lanes), vector_of("i1", dtype.lanes)

    def emit(self, op: type, a: str, b: str) -> str:
        quotient, rest, zero = *self._magnitudes(a, b), self._int(0)
        sign, inexact = self._do("ashr", a, self._int(63)), self._test("ne", rest, zero)
        opposite = self._test("slt", self._do("xor", a, b), zero)
        fix = self._out.emit(f"and {self._flag} {opposite}, {inexact}")
        if op is tir.FloorMod:
            signed = self._do("sub", self._do("xor", rest, sign), sign)
            return self._do("add", signed, self._choose(fix, b, zero))
        negated = self._do("sub", self._choose(fix, self._int(-1), zero), quotient)
        return self._choose(opposite, negated, quotient)

    def _magnitudes(self, a: str, b: str) -> tuple[str, str]:
        """The quotient of absolute values, rounded down, and what it leaves."""
        n, d = self._absolute(a), self._absolute(b)
        one = splat("1.0", "double", self._lanes)
        divisor = self._convert("uitofp", d, self._kind, self._float)
        inverse = self._out.emit(f"fdiv {self._float} {one}, {divisor}")
        quotient, rest = self._step("u", n, d, inverse)
        more, rest = self._step("s", rest, d, inverse)
        quotient = self._do("add", quotient, more)
        below = self._test("slt", rest, self._int(0))
        quotient = self._do("add", quotient, self._choose(below, self._int(-1), self._int(0)))
        rest = self._do("add", rest, self._choose(below, d, self._int(0)))
        above = self._test("uge", rest, d)
        quotient = self._do("add", quotient, self._choose(above, self._int(1), self._int(0)))
        return quotient, self._do("sub", rest, self._choose(above, d, self._int(0)))

    def _step(self, sign: str, n: str, d: str, inverse: str) -> tuple[str, str]:
        """About ``n / d``, and the remainder."""
        number = self._convert(f"{sign}itofp", n, self._kind, self._float)
        product = self._out.emit(f"fmul {self._float} {number}, {inverse}")
        quotient = self._convert(f"fpto{sign}i", product, self._float, self._kind)
        return quotient, self._do("sub", n, self._do("mul", quotient, d))

    def _absolute(self, x: str) -> str:
        sign = self._do("ashr", x, self._int(63))
        return self._do("sub", self._do("xor", x, sign), sign)

    def _do(self, op: str, a: str, b: str) -> str:
        return self._out.emit(f"{op} {self._kind} {a}, {b}")

    def _test(self, predicate: str, a: str, b: str) -> str:
        return self._out.emit(f"icmp {predicate} {self._kind} {a}, {b}")

    def _choose(self, flag: str, a: str, b: str) -> str:
        return self._out.emit(f"select {self._flag} {flag}, {self._kind} {a}, {self._kind} {b}")

    def _convert(self, op: str, x: str, source: str, target: str) -> str:
        return self._out.emit(f"{op} {source} {x} to {target}")

    def _int(self, value: int) -> str:
        return splat(str(value), "i64", self._lanes)
