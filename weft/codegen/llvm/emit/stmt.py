"""Emission of statements: loops, branches, allocations, stores."""

from __future__ import annotations

from weft.codegen.llvm.emit.address import allocate_array, workspace_pointer
from weft.codegen.llvm.emit.dispatch import emit
from weft.codegen.llvm.emit.loops import emit_loop
from weft.codegen.llvm.emit.parallel import emit_parallel
from weft.codegen.llvm.emit.register_slots import allocate_local
from weft.codegen.llvm.emit.state import FunctionState, is_bounded, is_nonnegative
from weft.codegen.llvm.emit.store import emit_store
from weft.ir.dtype import int64
from weft.support.errors import InternalError, LoweringError
from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, int_value
from weft.tir.parallel_condition import PARALLEL_IF
from weft.tir.stmt import ForKind, Stmt


def emit_stmt(state: FunctionState, node: Stmt) -> None:
    """Emit one statement into the function of ``state``."""
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
                state.note_range(node.var, nonnegative=is_bounded(state, node.value))
                state.memo.bind(node.var, emit(state, node.value))
                emit_stmt(state, node.body)
        case s.AttrStmt(key=key, body=s.For() as loop) if key == PARALLEL_IF:
            _emit_for(state, loop, node.value)
        case s.AttrStmt():
            emit_stmt(state, node.body)
        case s.Evaluate():
            emit(state, node.value)
        case _:
            raise InternalError(
                f"cannot generate code for {type(node).__name__}", where=state.kernel.name
            )


def _emit_allocate(state: FunctionState, node: s.Allocate) -> None:
    buffer = node.buffer
    if buffer.scope == "local":
        allocate_local(state, buffer)
    elif buffer in state.kernel.workspace_offsets:
        offset = state.kernel.workspace_offsets[buffer]
        state.pointers[buffer] = workspace_pointer(state, buffer, offset)
    elif buffer not in state.kernel.task_scratch:  # which exists from the start of the task on
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


def _emit_for(state: FunctionState, node: s.For, parallel_if: PrimExpr | None = None) -> None:
    if node.kind is ForKind.THREAD_BINDING:  # of a program that no back end has lowered
        raise LoweringError(
            f"a loop bound to {node.thread_tag} is not supported on targets of kind 'cpu'",
            where=state.kernel.name, got=f"loop {node.loop_var.name}")
    if node.kind not in (ForKind.SERIAL, ForKind.PARALLEL) or node.loop_var.dtype is not int64:
        raise InternalError(
            f"a {node.kind.value} loop over {node.loop_var.dtype} reached code generation",
            where=state.kernel.name,
        )
    extent = int_value(node.extent)
    if extent is not None and extent <= 0:
        return
    state.note_range(node.loop_var, nonnegative=is_nonnegative(state, node.min))
    # A pool runs one loop at a time, so a nested parallel loop is serial.
    if node.kind is ForKind.PARALLEL and not state.in_parallel:
        emit_parallel(state, node, emit_stmt, parallel_if)
    else:
        _emit_serial(state, node, extent)


def _emit_serial(state: FunctionState, node: s.For, extent: int | None) -> None:
    begin = emit(state, node.min)
    count = str(extent) if extent is not None else emit(state, node.extent)
    end = count if begin == "0" else state.out.emit(f"add nsw i64 {begin}, {count}")
    emit_loop(state, node.loop_var, begin, end, node.body, emit_stmt,
              runs_at_least_once=extent is not None)
