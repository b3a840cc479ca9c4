"""Float remainder: C's ``fmod``, vectorised and exact for every quotient.

With ``q = trunc(a / b)``, the remainder ``a - q * b`` is representable, so one fused multiply-add
computes it exactly if ``q`` is. The first step handles quotients with fewer bits than the
significand. Only if a lane has a larger quotient, a loop subtracts multiples of ``b * 2**k`` until
every remainder is below the divisor.
"""

from __future__ import annotations

from weft.codegen.ir_text.emit.arith import call_overloaded, emit_fma
from weft.codegen.ir_text.floats.narrow_float import narrow, widen
from weft.codegen.ir_text.types import float_constant, int_constant, splat, value_type, vector_of
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType, float32
from weft.tir.expr import FloorMod

_MANTISSA_BITS = {32: 23, 64: 52}
_BIAS = {32: 127, 64: 1023}


def emit_fmod(out: FunctionWriter, dtype: DType, a: str, b: str) -> str:
    """``a - trunc(a / b) * b`` of float32 or float64, exactly, with the sign of ``a``.

    NaN where ``a`` is infinite or ``b`` is zero; ``a`` where ``b`` is infinite.
    """
    return _Remainder(out, dtype).of(a, b)


class _Remainder:
    def __init__(self, out: FunctionWriter, dtype: DType) -> None:
        self.out = out
        self.dtype = dtype
        self.lanes = dtype.lanes
        self.scalar = value_type(dtype.element)
        self.kind = value_type(dtype)
        self.int_dtype = DType("int", dtype.bits)
        self.integer_type = vector_of(f"i{dtype.bits}", dtype.lanes)
        self.flag = vector_of("i1", dtype.lanes)
        self.mantissa_bits = _MANTISSA_BITS[dtype.bits]
        self.bias = _BIAS[dtype.bits]
        self.is_fused = out.module.target.has_fma

    def of(self, a: str, b: str) -> str:
        rest, divisor = self._call("fabs", a), self._call("fabs", b)
        is_number = self._and(
            self._compare("olt", rest, self._real(float("inf"))),
            self._compare("ogt", divisor, self._real(0.0)))
        if self.is_fused:
            ratio = self._float("fdiv", rest, divisor)
            few_digits = self._compare("olt", ratio, self._real(2.0 ** (self.mantissa_bits - 1)))
            is_small_quotient = self._and(few_digits, self._compare("oge", rest, divisor))
            rest = self._choose(is_small_quotient, self._without(rest, divisor, ratio), rest)
        rest = self._loop(rest, divisor, is_number)
        result = self._call("copysign", rest, a)
        known = self._choose(is_number, result, self._real(float("nan")))
        return self._choose(self._compare("uno", b, b), b, known)

    def _loop(self, first: str, divisor: str, is_number: str) -> str:
        """Subtract multiples of the divisor until all remainders are below it."""
        out = self.out
        label, before = out.fresh("remainder"), out.block
        rest, following = f"%{label}.rest", f"%{label}.next"
        out.branch(label)
        out.start_block(label)
        out.do(f"{rest} = phi {self.kind} [ {first}, %{before} ], [ {following}, %{label}.step ]")
        is_active = self._and(is_number, self._compare("oge", rest, divisor))
        out.do(f"br i1 {self._any(is_active)}, label %{label}.step, label %{label}.done")
        out.start_block(f"{label}.step")
        taken = self._step(rest, divisor)
        out.do(f"{following} = select {self.flag} {is_active}, {self.kind} {taken}, "
               f"{self.kind} {rest}")
        out.branch(label)
        out.start_block(f"{label}.done")
        return rest

    def _step(self, rest: str, divisor: str) -> str:
        distance = self._integer("sub", self._exponent(rest), self._exponent(divisor))
        if self.is_fused:
            # Keeps the ratio below 2**(mantissa_bits - 1), so that its integer part is exact.
            digits = self._whole(self.mantissa_bits - 2)
            distance = self._call_whole("smax", self._integer("sub", distance, digits),
                                        self._whole(0))
            multiple = self._scaled(divisor, distance)
            return self._without(rest, multiple, self._float("fdiv", rest, multiple))
        # At most twice the remainder, so the difference is exact.
        multiple = self._scaled(divisor, distance)
        half = self._float("fmul", multiple, self._real(0.5))
        too_large = self._compare("ogt", multiple, rest)
        return self._float("fsub", rest, self._choose(too_large, half, multiple))

    def _without(self, rest: str, divisor: str, ratio: str) -> str:
        """``rest - trunc(ratio) * divisor``, plus a divisor if ``ratio`` was rounded up."""
        quotient = self._call("trunc", ratio)
        negated = self.out.emit(f"fneg {self.kind} {quotient}")
        reduced = emit_fma(self.out, self.kind, negated, divisor, rest)
        below = self._compare("olt", reduced, self._real(0.0))
        return self._choose(below, self._float("fadd", reduced, divisor), reduced)

    def _exponent(self, value: str) -> str:
        """The biased exponent of a positive number, as if denormals were normalised."""
        lift = self.mantissa_bits + 1
        is_small = self._compare("olt", value, self._real(2.0 ** (1 - self.bias)))
        lifted = self._float("fmul", value, self._real(2.0**lift))
        bits = self.out.emit(
            f"bitcast {self.kind} {self._choose(is_small, lifted, value)} to {self.integer_type}")
        field = self._integer("lshr", bits, self._whole(self.mantissa_bits))
        lowered = self._integer("sub", field, self._whole(lift))
        return self.out.emit(f"select {self.flag} {is_small}, {self.integer_type} {lowered}, "
                             f"{self.integer_type} {field}")

    def _scaled(self, value: str, exponent: str) -> str:
        """``value * 2**exponent`` in three steps: the exponent may exceed a float's range."""
        # The exponents of a large number and a denormal differ by less than 3 * (bias - 1).
        most = self.bias - 1
        for _ in range(3):
            step = self._call_whole("smin", exponent, self._whole(most))
            exponent = self._integer("sub", exponent, step)
            biased = self._integer("add", step, self._whole(self.bias))
            bits = self._integer("shl", biased, self._whole(self.mantissa_bits))
            power = self.out.emit(f"bitcast {self.integer_type} {bits} to {self.kind}")
            value = self._float("fmul", value, power)
        return value

    def _real(self, value: float) -> str:
        return splat(float_constant(value, self.dtype.element), self.scalar, self.lanes)

    def _whole(self, value: int) -> str:
        return splat(int_constant(value, self.int_dtype), f"i{self.dtype.bits}", self.lanes)

    def _float(self, name: str, a: str, b: str) -> str:
        return self.out.emit(f"{name} {self.kind} {a}, {b}")

    def _integer(self, name: str, a: str, b: str) -> str:
        return self.out.emit(f"{name} {self.integer_type} {a}, {b}")

    def _call(self, name: str, *operands: str) -> str:
        return call_overloaded(self.out, name, self.kind, operands)

    def _call_whole(self, name: str, *operands: str) -> str:
        return call_overloaded(self.out, name, self.integer_type, operands)

    def _compare(self, predicate: str, a: str, b: str) -> str:
        return self.out.emit(f"fcmp {predicate} {self.kind} {a}, {b}")

    def _and(self, a: str, b: str) -> str:
        return self.out.emit(f"and {self.flag} {a}, {b}")

    def _choose(self, condition: str, a: str, b: str) -> str:
        return self.out.emit(f"select {self.flag} {condition}, {self.kind} {a}, {self.kind} {b}")

    def _any(self, flags: str) -> str:
        if self.lanes == 1:
            return flags
        integer_type = f"i{self.lanes}"
        bits = self.out.emit(f"bitcast {self.flag} {flags} to {integer_type}")
        return self.out.emit(f"icmp ne {integer_type} {bits}, 0")


