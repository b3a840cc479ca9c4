"""Expressions of loop programs as LLVM instructions.

Pure expressions are remembered in the scope that dominates them, so that index arithmetic shared
by the copies of an unrolled loop is written once. What reads memory is evaluated each time.
"""

from __future__ import annotations

from weft.codegen.llvm.arith import emit_binary, emit_constant_division
from weft.codegen.llvm.cast import emit_cast
from weft.codegen.llvm.emit import emit, emits
from weft.codegen.llvm.intrinsics import INTRINSIC_EMITTERS
from weft.codegen.llvm.memory import broadcast, emit_address, emit_load
from weft.codegen.llvm.state import FunctionState, is_nonnegative
from weft.codegen.llvm.types import (
    float_constant,
    int_constant,
    splat,
    value_type,
    vector_of,
)
from weft.support.errors import CodegenError, InternalError
from weft.tir import expr as tir


@emits(tir.IntImm)
def _int(state: FunctionState, e: tir.IntImm) -> str:
    del state
    return int_constant(e.value, e.dtype)


@emits(tir.FloatImm)
def _float(state: FunctionState, e: tir.FloatImm) -> str:
    del state
    return float_constant(e.value, e.dtype)


@emits(tir.Var)
def _var(state: FunctionState, e: tir.Var) -> str:
    raise InternalError(f"variable {e.name} is used outside its scope", where=state.kernel.name)


@emits(
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max,
    tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)
def _binary(state: FunctionState, e: tir.Binary) -> str:
    dtype = e.a.dtype
    if dtype.is_int and type(e) in (tir.Div, tir.FloorDiv, tir.FloorMod):
        divisor = _literal(e.b)
        if divisor is not None and divisor > 0:
            return emit_constant_division(state.out, type(e), dtype, emit(state, e.a), divisor,
                                          is_nonnegative(state, e.a))
    if dtype.is_float and type(e) in (tir.Add, tir.Sub) and dtype.code == "float":
        fused = _fused(state, e)
        if fused is not None:
            return fused
    a, b = emit(state, e.a), emit(state, e.b)
    return emit_binary(state.kernel.module, state.out, type(e), dtype, a, b)


def _literal(e: tir.PrimExpr) -> int | None:
    return tir.int_value(e.value if isinstance(e, tir.Broadcast) else e)


def _fused(state: FunctionState, e: tir.Binary) -> str | None:
    """``a * b + c`` with one rounding where the CPU has the instruction.

    Written as the intrinsic rather than left to LLVM, so that which operations contract does not
    depend on what else is in the kernel.
    """
    target = state.kernel.target
    if not (target.has("fma") or target.arch == "aarch64"):
        return None
    if isinstance(e.b, tir.Mul) and type(e) is tir.Add:
        product, addend = e.b, e.a
    elif isinstance(e.a, tir.Mul):
        product, addend = e.a, e.b
    else:
        return None
    kind = value_type(e.dtype)
    x, y, z = (emit(state, operand) for operand in (product.a, product.b, addend))
    if type(e) is tir.Sub:
        z = state.out.emit(f"fneg {kind} {z}")
    name = INTRINSIC_EMITTERS["fma"]
    return name(state, e.dtype, [x, y, z], [e.dtype] * 3)


@emits(tir.Not)
def _not(state: FunctionState, e: tir.Not) -> str:
    kind = value_type(e.dtype)
    return state.out.emit(f"xor {kind} {emit(state, e.a)}, {splat('true', 'i1', e.dtype.lanes)}")


@emits(tir.Select)
def _select(state: FunctionState, e: tir.Select) -> str:
    condition, t, f = (emit(state, x) for x in (e.condition, e.true_value, e.false_value))
    kind, flag = value_type(e.dtype), value_type(e.condition.dtype)
    return state.out.emit(f"select {flag} {condition}, {kind} {t}, {kind} {f}")


@emits(tir.Cast)
def _cast(state: FunctionState, e: tir.Cast) -> str:
    return emit_cast(state.out, emit(state, e.value), e.value.dtype, e.dtype)


@emits(tir.Broadcast)
def _broadcast(state: FunctionState, e: tir.Broadcast) -> str:
    return broadcast(state, emit(state, e.value), value_type(e.value.dtype), e.lanes)


@emits(tir.Ramp)
def _ramp(state: FunctionState, e: tir.Ramp) -> str:
    scalar = value_type(e.base.dtype)
    kind = vector_of(scalar, e.lanes)
    base = broadcast(state, emit(state, e.base), scalar, e.lanes)
    stride = tir.int_value(e.stride)
    if stride is not None:
        steps = ", ".join(f"{scalar} {stride * k}" for k in range(e.lanes))
        return state.out.emit(f"add {kind} {base}, <{steps}>")
    steps = ", ".join(f"{scalar} {k}" for k in range(e.lanes))
    scale = broadcast(state, emit(state, e.stride), scalar, e.lanes)
    offsets = state.out.emit(f"mul {kind} {scale}, <{steps}>")
    return state.out.emit(f"add {kind} {base}, {offsets}")


