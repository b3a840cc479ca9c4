"""Emitters of expressions: one function per node type, collected in ``EMITTERS``."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.emit.arith import emit_binary, emit_fma
from weft.codegen.ir_text.emit.calls import emit_call
from weft.codegen.ir_text.emit.cast import emit_cast
from weft.codegen.ir_text.emit.constant_division import emit_constant_division
from weft.codegen.ir_text.emit.lane_access import emit_lane_compare
from weft.codegen.ir_text.emit.load import emit_load
from weft.codegen.ir_text.emit.state import Emitter, FunctionState, emit, is_nonnegative
from weft.codegen.ir_text.floats.remainder import emit_float_floor
from weft.codegen.ir_text.types import float_constant, int_constant, splat, value_type, vector_of
from weft.ir import DType
from weft.support.errors import CodegenError, InternalError
from weft.tir import expr as tir
from weft.tir.visitor import children

_DIVISIONS = (tir.Div, tir.FloorDiv, tir.FloorMod)
_BINARY = (
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max,
    tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)  # fmt: skip


def _int(_: FunctionState, e: tir.IntImm) -> str:
    return int_constant(e.value, e.dtype)


def _float(_: FunctionState, e: tir.FloatImm) -> str:
    return float_constant(e.value, e.dtype)


def _var(state: FunctionState, e: tir.Var) -> str:
    raise InternalError(f"variable {e.name} is used outside its scope", where=state.kernel.name)


def _binary(state: FunctionState, e: tir.Binary) -> str:
    dtype = e.a.dtype
    if dtype.is_int and isinstance(e, _DIVISIONS):
        divisor = _literal(e.b)
        # A positive literal needs no guard: the division neither traps nor overflows.
        if divisor is not None and divisor > 0:
            a, known = emit(state, e.a), is_nonnegative(state, e.a)
            return emit_constant_division(state.out, type(e), dtype, a, divisor, nonnegative=known)
        is_size = state.kernel.has_sizes and dtype.code == "int"
        if is_size and is_nonnegative(state, e.a) and is_nonnegative(state, e.b):
            dtype = DType("uint", dtype.bits, dtype.lanes)  # needs no corrections of the sign
    if state.kernel.has_sizes and isinstance(e, tir.Compare):
        mask = emit_lane_compare(state, e)
        if mask is not None:
            return mask
    if dtype.code == "float" and isinstance(e, tir.Add | tir.Sub):
        fused = _fused(state, e)
        if fused is not None:
            return fused
    a, b = emit(state, e.a), emit(state, e.b)
    if dtype.is_float and isinstance(e, tir.FloorDiv | tir.FloorMod):
        return emit_float_floor(state.out, type(e), dtype, a, b)
    return emit_binary(state.out, type(e), dtype, a, b)


def _literal(e: tir.PrimExpr) -> int | None:
    return tir.int_value(e.value if isinstance(e, tir.Broadcast) else e)


def _fused(state: FunctionState, e: tir.Binary) -> str | None:
    """``a * b + c`` as an FMA where the CPU has the instruction; else ``None``.

    The intrinsic is emitted here rather than left to LLVM's contraction, so that results do not
    depend on which other operations the kernel contains.
    """
    if e.dtype.bits < 32 or not state.kernel.module.target.has_fma:
        return None
    if isinstance(e.b, tir.Mul) and isinstance(e, tir.Add):
        product, addend = e.b, e.a
    elif isinstance(e.a, tir.Mul):
        product, addend = e.a, e.b
    else:
        return None
    if addend is product or any(child is product for child in children(addend)):
        return None  # a * b - a * b must be 0, not the rounding error of the product
    x, y, z = emit(state, product.a), emit(state, product.b), emit(state, addend)
    if isinstance(e, tir.Sub):
        z = state.out.emit(f"fneg {value_type(e.dtype)} {z}")
    return emit_fma(state.out, value_type(e.dtype), x, y, z)


def _not(state: FunctionState, e: tir.Not) -> str:
    kind = value_type(e.dtype)
    return state.out.emit(f"xor {kind} {emit(state, e.a)}, {splat('true', 'i1', e.dtype.lanes)}")


def _select(state: FunctionState, e: tir.Select) -> str:
    condition = emit(state, e.condition)
    t, f = emit(state, e.true_value), emit(state, e.false_value)
    kind, flag = value_type(e.dtype), value_type(e.condition.dtype)
    return state.out.emit(f"select {flag} {condition}, {kind} {t}, {kind} {f}")


def _cast(state: FunctionState, e: tir.Cast) -> str:
    return emit_cast(state.out, emit(state, e.value), e.value.dtype, e.dtype)


def _broadcast(state: FunctionState, e: tir.Broadcast) -> str:
    return state.out.broadcast(emit(state, e.value), value_type(e.value.dtype), e.lanes)


def _ramp(state: FunctionState, e: tir.Ramp) -> str:
    element = e.base.dtype
    scalar, kind = value_type(element), value_type(e.dtype)
    base = state.out.broadcast(emit(state, e.base), scalar, e.lanes)
    stride = tir.int_value(e.stride)
    if stride is not None:
        steps = _steps(element, stride, e.lanes)
        return base if stride == 0 else state.out.emit(f"add {kind} {base}, {steps}")
    scale = state.out.broadcast(emit(state, e.stride), scalar, e.lanes)
    offsets = state.out.emit(f"mul {kind} {scale}, {_steps(element, 1, e.lanes)}")
    return state.out.emit(f"add {kind} {base}, {offsets}")


def _steps(dtype: tir.DType, stride: int, lanes: int) -> str:
    if not dtype.is_int:
        raise CodegenError("ramp of a dtype that is not an integer", got=str(dtype))
    scalar = value_type(dtype)
    numbers = (f"{scalar} {int_constant(stride * k, dtype)}" for k in range(lanes))
    return f"<{', '.join(numbers)}>"


def _shuffle(state: FunctionState, e: tir.Shuffle) -> str:
    """A ``shufflevector`` of one or two vectors of one type, or an ``extractelement``."""
    first = e.vectors[0].dtype
    if len(e.vectors) > 2 or len({v.dtype for v in e.vectors}) != 1 or first.lanes == 1:
        raise CodegenError(
            "shuffle of more than two vectors, or of vectors of different types",
            got=", ".join(str(v.dtype) for v in e.vectors),
        )
    kind = value_type(first)
    a = emit(state, e.vectors[0])
    b = emit(state, e.vectors[1]) if len(e.vectors) == 2 else "poison"
    if len(e.indices) == 1:
        vector, lane = (a, e.indices[0]) if e.indices[0] < first.lanes else (
            b, e.indices[0] - first.lanes
        )  # fmt: skip
        return state.out.emit(f"extractelement {kind} {vector}, i64 {lane}")
    return state.out.emit(f"shufflevector {kind} {a}, {kind} {b}, {_picks(e.indices)}")


def _picks(indices: tuple[int, ...]) -> str:
    return f"{vector_of('i32', len(indices))} <{', '.join(f'i32 {i}' for i in indices)}>"


def _let(state: FunctionState, e: tir.Let) -> str:
    value = emit(state, e.value)
    with state.memo.scope():
        state.memo.bind(e.var, value)
        return emit(state, e.body)


EMITTERS: Mapping[type, Emitter] = {
    tir.IntImm: _int,
    tir.FloatImm: _float,
    tir.Var: _var,
    **dict.fromkeys(_BINARY, _binary),
    tir.Not: _not,
    tir.Select: _select,
    tir.Cast: _cast,
    tir.Broadcast: _broadcast,
    tir.Ramp: _ramp,
    tir.Shuffle: _shuffle,
    tir.Let: _let,
    tir.BufferLoad: emit_load,
    tir.Call: emit_call,
}