def emit_float_floor(out: FunctionWriter, op: type, dtype: DType, a: str, b: str) -> str:
    """``FloorDiv`` or ``FloorMod`` of floats with the semantics of Python and NumPy.

    The remainder has the sign of the divisor. The quotient is ``(a - remainder) / b``, rounded to
    the nearest integer: ``1.0 // 0.1`` is 9.
    """
    if dtype.is_narrow_float:
        wide = float32.vector(dtype.lanes)
        result = emit_float_floor(out, op, wide, widen(out, a, dtype), widen(out, b, dtype))
        return narrow(out, result, dtype)
    kind, flag = value_type(dtype), vector_of("i1", dtype.lanes)
    zero, one, half = (splat(float_constant(v, dtype.element), value_type(dtype.element),
                             dtype.lanes) for v in (0.0, 1.0, 0.5))

    def choose(condition: str, t: str, f: str) -> str:
        return out.emit(f"select {flag} {condition}, {kind} {t}, {kind} {f}")

    # The steps are those of CPython's ``float.__divmod__`` (``Objects/floatobject.c``).
    rest = emit_fmod(out, dtype, a, b)
    signs = [out.emit(f"fcmp olt {kind} {v}, {zero}") for v in (rest, b)]
    is_inexact = out.emit(f"fcmp one {kind} {rest}, {zero}")
    is_below = out.emit(f"and {flag} {out.emit(f'xor {flag} {signs[0]}, {signs[1]}')}, "
                        f"{is_inexact}")
    if op is FloorMod:
        signed_zero = call_overloaded(out, "copysign", kind, (zero, b))
        is_zero = out.emit(f"fcmp oeq {kind} {rest}, {zero}")
        moved = choose(is_below, out.emit(f"fadd {kind} {rest}, {b}"), rest)
        return choose(is_zero, signed_zero, moved)
    ratio = out.emit(f"fdiv {kind} {a}, {b}")
    quotient = out.emit(f"fdiv {kind} {out.emit(f'fsub {kind} {a}, {rest}')}, {b}")
    quotient = choose(is_below, out.emit(f"fsub {kind} {quotient}, {one}"), quotient)
    down = call_overloaded(out, "floor", kind, (quotient,))
    missing = out.emit(f"fsub {kind} {quotient}, {down}")
    is_short = out.emit(f"fcmp ogt {kind} {missing}, {half}")
    down = choose(is_short, out.emit(f"fadd {kind} {down}, {one}"), down)
    is_zero = out.emit(f"fcmp oeq {kind} {quotient}, {zero}")
    down = choose(is_zero, call_overloaded(out, "copysign", kind, (zero, ratio)), down)
    # Division by zero gives an infinity or NaN, as ``/`` does.
    by_zero = out.emit(f"fcmp oeq {kind} {b}, {zero}")
    return choose(by_zero, ratio, down)
