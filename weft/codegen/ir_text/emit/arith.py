"""Binary arithmetic, comparison and logic.

Float instructions carry only the ``contract`` flag: LLVM may fuse a multiplication and an addition
into an FMA, but must otherwise keep IEEE semantics.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.ir_text.emit.wide_division import FloatDivision, divides_by_floats
from weft.codegen.ir_text.floats.narrow_float import narrow, widen
from weft.codegen.ir_text.types import mangle, splat, value_type, vector_of, zero_of
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType, float32
from weft.support.errors import CodegenError
from weft.tir import expr as tir

_FLOAT_OPS = {
    tir.Add: "fadd contract", tir.Sub: "fsub contract", tir.Mul: "fmul contract",
    tir.Div: "fdiv",
}  # fmt: skip
_INT_OPS = {tir.Add: "add", tir.Sub: "sub", tir.Mul: "mul"}
_LOGIC_OPS = {tir.And: "and", tir.Or: "or", tir.Mul: "and", tir.Add: "or"}
# Ordered comparisons are false for NaN; ``NE`` is unordered, because NaN differs from all numbers.
_FLOAT_COMPARE = {
    tir.EQ: "oeq", tir.NE: "une", tir.LT: "olt", tir.LE: "ole", tir.GT: "ogt", tir.GE: "oge",
}  # fmt: skip
_INT_COMPARE = {
    tir.EQ: "eq", tir.NE: "ne", tir.LT: "lt", tir.LE: "le", tir.GT: "gt", tir.GE: "ge",
}  # fmt: skip


def emit_binary(out: FunctionWriter, op: type, dtype: DType, a: str, b: str) -> str:
    """``a op b`` for operands of ``dtype``; narrow floats are upcast to float32 for it.

    ``CodegenError`` for an operator that is not defined on the dtype.
    """
    if dtype.is_narrow_float:
        wide = float32.vector(dtype.lanes)
        result = emit_binary(out, op, wide, widen(out, a, dtype), widen(out, b, dtype))
        return result if op in _FLOAT_COMPARE else narrow(out, result, dtype)
    if op in _FLOAT_COMPARE:
        return _emit_compare(out, op, dtype, a, b)
    kind = value_type(dtype)
    if dtype.is_bool and op in _LOGIC_OPS:
        return out.emit(f"{_LOGIC_OPS[op]} {kind} {a}, {b}")
    table = _FLOAT_OPS if dtype.is_float else _INT_OPS
    if op is tir.Sub and a == b and dtype.is_float:
        # x - x must be 0. If ``a`` is a product, contraction would compute the product once exactly
        # and once rounded, and return the rounding error.
        return out.emit(f"fsub {kind} {a}, {b}")
    if op in table:
        return out.emit(f"{table[op]} {kind} {a}, {b}")
    if op in (tir.Min, tir.Max):
        return _emit_extremum(out, op, dtype, a, b)
    if dtype.is_int and op in (tir.Div, tir.FloorDiv, tir.FloorMod):
        return _emit_guarded_division(out, op, dtype, a, b)
    raise CodegenError(f"{op.__name__} is not defined on {dtype}")


def _emit_compare(out: FunctionWriter, op: type, dtype: DType, a: str, b: str) -> str:
    kind = value_type(dtype)
    if dtype.is_float:
        return out.emit(f"fcmp {_FLOAT_COMPARE[op]} {kind} {a}, {b}")
    sign = "" if op in (tir.EQ, tir.NE) else "s" if dtype.code == "int" else "u"
    return out.emit(f"icmp {sign}{_INT_COMPARE[op]} {kind} {a}, {b}")


def _emit_extremum(out: FunctionWriter, op: type, dtype: DType, a: str, b: str) -> str:
    kind = value_type(dtype)
    name = "max" if op is tir.Max else "min"
    if not dtype.is_float:
        prefix = "s" if dtype.code == "int" else "u"
        return call_overloaded(out, f"{prefix}{name}", kind, (a, b))
    for constant, other in ((a, b), (b, a)):
        if _is_number(constant):
            # This pattern (relu, clip) compiles to one vmaxps, which returns its second operand if
            # either operand is NaN. The second operand is ``other``; the constant is never NaN.
            predicate = "ogt" if op is tir.Max else "olt"
            chosen = out.emit(f"fcmp {predicate} {kind} {constant}, {other}")
            flag = vector_of("i1", dtype.lanes)
            return out.emit(f"select {flag} {chosen}, {kind} {constant}, {kind} {other}")
    # ``nsz``: weft does not define which of +0 and -0 is larger, and this saves two instructions.
    return call_overloaded(out, f"{name}imum", kind, (a, b), flags="nsz ")


def _is_number(ref: str) -> bool:
    """Whether an operand is a literal and not NaN."""
    if ref.startswith("%"):
        return False
    bits = ref.rpartition("0x")[2].rstrip(")")
    if not ref.startswith(("0x", "splat")) or bits.startswith("H"):
        return ref == "zeroinitializer"
    exponent = int(bits, 16) & 0x7FFFFFFFFFFFFFFF
    return exponent <= 0x7FF0000000000000


def call_overloaded(
    out: FunctionWriter, name: str, kind: str, operands: Sequence[str], flags: str = ""
) -> str:
    """Call the LLVM intrinsic ``name``, whose operands and result all have type ``kind``."""
    signature = ", ".join([kind] * len(operands))
    callee = out.module.declare(f"llvm.{name}.{mangle(kind)}", f"{kind} @({signature})")
    args = ", ".join(f"{kind} {x}" for x in operands)
    return out.emit(f"call {flags}{kind} {callee}({args})")


def emit_fma(out: FunctionWriter, kind: str, a: str, b: str, c: str) -> str:
    """``a * b + c`` with one rounding."""
    return call_overloaded(out, "fma", kind, (a, b, c))


def emit_signed_division(out: FunctionWriter, op: type, dtype: DType, a: str, b: str) -> str:
    """Signed division for operands that do not trap: no zero divisor, no overflow.

    LLVM divides towards zero; ``FloorDiv`` and ``FloorMod`` correct inexact quotients of opposite
    signs.
    """
    kind, flag, zero = value_type(dtype), vector_of("i1", dtype.lanes), zero_of(dtype)
    if op is tir.Div:
        return out.emit(f"sdiv {kind} {a}, {b}")
    rest = out.emit(f"srem {kind} {a}, {b}")
    signs = out.emit(f"xor {kind} {rest}, {b}")
    opposite = out.emit(f"icmp slt {kind} {signs}, {zero}")
    inexact = out.emit(f"icmp ne {kind} {rest}, {zero}")
    fix = out.emit(f"and {flag} {opposite}, {inexact}")
    if op is tir.FloorMod:
        moved = out.emit(f"add {kind} {rest}, {b}")
        return out.emit(f"select {flag} {fix}, {kind} {moved}, {kind} {rest}")
    quotient = out.emit(f"sdiv {kind} {a}, {b}")
    correction = out.emit(f"sext {flag} {fix} to {kind}")
    return out.emit(f"add {kind} {quotient}, {correction}")


def _emit_guarded_division(out: FunctionWriter, op: type, dtype: DType, a: str, b: str) -> str:
    """Division by a run-time value. Division by zero gives 0, as in NumPy, and never traps."""
    kind, flag, zero = value_type(dtype), vector_of("i1", dtype.lanes), zero_of(dtype)
    scalar = f"i{dtype.bits}"
    one = splat("1", scalar, dtype.lanes)
    by_zero = out.emit(f"icmp eq {kind} {b}, {zero}")
    if dtype.code == "uint":
        safe = out.emit(f"select {flag} {by_zero}, {kind} {one}, {kind} {b}")
        name = "urem" if op is tir.FloorMod else "udiv"
        result = out.emit(f"{name} {kind} {a}, {safe}")
        return out.emit(f"select {flag} {by_zero}, {kind} {zero}, {kind} {result}")
    # The smallest integer divided by -1 overflows, which traps too.
    by_minus_one = out.emit(f"icmp eq {kind} {b}, {splat('-1', scalar, dtype.lanes)}")
    special = out.emit(f"or {flag} {by_zero}, {by_minus_one}")
    safe = out.emit(f"select {flag} {special}, {kind} {one}, {kind} {b}")
    if op is not tir.Div and divides_by_floats(out, dtype):
        result = FloatDivision(out, dtype).emit(op, a, safe)
    else:
        result = emit_signed_division(out, op, dtype, a, safe)
    negated = zero if op is tir.FloorMod else out.emit(f"sub {kind} {zero}, {a}")
    result = out.emit(f"select {flag} {by_minus_one}, {kind} {negated}, {kind} {result}")
    return out.emit(f"select {flag} {by_zero}, {kind} {zero}, {kind} {result}")
