"""Calls: the intrinsics of loop programs as LLVM intrinsics, branches and external calls."""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.llvm import memory
from weft.codegen.llvm.cast import narrow_to_bfloat, widen_bfloat
from weft.codegen.llvm.emit import emit, emits
from weft.codegen.llvm.expr import emit_condition
from weft.codegen.llvm.state import FunctionState
from weft.codegen.llvm.types import mangle, splat, value_type, vector_of
from weft.codegen.scan import operands
from weft.ir.dtype import float32
from weft.support.errors import CodegenError
from weft.tir.expr import BufferLoad, Call, PrimExpr, StringImm

_FLOAT = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint",
    "abs": "fabs", "fma": "fma",
}
_INT_BINARY = {
    "shift_left": "shl", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
}


@emits(Call)
def _call(state: FunctionState, e: Call) -> str:
    special = _SPECIAL.get(e.name)
    if special is not None:
        return special(state, e)
    args = [emit(state, a) for a in e.args]
    dtype = e.args[0].dtype if e.args else e.dtype
    if dtype.code == "bfloat":
        widened = [widen_bfloat(state.out, a, dtype.lanes) for a in args]
        kind = value_type(float32.vector(dtype.lanes))
        result = _float_call(state, e.name, kind, widened)
        return narrow_to_bfloat(state.out, result, dtype.lanes)
    if dtype.is_float:
        return _float_call(state, e.name, value_type(dtype), args)
    return _int_call(state, e, value_type(dtype), args)


def _unsupported(name: str, kind: str) -> CodegenError:
    return CodegenError(
        f"machine code has no {name} on {kind}",
        help="transcendentals must be lowered to arithmetic (lower_intrinsics) before",
    )


def _llvm(state: FunctionState, name: str, kind: str, args: list[str]) -> str:
    signature = ", ".join([kind] * len(args))
    callee = state.kernel.module.declare(f"llvm.{name}.{mangle(kind)}", f"{kind} @({signature})")
    return state.out.emit(f"call {kind} {callee}({', '.join(f'{kind} {a}' for a in args)})")


def _float_call(state: FunctionState, name: str, kind: str, args: list[str]) -> str:
    if name not in _FLOAT:
        raise _unsupported(name, kind)
    return _llvm(state, _FLOAT[name], kind, args)


def _int_call(state: FunctionState, e: Call, kind: str, args: list[str]) -> str:
    name, out = e.name, state.out
    if name in _INT_BINARY:
        return out.emit(f"{_INT_BINARY[name]} {kind} {args[0]}, {args[1]}")
    if name == "shift_right":
        op = "ashr" if e.dtype.code == "int" else "lshr"
        return out.emit(f"{op} {kind} {args[0]}, {args[1]}")
    if name == "bitwise_not":
        ones = splat("-1", value_type(e.dtype.element), e.dtype.lanes)
        return out.emit(f"xor {kind} {args[0]}, {ones}")
    if name == "popcount":
        return _llvm(state, "ctpop", kind, args)
    if name == "abs":
        if e.dtype.code == "uint":
            return args[0]
        callee = state.kernel.module.declare(f"llvm.abs.{mangle(kind)}", f"{kind} @({kind}, i1)")
        return out.emit(f"call {kind} {callee}({kind} {args[0]}, i1 false)")
    raise _unsupported(name, kind)


def _isnan(state: FunctionState, e: Call) -> str:
    operand = e.args[0].dtype
    value, kind = emit(state, e.args[0]), value_type(operand)
    if operand.code == "bfloat":
        value = widen_bfloat(state.out, value, operand.lanes)
        kind = vector_of("float", operand.lanes)
    return state.out.emit(f"fcmp uno {kind} {value}, {value}")


def _reinterpret(state: FunctionState, e: Call) -> str:
    source, target = e.args[0].dtype, e.dtype
    if source.bits * source.lanes != target.bits * target.lanes:
        raise CodegenError("reinterpret changes the size", got=f"{source} as {target}")
    value, a, b = emit(state, e.args[0]), value_type(source), value_type(target)
    if a == b:
        return value
    op = "inttoptr" if b == "ptr" else "ptrtoint" if a == "ptr" else "bitcast"
    return state.out.emit(f"{op} {a} {value} to {b}")


