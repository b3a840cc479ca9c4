"""The intrinsics of loop programs: names, arity, operand kinds and semantics.

``evaluate`` defines the semantics on NumPy scalars and arrays: transcendentals are computed in
float64 and rounded once. ``lower_intrinsics`` replaces intrinsics marked ``is_decomposed`` by
polynomials; code generation implements the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir.dtype import DType, bool_, handle
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, LoweringError
from weft.support.registry import Registry
from weft.tir.expr import Call, ExprLike, PrimExpr, as_prim, if_then_else, match_operands

Value = Any  # a NumPy scalar, or an array with one element per lane


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One intrinsic. ``arity`` is ``None`` for a variable number of operands.

    ``kind`` is the legal kind of operand: ``float``, ``int``, ``number`` (either) or ``any``.
    """

    name: str
    arity: int | None
    kind: str
    doc: str
    evaluate: Callable[..., Value] | None
    is_decomposed: bool = False


INTRINSICS: Registry[Intrinsic] = Registry("intrinsic")


def _rounded(fn: Callable[..., Value]) -> Callable[..., Value]:
    """``fn`` in float64, rounded to the type of the operands."""

    def evaluate(*args: Value) -> Value:
        return np.asarray(fn(*(np.asarray(a).astype(np.float64) for a in args))).astype(
            np.asarray(args[0]).dtype
        )[()]

    return evaluate


def _sigmoid(x: Value) -> Value:
    return np.where(x >= 0, 1.0, np.exp(np.minimum(x, 0.0))) / (1.0 + np.exp(-np.abs(x)))


