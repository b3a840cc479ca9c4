"""Demotes ``local`` buffers that cannot be held in registers to memory.

A local buffer that is indexed by a run-time value, or is larger than the register file of any CPU,
moves to ``global`` scope: inside a kernel that is the stack or the workspace.
"""

from __future__ import annotations

import dataclasses

from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, int_value
from weft.tir.func import PrimFunc
from weft.tir.visitor import all_exprs, map_body, post_order_stmts, replace_buffers

MAX_LOCAL_BYTES = 4096  # twice the 32 registers of 64 bytes


def is_constant_index(index: PrimExpr) -> bool:
    """Whether an index is a constant, or a contiguous ramp from a constant."""
    if type(index) is Ramp:
        return int_value(index.base) is not None and int_value(index.stride) == 1
    return int_value(index) is not None


def is_constant_access(indices: tuple[PrimExpr, ...]) -> bool:
    """Whether an access is to constant elements: scalars, and a ramp only as the last index."""
    return all(map(is_constant_index, indices)) and not any(
        isinstance(i, Ramp | Broadcast) for i in indices[:-1]
    )


def _demoted(func: PrimFunc) -> dict[Buffer, Buffer]:
    statements = list(post_order_stmts(func.body))
    local = [n.buffer for n in statements if isinstance(n, s.Allocate) and _is_local(n.buffer)]
    if not local:
        return {}
    accesses = [*(n for n in statements if isinstance(n, s.BufferStore)),
                *(e for e in all_exprs(func.body) if type(e) is BufferLoad)]
    dynamic = {
        a.buffer for a in accesses if _is_local(a.buffer) and not is_constant_access(a.indices)
    }
    return {
        buffer: dataclasses.replace(buffer, scope="global", uid=next_uid())
        for buffer in local
        if buffer in dynamic or not _fits(buffer)
    }


def _is_local(buffer: Buffer) -> bool:
    return buffer.scope == "local"


def _fits(buffer: Buffer) -> bool:
    size = buffer.static_bytes
    return size is not None and size <= MAX_LOCAL_BYTES


def check_local(func: PrimFunc) -> PrimFunc:
    """Demote local buffers that cannot be registers.

    R = allocate(float32[8] local)
    for i in range(8):
        R[i] = 1.0
    =>
    R = allocate(float32[8])
    for i in range(8):
        R[i] = 1.0
    """
    demoted = _demoted(func)
    if not demoted:
        return func
    return map_body(func, lambda body: replace_buffers(body, demoted))
