"""Unrolls short loops that index registers.

A ``local`` buffer is in registers if all its indices are constants. A thread cannot index registers
by a variable, so the buffer would be in local memory, which is as slow as global memory.
"""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, Var, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.check_local import MAX_LOCAL_BYTES
from weft.tir.visitor import all_exprs, map_body, map_stmts, post_order_stmts, stmts_of, vars_of

# Statements in all iterations; longer code does not fit the instruction cache.
MAX_STATEMENTS = 2048


def unroll_registers(func: PrimFunc) -> PrimFunc:
    """Mark the loops that index ``local`` buffers as unrolled, if that is not too much code.

    R = allocate(float32[4] local)
    for i in range(4):
        R[i] = A[i]
    =>
    R = allocate(float32[4] local)
    for i in unrolled(4):
        R[i] = A[i]
    """
    variables = _index_variables(func.body)
    return map_body(func, lambda body: _mark(body, variables)) if variables else func


def _mark(node: Stmt, variables: set[Var]) -> Stmt:
    node = map_stmts(node, lambda inner: _mark(inner, variables))
    if isinstance(node, s.For) and node.kind is ForKind.SERIAL and node.loop_var in variables:
        count = int_value(node.extent)
        if count is not None and count * _size(node.body) <= MAX_STATEMENTS:
            return node.replace(kind=ForKind.UNROLLED)
    return node


def _index_variables(body: Stmt) -> set[Var]:
    """The variables in indices of buffers that may be in registers."""
    found: set[Var] = set()
    accesses = [(n.buffer, n.indices) for n in post_order_stmts(body)
                if isinstance(n, s.BufferStore)]
    accesses += [(e.buffer, e.indices) for e in all_exprs(body) if type(e) is BufferLoad]
    for buffer, indices in accesses:
        if _may_be_registers(buffer):
            found.update(var for index in indices for var in vars_of(index))
    return found


def _may_be_registers(buffer: Buffer) -> bool:
    return buffer.scope == "local" and (buffer.static_bytes or MAX_LOCAL_BYTES + 1) <= \
        MAX_LOCAL_BYTES


def _size(node: Stmt) -> int:
    """The number of statements that run, with unrolled loops counted in full."""
    if isinstance(node, s.For):
        count = int_value(node.extent) if node.kind is ForKind.UNROLLED else 1
        return (count or 1) * _size(node.body)
    if isinstance(node, s.BufferStore | s.Evaluate):
        return 1
    return sum(map(_size, stmts_of(node)))
