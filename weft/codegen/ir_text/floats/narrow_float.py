"""Conversion between float32 and floats of 16 bits and fewer, whose arithmetic runs in float32.

float16 uses the CPU's conversion instructions if there are any. The instruction to bfloat16 flushes
denormals, so it is used only for vectors without denormals. All other conversions are integer
arithmetic; LLVM would call compiler-rt functions, which are not linked.

No value has LLVM's type ``bfloat`` but those between such an instruction and the bitcast behind it,
one register each. x86 has no scalar of the type: where LLVM folds a conversion of constants (lanes
that a mask leaves out are zero) after it has legalised the types, it aborts the process.
"""

from __future__ import annotations

from weft.codegen.ir_text.floats.i32_vector import I32Vector
from weft.codegen.ir_text.floats.small_float import narrow_small, widen_small
from weft.codegen.ir_text.types import splat, vector_of
from weft.codegen.ir_text.vector.legal_width import split_to_legal_width
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType
from weft.support.errors import CodegenError

# From this many lanes on, a test for denormals costs less than integer arithmetic.
BRANCH_LANES = 8


def widen(out: FunctionWriter, value: str, dtype: DType) -> str:
    """A narrow float as float32; exact."""
    if dtype.is_small_float:
        return widen_small(out, value, dtype)
    lanes = dtype.lanes
    half, real = vector_of("half", lanes), vector_of("float", lanes)
    if dtype.code == "bfloat":
        return _HalfConversions(out, lanes).widen_bfloat(value)
    if out.module.target.converts_half:
        return out.emit(f"fpext {half} {value} to {real}")
    return _HalfConversions(out, lanes).widen_half(value)


def narrow(out: FunctionWriter, value: str, dtype: DType) -> str:
    """float32 rounded to nearest in ``dtype``, ties to even; NaN stays NaN."""
    if dtype.is_small_float:
        return narrow_small(out, value, dtype)
    lanes = dtype.lanes
    half, real = vector_of("half", lanes), vector_of("float", lanes)
    if dtype.code == "bfloat":
        halves = _HalfConversions(out, lanes)
        if lanes >= BRANCH_LANES and out.module.target.has("avx512bf16"):
            return halves.narrow_by_instruction(value)
        return halves.narrow_to_bfloat(value)
    if dtype.code != "float":
        raise CodegenError("not a narrow float", got=str(dtype))
    if out.module.target.converts_half:
        return out.emit(f"fptrunc {real} {value} to {half}")
    return _HalfConversions(out, lanes).narrow_to_half(value)


def round_to_odd(out: FunctionWriter, value: str, lanes: int) -> str:
    """float64 rounded to odd in float32, so that a second rounding to float16 is correct.

    An inexact result is the neighbour with an odd significand, which avoids double rounding
    (Boldo and Melquiond, "Emulation of FMA and Correctly Rounded Sums", 2008).
    """
    bits32 = _HalfConversions(out, lanes)
    double, real, flag = (vector_of(t, lanes) for t in ("double", "float", "i1"))
    near = out.emit(f"fptrunc {double} {value} to {real}")
    back = out.emit(f"fpext {real} {near} to {double}")
    sizes = [bits32.absolute(v, double, "f64") for v in (back, value)]
    larger = out.emit(f"fcmp ogt {double} {sizes[0]}, {sizes[1]}")
    inexact = out.emit(f"fcmp one {double} {back}, {value}")
    bits = bits32.bits(near)
    # If ``near`` was rounded away from zero, step back by one unit in the last place. Of the two
    # neighbours, setting the last bit then gives the odd one.
    one = out.emit(f"zext {flag} {larger} to {bits32.i32}")
    towards_zero = bits32.op("sub", bits, one)
    odd = bits32.op("or", towards_zero, bits32.const(1))
    return bits32.real(bits32.choose(inexact, odd, bits))


