"""Emitters of arithmetic intrinsics: those with an instruction on every supported target.

Intrinsics that LLVM would turn into library calls (exp, log, sin, ...) are not here: the pass
``lower_intrinsics`` replaces them with arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from weft.codegen.ir_text.emit.arith import call_overloaded
from weft.codegen.ir_text.emit.cast import emit_cast
from weft.codegen.ir_text.floats.remainder import emit_fmod
from weft.codegen.ir_text.types import float_constant, mangle, splat, value_type
from weft.codegen.ir_text.vector.legal_width import split_to_legal_width
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType, float32, float64
from weft.support.errors import CodegenError

# (out, result dtype, operands, their dtypes) -> the result
IntrinsicEmitter: TypeAlias = Callable[[FunctionWriter, DType, Sequence[str], Sequence[DType]], str]


def _float(name: str, through: DType = float32) -> IntrinsicEmitter:
    """LLVM's float intrinsic ``name``; narrow floats are computed in the dtype ``through``."""

    def rule(
        out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
    ) -> str:
        if dtype.is_narrow_float:
            wide = through.vector(dtype.lanes)
            upcast = [emit_cast(out, v, dtype, wide) for v in values]
            return emit_cast(out, rule(out, wide, upcast, dtypes), wide, dtype)
        if dtype.code != "float":
            raise CodegenError(f"{name} is not defined on {dtype}")
        return call_overloaded(out, name, value_type(dtype), values)

    return rule


_fabs = _float("fabs")


_fma = _float("fma", through=float64)