def _if_then_else(state: FunctionState, e: Call) -> str:
    condition, a, b = e.args
    if condition.dtype.lanes > 1:
        return _masked_choice(state, e)
    out, kind = state.out, value_type(e.dtype)
    flag = emit_condition(state, condition)
    if not (_reads_or_calls(a) or _reads_or_calls(b)):
        x, y = emit(state, a), emit(state, b)
        return out.emit(f"select i1 {flag}, {kind} {x}, {kind} {y}")
    label = out.fresh("choice")
    out.do(f"br i1 {flag}, label %{label}.then, label %{label}.else")
    values = []
    for side, branch in ((a, "then"), (b, "else")):
        out.start_block(f"{label}.{branch}")
        with state.memo.scope():
            value = emit(state, side)
        values.append(f"[ {value}, %{out.block} ]")
        out.branch(f"{label}.end")
    out.start_block(f"{label}.end")
    return out.emit(f"phi {kind} {', '.join(values)}")


def _masked_choice(state: FunctionState, e: Call) -> str:
    """Lanes choose for themselves: loads of each side are masked by who wants them."""
    condition, a, b = e.args
    out, lanes = state.out, condition.dtype.lanes
    flags = vector_of("i1", lanes)
    mask = emit(state, condition)
    inverse = out.emit(f"xor {flags} {mask}, splat (i1 true)")
    outer, outer_lanes = state.mask, state.mask_lanes
    sides = []
    for side, own in ((a, mask), (b, inverse)):
        state.mask = own if outer is None else out.emit(f"and {flags} {own}, {outer}")
        state.mask_lanes = lanes
        with state.memo.scope():
            sides.append(emit(state, side))
        state.mask, state.mask_lanes = outer, outer_lanes
    kind = value_type(e.dtype)
    return out.emit(f"select {flags} {mask}, {kind} {sides[0]}, {kind} {sides[1]}")


def _reads_or_calls(root: PrimExpr) -> bool:
    """Whether evaluating a side that was not chosen could fault or have an effect."""
    todo = [root]
    while todo:
        e = todo.pop()
        if isinstance(e, BufferLoad) or (isinstance(e, Call) and e.name == "call_extern"):
            return True
        todo.extend(operands(e))
    return False


def _likely(state: FunctionState, e: Call) -> str:
    return emit(state, e.args[0])


def _address_of(state: FunctionState, e: Call) -> str:
    return memory.emit_address(state, e.args[0])


def _prefetch(state: FunctionState, e: Call) -> str:
    callee = state.kernel.module.declare("llvm.prefetch.p0", "void @(ptr, i32, i32, i32)")
    where = memory.emit_address(state, e.args[0])
    state.out.do(f"call void {callee}(ptr {where}, i32 0, i32 3, i32 1)")
    state.effects += 1
    return "null"


def _call_extern(state: FunctionState, e: Call) -> str:
    """A C call; a result of dtype ``handle`` stands for none (``void``)."""
    symbol = e.args[0]
    if not isinstance(symbol, StringImm):
        raise CodegenError("call_extern needs the symbol's name first", got=symbol)
    state.effects += 1
    returns = "void" if e.dtype.code == "handle" else value_type(e.dtype)
    kinds = [value_type(a.dtype) for a in e.args[1:]]
    values = [emit(state, a) for a in e.args[1:]]
    callee = state.kernel.module.declare(symbol.value, f"{returns} @({', '.join(kinds)})")
    passed = ", ".join(f"{k} {v}" for k, v in zip(kinds, values, strict=True))
    if returns == "void":
        state.out.do(f"call void {callee}({passed})")
        return "null"
    return state.out.emit(f"call {returns} {callee}({passed})")


_SPECIAL: dict[str, Callable[[FunctionState, Call], str]] = {
    "isnan": _isnan,
    "reinterpret": _reinterpret,
    "if_then_else": _if_then_else,
    "likely": _likely,
    "address_of": _address_of,
    "prefetch": _prefetch,
    "call_extern": _call_extern,
}