def _exact_fma(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    from fractions import Fraction  # for evaluation alone

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return float(np.float64(a) * np.float64(b) + np.float64(c))  # keeps the sign of zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _fma(a: Value, b: Value, c: Value) -> Value:
    """``a * b + c`` with one rounding.

    Up to 32 bits it is computed in float64: the product is exact, and double rounding of the sum
    matters only within 2**-29 of a tie.
    """
    kind = np.asarray(a).dtype
    if kind == np.float64:
        return np.vectorize(_exact_fma, otypes=[np.float64])(a, b, c)[()]
    return (np.float64(a) * np.float64(b) + np.float64(c)).astype(kind)[()]


def _times_power_of_two(x: Value, n: Value) -> Value:
    """``x * 2**floor(n)``; rounds only denormal results. NaN if an operand is NaN."""
    exponent = np.asarray(n)
    known = np.floor(np.where(np.isfinite(exponent), exponent, 0)).astype(np.int32)
    with np.errstate(all="ignore"):
        return np.where(np.isnan(exponent), exponent, np.ldexp(x, known))[()]


def _table_lookup(number: Value, *entries: Value) -> Value:
    """Per lane, the entry with that index modulo the number of entries."""
    table = np.stack(np.broadcast_arrays(number, *entries)[1:])
    return np.take_along_axis(table, np.asarray(number % len(entries))[None], axis=0)[0]


def _popcount(a: Value) -> Value:
    bits = np.asarray(a)
    unsigned = bits.view(
        f"u{bits.itemsize}"
    )  # of a negative number NumPy counts the absolute value
    return np.bitwise_count(unsigned).astype(bits.dtype)[()]


def _define(
    name: str, arity: int | None, kind: str, doc: str,
    evaluate: Callable[..., Value] | None = None, *, is_decomposed: bool = False,
) -> None:  # fmt: skip
    INTRINSICS.register(name, Intrinsic(name, arity, kind, doc, evaluate, is_decomposed))


_TRANSCENDENTAL: tuple[tuple[str, int, str, Callable[..., Value]], ...] = (
    ("exp", 1, "e to the power x", np.exp), ("log", 1, "natural logarithm", np.log),
    ("tanh", 1, "hyperbolic tangent", np.tanh),
    ("erf", 1, "error function", np.vectorize(math.erf, otypes=[np.float64])),
    ("sigmoid", 1, "1 / (1 + exp(-x))", _sigmoid), ("sin", 1, "sine of radians", np.sin),
    ("cos", 1, "cosine of radians", np.cos), ("tan", 1, "tangent of radians", np.tan),
    ("pow", 2, "x to the power y, as C's pow", np.power),
    ("rsqrt", 1, "1 / sqrt(x)", lambda x: 1.0 / np.sqrt(x))
)
for _name, _arity, _doc, _fn in _TRANSCENDENTAL:
    _define(_name, _arity, "float", _doc, _rounded(_fn), is_decomposed=True)

_define("sqrt", 1, "float", "square root, correctly rounded", _rounded(np.sqrt))
_define("abs", 1, "number", "absolute value", np.abs)
_define("floor", 1, "float", "largest integer not above x", np.floor)
_define("ceil", 1, "float", "smallest integer not below x", np.ceil)
_define("round", 1, "float", "nearest integer, ties to even", np.rint)
_define("trunc", 1, "float", "towards zero", np.trunc)
_define("fma", 3, "float", "a * b + c with one rounding", _fma)
_define("fmod", 2, "float", "exactly x - trunc(x / y) * y, with the sign of x", _rounded(np.fmod))
_define("multiply_add", 3, "float", "a * b + c, with one rounding where the CPU can", _fma)
_define("times_power_of_two", 2, "float",
        "x * 2**floor(n), n a multiple of 1/16 and at most twice out of range", _times_power_of_two)
_define("table_lookup", None, "any", "the one of 2**k constants that the low k bits of n name",
        _table_lookup)
_define("isnan", 1, "float", "true for NaN", np.isnan)
_define("popcount", 1, "int", "number of one bits", _popcount)
_define("shift_left", 2, "int", "x << n, for 0 <= n < bits", np.left_shift)
_define("shift_right", 2, "int", "x >> n, arithmetic for signed types", np.right_shift)
_define("bitwise_and", 2, "int", "x & y", np.bitwise_and)
_define("bitwise_or", 2, "int", "x | y", np.bitwise_or)
_define("bitwise_xor", 2, "int", "x ^ y", np.bitwise_xor)
_define("bitwise_not", 1, "int", "all bits of x flipped", np.invert)
_define("likely", 1, "any", "the condition itself, a hint that it mostly holds", lambda x: x)
_define("rarely", 3, "any", "a select whose second operand is computed where any lane needs it",
        lambda c, rare, usual: np.where(c, rare, usual)[()])
_define("if_then_else", 3, "any", "choose lazily: only the chosen side is evaluated")
_define("reinterpret", 1, "any", "the same bits as another type of that size")
_define("address_of", 1, "any", "pointer to the element that a load names")
_define("prefetch", 1, "any", "hint to fetch the cache line that a load names")
_define("prefetch_l2", 1, "any", "the same, but not into the first level of cache")
_define("barrier", 0, "any", "wait for all threads of the block; what they wrote can be read then")
_define("call_extern", None, "any", "call of a C symbol; the name is the first argument")

_ACCEPTS = {
    "float": lambda t: t.is_float,
    "int": lambda t: t.is_int,
    "number": lambda t: t.is_float or t.is_int,
    "any": lambda _: True,
}


def intrinsic(name: str, *args: ExprLike) -> PrimExpr:
    """A checked call of an intrinsic whose result type follows from the operands.

    Raises ``RegistryError`` for an unknown name, ``LoweringError`` for a wrong number or type of
    operands. ``reinterpret``, ``table_lookup`` and ``call_extern`` need a type: use ``call``.
    """
    record = INTRINSICS.get(name)
    if record.arity is None or name == "reinterpret":
        raise InternalError(f"intrinsic {name} needs an explicit result dtype; use call")
    if len(args) != record.arity:
        raise LoweringError(f"{name} takes {record.arity} operands", got=len(args))
    if name == "if_then_else":
        return if_then_else(as_prim(args[0]), *args[1:])
    operands = _unify(args)
    for operand in operands:
        if not _ACCEPTS[record.kind](operand.dtype):
            raise LoweringError(f"{name} is not defined for {operand.dtype}", expected=record.kind,
                                help="convert the operand with .astype(dtype)")
    return Call(_result_type(name, operands), name, operands)


def _unify(args: tuple[ExprLike, ...]) -> tuple[PrimExpr, ...]:
    """Operands of one dtype; Python numbers take the dtype of the first expression."""
    if len(args) == 1:
        return (as_prim(args[0]),)
    first = next((a for a in args if isinstance(a, PrimExpr)), None)
    dtype = None if first is None else first.dtype
    operands = tuple(as_prim(a, dtype) for a in args)
    if len(args) == 2:
        return match_operands(*operands)
    return operands


def _result_type(name: str, operands: tuple[PrimExpr, ...]) -> DType:
    if name == "isnan":
        return bool_.vector(operands[0].dtype.lanes)
    if name in ("address_of", "prefetch", "prefetch_l2", "barrier"):
        return handle
    return operands[0].dtype