def _multiply_add(
    out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    if out.module.target.has_fma or dtype.bits < 32:
        return _fma(out, dtype, values, dtypes)
    a, b, c = values
    product = out.emit(f"fmul {value_type(dtype)} {a}, {b}")
    return out.emit(f"fadd {value_type(dtype)} {product}, {c}")


def _fmod(
    out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    """C's ``fmod``. For narrow floats, float32 computes it exactly, and the dtype represents it."""
    if dtype.is_narrow_float:
        wide = float32.vector(dtype.lanes)
        a, b = (emit_cast(out, v, dtype, wide) for v in values)
        return emit_cast(out, emit_fmod(out, wide, a, b), wide, dtype)
    if dtype.code != "float":
        raise CodegenError(f"fmod is not defined on {dtype}", got=str(dtypes[0]))
    return emit_fmod(out, dtype, *values)


def _abs(out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]) -> str:
    if dtype.is_float:
        return _fabs(out, dtype, values, dtypes)
    if dtype.code != "int":
        return values[0]
    kind = value_type(dtype)
    callee = out.module.declare(f"llvm.abs.{mangle(kind)}", f"{kind} @({kind}, i1)")
    # ``false``: the smallest integer gives itself, as in NumPy, and not poison.
    return out.emit(f"call {kind} {callee}({kind} {values[0]}, i1 false)")


def _isnan(out: FunctionWriter, _: DType, values: Sequence[str], dtypes: Sequence[DType]) -> str:
    source = float32.vector(dtypes[0].lanes) if dtypes[0].is_narrow_float else dtypes[0]
    value, kind = emit_cast(out, values[0], dtypes[0], source), value_type(source)
    return out.emit(f"fcmp uno {kind} {value}, {value}")


def _popcount(out: FunctionWriter, dtype: DType, values: Sequence[str], _: Sequence[DType]) -> str:
    return call_overloaded(out, "ctpop", value_type(dtype), values)


def _bitwise(signed: str, unsigned: str) -> IntrinsicEmitter:
    def rule(out: FunctionWriter, dtype: DType, values: Sequence[str], _: Sequence[DType]) -> str:
        name = unsigned if dtype.code == "uint" else signed
        return out.emit(f"{name} {value_type(dtype)} {values[0]}, {values[1]}")

    return rule


def _not(out: FunctionWriter, dtype: DType, values: Sequence[str], _: Sequence[DType]) -> str:
    ones = splat("true" if dtype.is_bool else "-1", value_type(dtype.element), dtype.lanes)
    return out.emit(f"xor {value_type(dtype)} {values[0]}, {ones}")


def _times_power_of_two(
    out: FunctionWriter, dtype: DType, values: Sequence[str], _: Sequence[DType]
) -> str:
    """``x * 2**floor(n)``: ``vscalef`` on AVX-512, else two multiplications by half the power."""
    target = out.module.target
    has_scalef = target.arch == "x86_64" and target.has("avx512vl")
    size, scalar = dtype.bits * dtype.lanes, value_type(dtype.element)
    if not has_scalef or (size not in (128, 256) and size % 512):
        return _in_two_steps(out, dtype, values)
    register = dtype.element.vector(min(size, 512) // dtype.bits)
    return split_to_legal_width(
        out, [(v, scalar) for v in values], scalar, dtype.lanes, register.lanes,
        lambda registers: _scalef(out, register, registers),
    )  # fmt: skip


def _scalef(out: FunctionWriter, dtype: DType, values: Sequence[str]) -> str:
    kind, width = value_type(dtype), dtype.bits * dtype.lanes
    mask = f"i{max(dtype.lanes, 8)}"
    letter = "s" if dtype.bits == 32 else "d"
    rounding, current = (", i32", ", i32 4") if width == 512 else ("", "")
    callee = out.module.declare(
        f"llvm.x86.avx512.mask.scalef.p{letter}.{width}",
        f"{kind} @({kind}, {kind}, {kind}, {mask}{rounding})",
    )
    value, exponent = values
    return out.emit(f"call {kind} {callee}({kind} {value}, {kind} {exponent}, "
                    f"{kind} zeroinitializer, {mask} -1{current})")


def _in_two_steps(out: FunctionWriter, dtype: DType, values: Sequence[str]) -> str:
    """Two multiplications, since ``2**n`` alone may overflow or underflow.

    Adding the magic constant leaves ``n + 2 * bias`` in the low bits, above four fraction bits.
    One half of it, rounded down, and the rest are each a biased exponent.
    """
    mantissa_bits, bias = (23, 127) if dtype.bits == 32 else (52, 1023)
    whole = DType.of(f"int{dtype.bits}")
    kind, integer = value_type(dtype), value_type(whole.vector(dtype.lanes))
    float_word = value_type(dtype.element)
    shifter = float_constant(1.5 * 2.0 ** (mantissa_bits - 4) + 2 * bias, dtype.element)
    magic = splat(shifter, float_word, dtype.lanes)

    def shifted(name: str, value: str, count: int) -> str:
        return out.emit(f"{name} {integer} {value}, "
                        f"{splat(str(count), value_type(whole), dtype.lanes)}")

    moved = out.emit(f"fadd {kind} {values[1]}, {magic}")
    bits = out.emit(f"bitcast {kind} {moved} to {integer}")
    half = shifted("ashr", bits, 5)
    rest = out.emit(f"sub {integer} {shifted('ashr', bits, 4)}, {half}")
    result = values[0]
    for exponent in (half, rest):
        biased = shifted("shl", exponent, mantissa_bits)
        power = out.emit(f"bitcast {integer} {biased} to {kind}")
        result = out.emit(f"fmul {kind} {result}, {power}")
    return result


def _reinterpret(
    out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    source = dtypes[0]
    if source.bits * source.lanes != dtype.bits * dtype.lanes:
        raise CodegenError("reinterpret between dtypes of different sizes",
                           got=f"{source} as {dtype}")
    before, after = value_type(source), value_type(dtype)
    return values[0] if before == after else out.emit(f"bitcast {before} {values[0]} to {after}")


INTRINSIC_EMITTERS: Mapping[str, IntrinsicEmitter] = {
    "sqrt": _float("sqrt"),
    "floor": _float("floor"),
    "ceil": _float("ceil"),
    # rint rounds to nearest even in the default mode; not every C library has roundeven.
    "round": _float("rint"),
    "trunc": _float("trunc"),
    "fma": _fma,
    "multiply_add": _multiply_add,
    "fmod": _fmod,
    "abs": _abs,
    "times_power_of_two": _times_power_of_two,
    "isnan": _isnan,
    "popcount": _popcount,
    "shift_left": _bitwise("shl", "shl"),
    "shift_right": _bitwise("ashr", "lshr"),
    "bitwise_and": _bitwise("and", "and"),
    "bitwise_or": _bitwise("or", "or"),
    "bitwise_xor": _bitwise("xor", "xor"),
    "bitwise_not": _not,
    "reinterpret": _reinterpret,
}
