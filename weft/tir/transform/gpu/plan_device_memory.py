"""Assigns scratch buffers of GPU programs to the workspace or to the memory of a thread."""

from __future__ import annotations

import dataclasses
from typing import Any

from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import PrimExpr, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.transform.gpu.thread_axes import is_bound
from weft.tir.transform.plan_workspace import WorkspacePlanner, with_slices
from weft.tir.visitor import map_stmts

# Larger buffers of a thread are slices of the workspace: local memory is reserved for all threads
# that a GPU can hold at the same time.
MAX_THREAD_BYTES = 16 * 1024
# Bytes of workspace that every launch has: empty scratch buffers need an address too.
MIN_WORKSPACE = 64


class _DevicePlanner(WorkspacePlanner):
    def outside(self, node: Stmt) -> Stmt:
        """Statements outside of blocks: scratch is in the workspace."""
        if is_bound(node):
            return self._on_device(node)
        if isinstance(node, s.Allocate) and node.buffer.scope == "global":
            self.assign_offset(node.buffer)
        return map_stmts(node, self.outside)

    def _on_device(self, nest: Stmt) -> Stmt:
        """Leave small buffers in the memory of the thread; give large ones a slice per thread."""
        loops: list[s.For] = []
        large: dict[Buffer, Buffer] = {}

        def inside(node: Stmt) -> Stmt:
            bound = isinstance(node, s.For) and is_bound(node)
            if bound:
                loops.append(node)
            node = map_stmts(node, inside)
            if not isinstance(node, s.Allocate) or node.buffer.scope != "global":
                return node
            old, size = node.buffer, node.buffer.static_bytes
            if size is not None and size <= MAX_THREAD_BYTES:
                return node
            shape = (self._count(old, loops), *old.shape)
            large[old] = dataclasses.replace(old, shape=shape, uid=next_uid())
            return node.body

        body = inside(nest)
        if not large:
            return body
        number: PrimExpr = const(0)
        for loop in loops:
            number = number * loop.extent + (loop.loop_var - loop.min)
        result = with_slices(body, large, number)
        for new in large.values():
            self.assign_offset(new)
            result = s.Allocate(new, result)
        return result

    def _count(self, buffer: Buffer, loops: list[s.For]) -> PrimExpr:
        total: PrimExpr = const(1)
        for loop in loops:
            total = total * loop.extent
        return self.over_sizes(buffer, total)


def plan_device_memory(func: PrimFunc) -> PrimFunc:
    """Assign each scratch buffer outside of blocks an offset in the workspace, in bytes.

    T = allocate(float32[1000])
    for threadIdx.x in threadIdx.x(1000):
        T[threadIdx.x] = A[threadIdx.x]
    =>
    # workspace_bytes = 4096
    # workspace[0:] holds T
    T = allocate(float32[1000])
    for threadIdx.x in threadIdx.x(1000):
        T[threadIdx.x] = A[threadIdx.x]
    """
    planner = _DevicePlanner(func)
    body = planner.outside(func.body)
    size = planner.finish()
    if not planner.offsets:
        return func.replace(body=body)
    if planner.task_scratch:
        raise LoweringError("scratch memory of CPU tasks in a GPU program", where=func.name)
    attrs: dict[str, Any] = {**func.attrs, "workspace_bytes": size or MIN_WORKSPACE,
                             "workspace_offsets": planner.offsets}
    return func.replace(body=body, attrs=attrs)
