"""Intrinsics that are an instruction or an LLVM intrinsic with one on every target.

What LLVM would turn into a library call (exp, log, sin, …) is not here: ``lower_intrinsics`` has
replaced it by arithmetic before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.codegen.llvm.cast import emit_cast
from weft.codegen.llvm.state import FunctionState
from weft.codegen.llvm.types import mangle, splat, value_type
from weft.ir.dtype import DType, float32
from weft.support.errors import CodegenError

Emitter: TypeAlias = Callable[[FunctionState, DType, Sequence[str], Sequence[DType]], str]


def _llvm(name: str) -> Emitter:
    """A float intrinsic of the same type throughout; bfloat16 goes through float32."""

    def emit(
        state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
    ) -> str:
        if dtype.code == "bfloat":
            wide = float32.vector(dtype.lanes)
            widened = [emit_cast(state.out, v, dtype, wide) for v in values]
            result = emit(state, wide, widened, [wide] * len(values))
            return emit_cast(state.out, result, wide, dtype)
        if not dtype.is_float:
            raise CodegenError(f"{name} is not defined on {dtype}")
        del dtypes
        return _call(state, name, value_type(dtype), values)

    return emit


def _call(state: FunctionState, name: str, kind: str, values: Sequence[str]) -> str:
    signature = ", ".join([kind] * len(values))
    callee = state.kernel.module.declare(f"llvm.{name}.{mangle(kind)}", f"{kind} @({signature})")
    args = ", ".join(f"{kind} {v}" for v in values)
    return state.out.emit(f"call {kind} {callee}({args})")


def _abs(
    state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    if dtype.is_float:
        return _llvm("fabs")(state, dtype, values, dtypes)
    if dtype.code == "uint":
        return values[0]
    kind = value_type(dtype)
    callee = state.kernel.module.declare(f"llvm.abs.{mangle(kind)}", f"{kind} @({kind}, i1)")
    return state.out.emit(f"call {kind} {callee}({kind} {values[0]}, i1 false)")


def _isnan(
    state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    del dtype
    source, value = dtypes[0], values[0]
    if source.code == "bfloat":
        wide = float32.vector(source.lanes)
        value, source = emit_cast(state.out, value, source, wide), wide
    kind = value_type(source)
    return state.out.emit(f"fcmp uno {kind} {value}, {value}")


def _popcount(
    state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    del dtypes
    return _call(state, "ctpop", value_type(dtype), values)


def _bitwise(signed: str, unsigned: str | None = None) -> Emitter:
    def emit(
        state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
    ) -> str:
        del dtypes
        name = unsigned if unsigned and dtype.code == "uint" else signed
        return state.out.emit(f"{name} {value_type(dtype)} {values[0]}, {values[1]}")

    return emit


def _not(
    state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    del dtypes
    ones = splat("true" if dtype.is_bool else "-1", value_type(dtype.element), dtype.lanes)
    return state.out.emit(f"xor {value_type(dtype)} {values[0]}, {ones}")


def _reinterpret(
    state: FunctionState, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
) -> str:
    source = dtypes[0]
    if source.bits * source.lanes != dtype.bits * dtype.lanes:
        raise CodegenError("reinterpret needs types of one size", got=f"{source} as {dtype}")
    before, after = value_type(source), value_type(dtype)
    if before == after:
        return values[0]
    return state.out.emit(f"bitcast {before} {values[0]} to {after}")


INTRINSIC_EMITTERS: dict[str, Emitter] = {
    "sqrt": _llvm("sqrt"),
    "floor": _llvm("floor"),
    "ceil": _llvm("ceil"),
    "round": _llvm("roundeven"),
    "trunc": _llvm("trunc"),
    "fma": _llvm("fma"),
    "abs": _abs,
    "isnan": _isnan,
    "popcount": _popcount,
    "shift_left": _bitwise("shl"),
    "shift_right": _bitwise("ashr", "lshr"),
    "bitwise_and": _bitwise("and"),
    "bitwise_or": _bitwise("or"),
    "bitwise_xor": _bitwise("xor"),
    "bitwise_not": _not,
    "reinterpret": _reinterpret,
}
