"""Emission of statements that is the same for all back ends: branches, serial loops, stores.

A back end adds its kinds of loops and memory to ``STATEMENTS``.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.emit.address import allocate_array, workspace_pointer
from weft.codegen.ir_text.emit.counters import emit_loop
from weft.codegen.ir_text.emit.register_slots import allocate_local
from weft.codegen.ir_text.emit.state import (
    FunctionState,
    StatementEmitter,
    emit,
    is_bounded,
    is_nonnegative,
)
from weft.codegen.ir_text.emit.store import emit_store
from weft.codegen.ir_text.types import value_type
from weft.support.errors import InternalError
from weft.tir import Stmt, int_value
from weft.tir import stmt as s


def emit_stmt(state: FunctionState, node: Stmt) -> None:
    """Emit one statement into the function of ``state``."""
    emitter = state.kernel.statements.get(type(node))
    if emitter is None:
        raise InternalError(
            f"cannot generate code for {type(node).__name__}", where=state.kernel.name
        )
    outer = state.out.location
    state.out.location = state.kernel.locations.get(id(node), outer)
    emitter(state, node)
    state.out.location = outer


def emit_serial_for(state: FunctionState, node: s.For) -> None:
    """A loop of any kind whose iterations run sequentially."""
    extent = int_value(node.extent)
    if extent is not None and extent <= 0:
        return
    state.note_range(node.loop_var, nonnegative=is_nonnegative(state, node.min))
    begin, kind = emit(state, node.min), value_type(node.loop_var.dtype)
    count = str(extent) if extent is not None else emit(state, node.extent)
    end = count if begin == "0" else state.out.emit(f"add nsw {kind} {begin}, {count}")
    emit_loop(state, node.loop_var, begin, end, node.body, emit_stmt,
              runs_at_least_once=extent is not None)


def emit_allocate(state: FunctionState, node: s.Allocate) -> None:
    """Registers for a local buffer, an offset in the workspace, or memory on the stack."""
    buffer = node.buffer
    if buffer.scope == "local":
        allocate_local(state, buffer)
    elif buffer in state.kernel.workspace_offsets:
        offset = state.kernel.workspace_offsets[buffer]
        state.pointers[buffer] = workspace_pointer(state, buffer, offset)
    elif buffer not in state.kernel.task_scratch:  # which exists from the start of the task on
        state.pointers[buffer] = allocate_array(state, buffer)
    emit_stmt(state, node.body)


def _emit_seq(state: FunctionState, node: s.SeqStmt) -> None:
    for child in node.stmts:
        emit_stmt(state, child)


def _emit_if(state: FunctionState, node: s.IfThenElse) -> None:
    out = state.out
    flag = emit(state, node.condition)
    then, join = out.fresh("then"), out.fresh("join")
    other = out.fresh("else") if node.else_case is not None else join
    out.do(f"br i1 {flag}, label %{then}, label %{other}")
    for label, body in ((then, node.then_case), (other, node.else_case)):
        if body is None:
            continue
        out.start_block(label)
        with state.memo.scope():
            emit_stmt(state, body)
        out.branch(join)
    out.start_block(join)


def _emit_let(state: FunctionState, node: s.LetStmt) -> None:
    with state.memo.scope():
        state.note_range(node.var, nonnegative=is_bounded(state, node.value))
        state.memo.bind(node.var, emit(state, node.value))
        emit_stmt(state, node.body)


def _emit_attr(state: FunctionState, node: s.AttrStmt) -> None:
    emit_stmt(state, node.body)


def _emit_evaluate(state: FunctionState, node: s.Evaluate) -> None:
    emit(state, node.value)


STATEMENTS: Mapping[type, StatementEmitter] = {
    s.SeqStmt: _emit_seq,
    s.BufferStore: emit_store,
    s.IfThenElse: _emit_if,
    s.Allocate: emit_allocate,
    s.LetStmt: _emit_let,
    s.AttrStmt: _emit_attr,
    s.Evaluate: _emit_evaluate,
}
