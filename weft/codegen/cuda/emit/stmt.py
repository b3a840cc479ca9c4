"""The statements of CUDA kernels: serial loops, and buffers in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.codegen.ir_text.emit.state import FunctionState, StatementEmitter
from weft.codegen.ir_text.emit.stmt import STATEMENTS, emit_allocate, emit_serial_for, emit_stmt
from weft.ir import int32, int64
from weft.support.errors import CodegenError, InternalError
from weft.tir import Add, Buffer, Cast, ForKind, IntImm, Mul, PrimExpr, Ramp, Sub
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


# The widest load or store of a thread. The launcher passes tensors that start at multiples of it.
VECTOR_BYTES = 16
_UNKNOWN = 1


def access_alignment(buffer: Buffer, index: PrimExpr, lanes: int) -> int:
    """The alignment in bytes of an access to ``lanes`` elements from ``index`` on.

    At most the size of the access, so that LLVM makes no access wider than the program asks for.
    """
    if isinstance(index, Ramp):
        index = index.base
    size = lanes * buffer.dtype.itemsize
    start = min(buffer.alignment, VECTOR_BYTES, 1 << (size - 1).bit_length())
    return math.gcd(divisor_of(index) * buffer.dtype.itemsize, start) or start


def divisor_of(e: PrimExpr) -> int:
    """An integer that divides ``e``; 0 if ``e`` is 0."""
    match e:
        case IntImm():
            return abs(e.value)
        case Mul():
            return divisor_of(e.a) * divisor_of(e.b)
        case Add() | Sub():
            return math.gcd(divisor_of(e.a), divisor_of(e.b))
        case Cast():
            return divisor_of(e.value)
    return _UNKNOWN