@emits(tir.Shuffle)
def _shuffle(state: FunctionState, e: tir.Shuffle) -> str:
    """Lanes of at most two vectors of equal width."""
    if len(e.vectors) > 2 or len({v.dtype for v in e.vectors}) != 1:
        raise CodegenError("a shuffle takes one or two vectors of one type",
                           got=", ".join(str(v.dtype) for v in e.vectors))
    kind = value_type(e.vectors[0].dtype)
    values = [emit(state, v) for v in e.vectors]
    second = values[1] if len(values) == 2 else "poison"
    picks = ", ".join(f"i32 {i}" for i in e.indices)
    if e.vectors[0].dtype.lanes == 1:
        raise CodegenError("a shuffle takes vectors", got=str(e.vectors[0].dtype))
    return state.out.emit(
        f"shufflevector {kind} {values[0]}, {kind} {second}, <{len(e.indices)} x i32> <{picks}>"
    )


@emits(tir.Let)
def _let(state: FunctionState, e: tir.Let) -> str:
    with state.memo.scope():
        state.memo.add(e.var, emit(state, e.value))
        before = state.effects
        value = emit(state, e.body)
        # What is remembered must not outlive the variable: count the body as an effect.
        state.effects = before + 1
    return value


@emits(tir.BufferLoad)
def _load(state: FunctionState, e: tir.BufferLoad) -> str:
    return emit_load(state, e)


@emits(tir.Call)
def _call(state: FunctionState, e: tir.Call) -> str:
    if e.name == "likely":
        return emit(state, e.args[0])
    if e.name == "if_then_else":
        return _if_then_else(state, e)
    if e.name == "address_of":
        return emit_address(state, e.args[0])
    if e.name == "prefetch":
        return _prefetch(state, e)
    if e.name == "call_extern":
        return _call_extern(state, e)
    rule = INTRINSIC_EMITTERS.get(e.name)
    if rule is None:
        raise CodegenError(f"the CPU has no instruction for {e.name}", where=state.kernel.name,
                           help="run the tir pipeline first, which lowers transcendentals")
    values = [emit(state, a) for a in e.args]
    return rule(state, e.dtype, values, [a.dtype for a in e.args])


def _prefetch(state: FunctionState, e: tir.Call) -> str:
    pointer = emit_address(state, e.args[0])
    callee = state.kernel.module.declare("llvm.prefetch.p0", "void @(ptr, i32, i32, i32)")
    state.out.do(f"call void {callee}(ptr {pointer}, i32 0, i32 3, i32 1)")
    return pointer


def _call_extern(state: FunctionState, e: tir.Call) -> str:
    """A call by symbol; an ``int32`` or float result is a value, a ``handle`` result is ``void``."""
    symbol = e.args[0]
    if not isinstance(symbol, tir.StringImm):
        raise InternalError("call_extern needs the symbol first")
    state.effects += 1
    types = [value_type(a.dtype) for a in e.args[1:]]
    result = "void" if e.dtype.code == "handle" else value_type(e.dtype)
    callee = state.kernel.module.declare(symbol.value, f"{result} @({', '.join(types)})")
    values = [emit(state, a) for a in e.args[1:]]
    args = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
    if result == "void":
        state.out.do(f"call void {callee}({args})")
        return "null"
    return state.out.emit(f"call {result} {callee}({args})")


def _if_then_else(state: FunctionState, e: tir.Call) -> str:
    """A branch: the side that is not taken is not evaluated."""
    condition, t, f = e.args
    if condition.dtype.lanes > 1:
        raise CodegenError("a lazy choice needs one condition for all lanes",
                           help="vectorize_loop turns it into masked loads and a select")
    flag = emit(state, condition)
    out = state.out
    then, other, join = (out.fresh(n) for n in ("then", "else", "join"))
    out.do(f"br i1 {flag}, label %{then}, label %{other}")
    sides = []
    for label, value in ((then, t), (other, f)):
        out.start_block(label)
        with state.memo.scope():
            result = emit(state, value)
        sides.append((result, out.block))
        out.branch(join)
    out.start_block(join)
    state.effects += 1
    incoming = ", ".join(f"[ {value}, %{block} ]" for value, block in sides)
    return out.emit(f"phi {value_type(e.dtype)} {incoming}")
