"""Calls: intrinsics with control flow or memory operands, instructions, external functions.

Intrinsics that map to arithmetic are in ``intrinsics``.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.emit.address import element_address
from weft.codegen.ir_text.emit.intrinsics import INTRINSIC_EMITTERS
from weft.codegen.ir_text.emit.state import Emitter, FunctionState, emit
from weft.codegen.ir_text.types import mangle, value_type
from weft.codegen.ir_text.vector.table_lookup import emit_table_lookup
from weft.support.errors import CodegenError, InternalError
from weft.tir import BufferLoad, Call, StringImm
from weft.tir.instruction import INSTRUCTIONS, Instruction


def emit_call(state: FunctionState, e: Call) -> str:
    """The value of a call.

    Raises ``CodegenError`` for an intrinsic that the back end cannot emit, and for an instruction
    that the target CPU lacks.
    """
    special = state.kernel.calls.get(e.name) or _SPECIAL.get(e.name)
    if special is not None:
        return special(state, e)
    instruction = INSTRUCTIONS.find(e.name)
    if instruction is not None:
        return _instruction(state, e, instruction)
    rule = INTRINSIC_EMITTERS.get(e.name)
    if rule is None:
        raise CodegenError(
            f"unsupported intrinsic: {e.name}",
            where=state.kernel.name,
            help="run the tir pipeline first: lower_intrinsics replaces transcendentals",
        )
    values: list[str] = []
    for argument in e.args:
        values.append(emit(state, argument))  # noqa: PERF401 - a comprehension nests on C's stack
    return rule(state.out, e.dtype, values, [a.dtype for a in e.args])


def _instruction(state: FunctionState, e: Call, instruction: Instruction) -> str:
    target = state.kernel.module.target
    if not instruction.runs_on(target.arch, target.features):
        raise CodegenError(
            f"the target CPU does not support the instruction {instruction.name}",
            where=state.kernel.name,
            expected=", ".join((*instruction.archs, *instruction.features)),
            got=str(target),
            help="tensorize only for targets that have the instruction",
        )
    values = [emit(state, argument) for argument in e.args]
    return instruction.emit(state.out, e.dtype, values, [a.dtype for a in e.args])


def _likely(state: FunctionState, e: Call) -> str:
    return emit(state, e.args[0])


def _address_of(state: FunctionState, e: Call) -> str:
    return element_address(state, e.args[0])


# The locality that LLVM's intrinsic takes for the nearest cache level to fetch a line into.
_LOCALITIES = {"prefetch": 3, "prefetch_l2": 2}


def _prefetch(state: FunctionState, e: Call) -> str:
    """A prefetch for reading, into all cache levels or all but the first."""
    element, locality = e.args[0], _LOCALITIES[e.name]
    pointer = element_address(state, element)
    kind = state.pointer_type(element.buffer) if isinstance(element, BufferLoad) else "ptr"
    callee = state.out.module.declare(f"llvm.prefetch.{mangle(kind)}",
                                      f"void @({kind}, i32, i32, i32)")
    state.out.do(f"call void {callee}({kind} {pointer}, i32 0, i32 {locality}, i32 1)")
    state.effects += 1
    return pointer


def _call_extern(state: FunctionState, e: Call) -> str:
    """A call of a C function by symbol; a result of dtype ``handle`` means ``void``."""
    symbol = e.args[0]
    if not isinstance(symbol, StringImm):
        raise InternalError("the first operand of call_extern is not a symbol",
                            where=state.kernel.name)
    state.effects += 1
    types = [value_type(a.dtype) for a in e.args[1:]]
    result = "void" if e.dtype.code == "handle" else value_type(e.dtype)
    callee = state.out.module.declare(symbol.value, f"{result} @({', '.join(types)})")
    values = [emit(state, a) for a in e.args[1:]]
    args = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
    if result == "void":
        state.out.do(f"call void {callee}({args})")
        return "null"
    return state.out.emit(f"call {result} {callee}({args})")


def _if_then_else(state: FunctionState, e: Call) -> str:
    """A branch: only the chosen operand is evaluated."""
    condition, t, f = e.args
    if condition.dtype.lanes > 1:
        raise CodegenError(
            "if_then_else with a vector condition",
            where=state.kernel.name,
            help="run vectorize_loop first, which turns it into masked loads and a select",
        )
    flag = emit(state, condition)
    out = state.out
    then, other, join = out.fresh("then"), out.fresh("else"), out.fresh("join")
    out.do(f"br i1 {flag}, label %{then}, label %{other}")
    incoming: list[str] = []
    for label, value in ((then, t), (other, f)):
        out.start_block(label)
        with state.memo.scope():
            result = emit(state, value)
        incoming.append(f"[ {result}, %{out.block} ]")
        out.branch(join)
    out.start_block(join)
    return out.emit(f"phi {value_type(e.dtype)} {', '.join(incoming)}")


def _rarely(state: FunctionState, e: Call) -> str:
    """A select whose first operand is computed only if the condition holds in some lane."""
    condition, rare, usual = e.args
    flags, plain = emit(state, condition), emit(state, usual)
    out, lanes = state.out, condition.dtype.lanes
    found = flags
    if lanes > 1:
        bits = out.emit(f"bitcast <{lanes} x i1> {flags} to i{lanes}")
        found = out.emit(f"icmp ne i{lanes} {bits}, 0")
    label, before = out.fresh("rare"), out.block
    weights = out.module.metadata('!{!"branch_weights", i32 1, i32 1000}')
    out.do(f"br i1 {found}, label %{label}, label %{label}.done, !prof {weights}")
    out.start_block(label)
    kind = value_type(e.dtype)
    with state.memo.scope():
        special = emit(state, rare)
    chosen = out.emit(f"select {value_type(condition.dtype)} {flags}, {kind} {special}, "
                      f"{kind} {plain}")
    last = out.block
    out.branch(f"{label}.done")
    out.start_block(f"{label}.done")
    return out.emit(f"phi {kind} [ {plain}, %{before} ], [ {chosen}, %{last} ]")


_SPECIAL: Mapping[str, Emitter] = {
    "likely": _likely,
    "if_then_else": _if_then_else,
    "rarely": _rarely,
    "address_of": _address_of,
    "prefetch": _prefetch,
    "prefetch_l2": _prefetch,
    "call_extern": _call_extern,
    "table_lookup": emit_table_lookup,
}
