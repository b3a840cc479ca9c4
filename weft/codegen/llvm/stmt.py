"""Statements of loop programs as LLVM control flow."""

from __future__ import annotations

from weft.codegen.llvm.emit import emit
from weft.codegen.llvm.loops import emit_loop
from weft.codegen.llvm.memory import allocate_array, emit_store, make_slots
from weft.codegen.llvm.parallel import emit_parallel
from weft.codegen.llvm.state import FunctionState, is_nonnegative
from weft.support.errors import InternalError
from weft.tir import stmt as s
from weft.tir.expr import int_value
from weft.tir.stmt import ForKind, Stmt

def emit_stmt(state: FunctionState, node: Stmt) -> None:
    """Write one statement into the function of ``state``."""
    match node:
        case s.SeqStmt():
            for child in node.stmts:
                emit_stmt(state, child)
        case s.BufferStore():
            emit_store(state, node)
        case s.For():
            _emit_for(state, node)
        case s.IfThenElse():
            _emit_if(state, node)
        case s.Allocate():
            _emit_allocate(state, node)
        case s.LetStmt():
            with state.memo.scope():
                if is_nonnegative(state, node.value):
                    state.nonnegative[node.var] = None
                state.memo.add(node.var, emit(state, node.value))
                emit_stmt(state, node.body)
        case s.AttrStmt():
            emit_stmt(state, node.body)
        case s.Evaluate():
            emit(state, node.value)
        case _:
            raise InternalError(f"code generation does not know {type(node).__name__}",
                                where=state.kernel.name)


def _emit_allocate(state: FunctionState, node: s.Allocate) -> None:
    buffer = node.buffer
    if buffer.scope == "local":
        state.locals[buffer] = make_slots(state, buffer)
    elif buffer in state.kernel.workspace_offsets:
        offset = state.kernel.workspace_offsets[buffer]
        if state.workspace is None:
            raise InternalError(f"{buffer.name} lies in a workspace that is not there",
                                where=state.kernel.name)
        state.pointers[buffer] = state.out.emit(
            f"getelementptr inbounds i8, ptr {state.workspace}, i64 {offset}"
        )
    else:
        state.pointers[buffer] = allocate_array(state, buffer)
    emit_stmt(state, node.body)


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


def _emit_for(state: FunctionState, node: s.For) -> None:
    if node.kind is ForKind.PARALLEL and not state.in_parallel:
        emit_parallel(state, node, emit_stmt)
        return
    if node.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
        raise InternalError(f"a {node.kind.value} loop reached code generation",
                            where=state.kernel.name)
    extent = int_value(node.extent)
    if extent is not None and extent <= 0:
        return
    if is_nonnegative(state, node.min):
        state.nonnegative[node.loop_var] = None
    first = emit(state, node.min)
    last = first if extent is None else str(extent)
    if first != "0":
        last = state.out.emit(f"add nsw i64 {first}, {emit(state, node.extent)}")
    elif extent is None:
        last = emit(state, node.extent)
    emit_loop(state, node.loop_var, first, last, lambda: emit_stmt(state, node.body),
              runs_at_least_once=extent is not None)
