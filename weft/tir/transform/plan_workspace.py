"""Assigns scratch buffers to the function's workspace, or to the stack of a parallel body."""

from __future__ import annotations

import dataclasses
from typing import Any

from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import BufferLoad, PrimExpr
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import map_stmts, transform_expr, transform_stmt

_ALIGNMENT = 64
# Thread stacks have a few MiB; larger buffers go to the workspace.
MAX_STACK_BYTES = 512 * 1024


class _Planner:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.offsets: dict[Buffer, int] = {}
        self.size = 0

    def outside(self, node: Stmt) -> Stmt:
        """Statements outside of parallel loops: allocate scratch in the workspace."""
        if isinstance(node, s.For) and node.kind is ForKind.PARALLEL:
            return self._parallel(node)
        if isinstance(node, s.Allocate) and node.buffer.scope == "global":
            self._assign_offset(node.buffer)
        return map_stmts(node, self.outside)

    def _assign_offset(self, buffer: Buffer) -> None:
        if buffer in self.offsets:  # copies of one statement; their live ranges are disjoint
            return
        size = self._bytes(buffer)
        self.offsets[buffer] = self.size
        self.size += -(-size // _ALIGNMENT) * _ALIGNMENT

    def _bytes(self, buffer: Buffer) -> int:
        size = buffer.static_bytes
        if size is None:
            raise LoweringError(
                f"{self.func.name}: scratch buffer {buffer.name} has a symbolic size",
                got=buffer.shape,
                help="compute the stage inline, or inside a loop that makes its size constant",
            )
        return size

    def _parallel(self, loop: s.For) -> Stmt:
        """Leave small buffers on the stack of the body; give large ones a slice per iteration.

        Iterations run concurrently, so each needs memory of its own.
        """
        large: list[tuple[Buffer, Buffer]] = []

        def inside(node: Stmt) -> Stmt:
            node = map_stmts(node, inside)
            if not isinstance(node, s.Allocate) or node.buffer.scope != "global":
                return node
            old = node.buffer
            if self._bytes(old) <= MAX_STACK_BYTES:
                return node
            shape = (loop.extent, *old.shape)
            large.append((old, dataclasses.replace(old, shape=shape, uid=next_uid())))
            return node.body

        body = inside(loop.body)
        iteration = loop.loop_var - loop.min
        result: Stmt = loop.replace(body=_with_slices(body, dict(large), iteration))
        for _, new in large:
            self._assign_offset(new)
            result = s.Allocate(new, result)
        return result


def _with_slices(body: Stmt, buffers: dict[Buffer, Buffer], iteration: PrimExpr) -> Stmt:
    """``body`` with each buffer replaced by slice number ``iteration`` of the larger buffer."""
    if not buffers:
        return body

    def on_expr(e: PrimExpr) -> PrimExpr:
        if type(e) is BufferLoad and e.buffer in buffers:
            return BufferLoad(buffers[e.buffer], (iteration, *e.indices), e.predicate)
        return e

    def on_stmt(node: Stmt) -> Stmt:
        if isinstance(node, s.BufferStore) and node.buffer in buffers:
            indices = (iteration, *node.indices)
            return node.replace(buffer=buffers[node.buffer], indices=indices)
        return node

    memo: dict[PrimExpr, PrimExpr] = {}
    return transform_stmt(body, on_stmt, lambda e: transform_expr(e, on_expr, memo))


def plan_workspace(func: PrimFunc) -> PrimFunc:
    """Assign each scratch buffer an offset in the workspace, in bytes.

    T = allocate(float32[1000])
    for i in range(1000):
        T[i] = A[i]
    =>
    # workspace_bytes = 4032
    # workspace[0:] holds T
    T = allocate(float32[1000])
    for i in range(1000):
        T[i] = A[i]
    """
    planner = _Planner(func)
    body = planner.outside(func.body)
    attrs: dict[str, Any] = dict(func.attrs)
    if planner.size:
        attrs.update(workspace_bytes=planner.size, workspace_offsets=planner.offsets)
    return func.replace(body=body, attrs=attrs)
