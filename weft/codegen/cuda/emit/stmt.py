"""The statements of CUDA kernels: serial loops, and buffers in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.emit.state import FunctionState, StatementEmitter
from weft.codegen.ir_text.emit.stmt import STATEMENTS, emit_allocate, emit_serial_for, emit_stmt
from weft.ir import int32, int64
from weft.support.errors import CodegenError, InternalError
from weft.tir import ForKind
from weft.tir import stmt as s


def _emit_for(state: FunctionState, node: s.For) -> None:
    if node.kind is not ForKind.SERIAL or node.loop_var.dtype not in (int64, int32):
        raise InternalError(
            f"a {node.kind.value} loop over {node.loop_var.dtype} reached code generation",
            where=state.kernel.name)
    emit_serial_for(state, node)


def _emit_allocate(state: FunctionState, node: s.Allocate) -> None:
    buffer = node.buffer
    if buffer.scope == "shared":
        if buffer not in state.pointers:
            raise InternalError(f"shared buffer {buffer.name} has no offset",
                                where=state.kernel.name)
        emit_stmt(state, node.body)
    elif buffer.scope == "constant":
        raise CodegenError(f"unsupported constant buffer: {buffer.name}", where=state.kernel.name)
    elif buffer in state.pointers:  # an argument: a part of the workspace
        emit_stmt(state, node.body)
    else:
        emit_allocate(state, node)


CUDA_STATEMENTS: Mapping[type, StatementEmitter] = {
    **STATEMENTS,
    s.For: _emit_for,
    s.Allocate: _emit_allocate,
}
