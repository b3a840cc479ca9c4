"""Expressions, other than calls, as LLVM instructions."""

from __future__ import annotations

from weft.codegen.llvm import memory
from weft.codegen.llvm.arith import emit_binary, emit_constant_division
from weft.codegen.llvm.cast import emit_cast
from weft.codegen.llvm.emit import emit, emits
from weft.codegen.llvm.state import FunctionState, is_nonnegative
from weft.codegen.llvm.types import (
    float_constant,
    int_constant,
    splat,
    value_type,
    vector_of,
    zero_of,
)
from weft.support.errors import CodegenError, InternalError
from weft.tir import expr as tir


@emits(tir.IntImm)
def _int_imm(_state: FunctionState, e: tir.IntImm) -> str:
    return int_constant(e.value, e.dtype)


@emits(tir.FloatImm)
def _float_imm(_state: FunctionState, e: tir.FloatImm) -> str:
    return float_constant(e.value, e.dtype)


@emits(tir.Var)
def _var(state: FunctionState, e: tir.Var) -> str:
    raise InternalError(f"variable {e.name} has no value here", where=state.kernel.name)


@emits(
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.EQ,
    tir.NE, tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)
def _binary(state: FunctionState, e: tir.Binary) -> str:
    operand = e.a.dtype
    if isinstance(e, tir.Div | tir.FloorDiv | tir.FloorMod) and operand.is_int:
        divisor = tir.int_value(e.b.value if isinstance(e.b, tir.Broadcast) else e.b)
        if divisor is not None and divisor > 0:
            return emit_constant_division(
                state.out, type(e), operand, emit(state, e.a), divisor,
                is_nonnegative(state, e.a),
            )
    a, b = emit(state, e.a), emit(state, e.b)
    return emit_binary(state.kernel.module, state.out, type(e), operand, a, b)


@emits(tir.Not)
def _not(state: FunctionState, e: tir.Not) -> str:
    lanes = e.dtype.lanes
    kind = vector_of("i1", lanes)
    return state.out.emit(f"xor {kind} {emit(state, e.a)}, {splat('true', 'i1', lanes)}")


@emits(tir.Select)
def _select(state: FunctionState, e: tir.Select) -> str:
    condition = emit(state, e.condition)
    a, b = emit(state, e.true_value), emit(state, e.false_value)
    kind, flag = value_type(e.dtype), vector_of("i1", e.condition.dtype.lanes)
    return state.out.emit(f"select {flag} {condition}, {kind} {a}, {kind} {b}")


@emits(tir.Cast)
def _cast(state: FunctionState, e: tir.Cast) -> str:
    return emit_cast(state.out, emit(state, e.value), e.value.dtype, e.dtype)


@emits(tir.Broadcast)
def _broadcast(state: FunctionState, e: tir.Broadcast) -> str:
    if e.value.dtype.lanes != 1:
        raise CodegenError("only a scalar can be broadcast", got=e.value.dtype)
    scalar = emit(state, e.value)
    return memory.broadcast(state, scalar, value_type(e.value.dtype), e.lanes)


@emits(tir.Ramp)
def _ramp(state: FunctionState, e: tir.Ramp) -> str:
    dtype, out = e.dtype, state.out
    kind, scalar = value_type(dtype), value_type(dtype.element)
    base = memory.broadcast(state, emit(state, e.base), scalar, e.lanes)
    stride = tir.int_value(e.stride)
    steps = ", ".join(f"{scalar} {i * (1 if stride is None else stride)}" for i in range(e.lanes))
    offsets = f"<{steps}>"
    if stride is None:
        wide = memory.broadcast(state, emit(state, e.stride), scalar, e.lanes)
        offsets = out.emit(f"mul {kind} {wide}, {offsets}")
    return out.emit(f"add {kind} {base}, {offsets}")


@emits(tir.Shuffle)
def _shuffle(state: FunctionState, e: tir.Shuffle) -> str:
    """Lane by lane: LLVM finds the shuffle that a chain of insertions is."""
    out, scalar, kind = state.out, value_type(e.dtype.element), value_type(e.dtype)
    sources = [
        (emit(state, v), v.dtype, lane) for v in e.vectors for lane in range(v.dtype.lanes)
    ]
    result = "poison"
    for position, pick in enumerate(e.indices):
        value, dtype, lane = sources[pick]
        if dtype.lanes > 1:
            value = out.emit(f"extractelement {value_type(dtype)} {value}, i64 {lane}")
        if len(e.indices) == 1:
            return value
        result = out.emit(f"insertelement {kind} {result}, {scalar} {value}, i64 {position}")
    return result


@emits(tir.Let)
def _let(state: FunctionState, e: tir.Let) -> str:
    value = emit(state, e.value)
    with state.memo.scope():
        state.memo.add(e.var, value)
        return emit(state, e.body)


@emits(tir.BufferLoad)
def _load(state: FunctionState, e: tir.BufferLoad) -> str:
    return memory.emit_load(state, e)


def emit_condition(state: FunctionState, e: tir.PrimExpr) -> str:
    """A scalar condition as an ``i1``."""
    if e.dtype.lanes != 1:
        raise CodegenError("a branch needs a scalar condition", got=e.dtype)
    if e.dtype.is_bool:
        return emit(state, e)
    return state.out.emit(f"icmp ne {value_type(e.dtype)} {emit(state, e)}, {zero_of(e.dtype)}")
