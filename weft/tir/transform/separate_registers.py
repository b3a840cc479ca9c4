"""Renames ``local`` buffers that several allocations share, one buffer per allocation.

Earlier passes copy loops, and the copies share their local buffers. Main and tail loops access a
register tile with different vector widths. A shared buffer would have overlapping accesses, which
cannot be held in registers.
"""

from __future__ import annotations

import dataclasses

from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.visitor import map_body, map_stmts, replace_buffers


def separate_registers(func: PrimFunc) -> PrimFunc:
    """Give each allocation of a local buffer a distinct buffer.

    for i in range(4):
        T = allocate(float32[2] local)
        T[0] = A[i]
        B[i] = T[0]
    =>
    for i in range(4):
        T = allocate(float32[2] local)
        T[0] = A[i]
        B[i] = T[0]
    """
    seen: set[Buffer] = set()

    def rewrite(node: Stmt) -> Stmt:
        if isinstance(node, s.Allocate) and node.buffer.scope == "local":
            if node.buffer in seen:
                fresh = dataclasses.replace(node.buffer, uid=next_uid())
                node = s.Allocate(fresh, replace_buffers(node.body, {node.buffer: fresh}))
            seen.add(node.buffer)
        return map_stmts(node, rewrite)

    return map_body(func, rewrite)