class _HalfConversions(I32Vector):
    def widen_bfloat(self, value: str) -> str:
        return self.real(self.op("shl", self.extended(value, self.short), self.const(16)))

    def narrow_to_bfloat(self, value: str) -> str:
        bits = self.bits(value)
        quiet = self.op("or", self.op("lshr", bits, self.const(16)), self.const(0x40))
        chosen = self.choose(self.is_nan(value), quiet, self.rounded(bits, 16))
        return self.truncated(chosen, self.short)

    def narrow_by_instruction(self, value: str) -> str:
        """By ``vcvtneps2bf16``; in integer arithmetic if a lane is denormal, which it flushes."""
        out, label = self.out, self.out.fresh("denormal")
        width = 8 if self.lanes < 16 and out.module.target.has("avx512vl") else 16
        short = split_to_legal_width(out, [(value, "float")], "i16", self.lanes, width,
                                     lambda registers: self._narrowed(registers[0], width))
        flags = out.emit(f"bitcast {self.flag} {self._are_denormal(value)} to i{self.lanes}")
        found = out.emit(f"icmp ne i{self.lanes} {flags}, 0")
        before = out.block
        out.do(f"br i1 {found}, label %{label}, label %{label}.done, !prof {self._rarely()}")
        out.start_block(label)
        exact = self.narrow_to_bfloat(value)
        last = out.block
        out.branch(f"{label}.done")
        out.start_block(f"{label}.done")
        return out.emit(f"phi {self.short} [ {short}, %{before} ], [ {exact}, %{last} ]")

    def _narrowed(self, value: str, lanes: int) -> str:
        """The bits of one register of float32 values, narrowed by an intrinsic of the CPU."""
        out = self.out
        real, kind = vector_of("float", lanes), vector_of("bfloat", lanes)
        callee = out.module.declare(f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * lanes}",
                                    f"{kind} @({real})")
        rounded = out.emit(f"call {kind} {callee}({real} {value})")
        return out.emit(f"bitcast {kind} {rounded} to {vector_of('i16', lanes)}")

    def _are_denormal(self, value: str) -> str:
        """Denormal: without the sign, the bits lie in [1, 2**23)."""
        bits = self.bits(value)
        magnitude = self.op("add", bits, bits)
        # Doubling shifts the sign out; subtracting 1 wraps zero to the largest integer.
        below = self.op("add", magnitude, self.const(-1))
        return self.out.emit(f"icmp ult {self.i32} {below}, {self.const((1 << 24) - 1)}")

    def _rarely(self) -> str:
        """Branch weights for a branch that is almost never taken."""
        return self.out.module.metadata('!{!"branch_weights", i32 1, i32 2000}')

    def widen_half(self, value: str) -> str:
        short = self.out.emit(f"bitcast {self.half} {value} to {self.short}")
        bits = self.extended(short, self.short)
        sign = self.op("shl", self.op("and", bits, self.const(0x8000)), self.const(16))
        magnitude = self.op("and", bits, self.const(0x7FFF))
        # Read as float32, these bits are the number times 2**-112, denormals included.
        small = self.real(self.op("shl", magnitude, self.const(13)))
        scale = splat("0x46F0000000000000", "float", self.lanes)  # 2**112
        finite = self.bits(self.out.emit(f"fmul {self.float} {small}, {scale}"))
        # Above 0x7BFF, the largest finite number, lie infinity and NaN. Setting all exponent bits
        # keeps the mantissa, which tells them apart.
        special = self.op("or", finite, self.const(0x7F800000))
        chosen = self.choose(self.above(magnitude, 0x7BFF), special, finite)
        return self.real(self.op("or", chosen, sign))

    def narrow_to_half(self, value: str) -> str:
        bits = self.bits(value)
        sign = self.op("lshr", self.op("and", bits, self.const(1 << 31)), self.const(16))
        magnitude = self.op("and", bits, self.const(0x7FFFFFFF))
        # 2**-24, the last bit of float16 denormals, is the last bit of a float32 near 1/2, so
        # adding 1/2 rounds correctly.
        half = splat("0x3FE0000000000000", "float", self.lanes)
        sum_ = self.out.emit(f"fadd {self.float} {self.real(magnitude)}, {half}")
        denormal = self.op("sub", self.bits(sum_), self.const(0x3F000000))
        # 0x38800000 is 2**-14, the smallest normal float16. 0x477FF000 is 65520, halfway between
        # the largest float16 and the next power of two: from there on, numbers round to infinity.
        normal = self.rounded(self.op("sub", magnitude, self.const(112 << 23)), 13)
        finite = self.choose(self.above(magnitude, 0x387FFFFF), normal, denormal)
        limited = self.choose(self.above(magnitude, 0x477FEFFF), self.const(0x7C00), finite)
        result = self.choose(self.above(magnitude, 0x7F800000), self.const(0x7E00), limited)
        short = self.truncated(self.op("or", result, sign), self.short)
        return self.out.emit(f"bitcast {self.short} {short} to {self.half}")
