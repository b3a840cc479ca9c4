"""The statements of CPU kernels: those of all back ends, and parallel loops."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.emit.state import FunctionState, StatementEmitter, is_nonnegative
from weft.codegen.ir_text.emit.stmt import STATEMENTS, emit_serial_for, emit_stmt
from weft.codegen.llvm.emit.parallel import emit_parallel
from weft.ir import int64
from weft.support.errors import InternalError, LoweringError
from weft.tir import ForKind, PrimExpr, int_value
from weft.tir import stmt as s
from weft.tir.parallel_condition import PARALLEL_IF


def _emit_attr(state: FunctionState, node: s.AttrStmt) -> None:
    if node.key == PARALLEL_IF and isinstance(node.body, s.For):
        _emit_for(state, node.body, node.value)
    else:
        emit_stmt(state, node.body)


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
        emit_serial_for(state, node)


CPU_STATEMENTS: Mapping[type, StatementEmitter] = {
    **STATEMENTS,
    s.AttrStmt: _emit_attr,
    s.For: _emit_for,
}
