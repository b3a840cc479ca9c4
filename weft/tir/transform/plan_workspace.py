"""Assigns scratch buffers to the function's workspace, or to the stack of a parallel body."""

from __future__ import annotations

import dataclasses
from typing import Any

from weft.runtime.sizes import Size
from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import (
    BufferLoad,
    PrimExpr,
    Var,
    const,
    floordiv,
    int_value,
    maximum,
    minimum,
)
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.size_text import bind_size, size_text
from weft.tir.stmt import ForKind, Stmt
from weft.tir.task_scratch import MAX_STACK_BYTES, MAX_TOTAL_STACK_BYTES, TaskScratch
from weft.tir.visitor import map_stmts, post_order, transform_expr, transform_stmt, vars_of

_ALIGNMENT = 64


class WorkspacePlanner:
    """Buffers of constant size come first in the workspace, so that their offsets are constant."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.offsets: dict[Buffer, int | PrimExpr] = {}
        self.task_scratch: dict[Buffer, TaskScratch] = {}
        self.size = 0
        self._sizes = [p for p in func.params if isinstance(p, Var)]
        self._analyzer = Analyzer()
        for var in self._sizes:
            bind_size(self._analyzer, var)
        # Buffers of symbolic size, and the extents of parallel loops around task scratch.
        self._symbolic: dict[Buffer, PrimExpr] = {}
        self._extents: dict[Buffer, PrimExpr] = {}

    def outside(self, node: Stmt) -> Stmt:
        """Statements outside of parallel loops: allocate scratch in the workspace."""
        if isinstance(node, s.For) and node.kind is ForKind.PARALLEL:
            return self._parallel(node)
        if isinstance(node, s.Allocate) and node.buffer.scope == "global":
            self.assign_offset(node.buffer)
        return map_stmts(node, self.outside)

    def assign_offset(self, buffer: Buffer) -> None:
        if buffer in self.offsets:  # copies of one statement have disjoint live ranges
            return
        size = buffer.static_bytes
        if size is None:
            self._symbolic[buffer] = self._bytes(buffer)
            return
        self.offsets[buffer] = self.size
        self.size += -(-size // _ALIGNMENT) * _ALIGNMENT

    def _bytes(self, buffer: Buffer) -> PrimExpr:
        """The size of a buffer in bytes, a multiple of the alignment."""
        total = const(buffer.dtype.itemsize)
        for size in buffer.shape:
            total = total * size
        return self.over_sizes(buffer, aligned(self._analyzer.simplify(total)))

    def over_sizes(self, buffer: Buffer, e: PrimExpr) -> PrimExpr:
        """``e``, simplified; ``LoweringError`` unless the size parameters alone determine it."""
        e = self._analyzer.simplify(e)
        others = [v for v in vars_of(e) if v not in self._sizes]
        if others or any(isinstance(inner, BufferLoad) for inner in post_order(e)):
            raise LoweringError(
                f"{self.func.name}: the size of scratch buffer {buffer.name} changes inside the "
                "kernel", expected="a size that the parameters of the kernel determine",
                got=buffer.shape, help="compute the stage inline, or inside a loop that makes its "
                                       "size constant")
        return e

    def _parallel(self, loop: s.For) -> Stmt:
        """Leave some small buffers on the stack of the body; give others a slice per iteration.

        Iterations run concurrently, so each needs memory of its own.
        """
        large: list[tuple[Buffer, Buffer]] = []
        small: dict[Buffer, int] = {}  # those on the stack, with their sizes

        def inside(node: Stmt) -> Stmt:
            node = map_stmts(node, inside)
            if not isinstance(node, s.Allocate) or node.buffer.scope != "global":
                return node
            old = node.buffer
            size = old.static_bytes
            if old in small or (size is not None and size <= MAX_STACK_BYTES and
                                sum(small.values()) + size <= MAX_TOTAL_STACK_BYTES):
                small[old] = size or 0
                return node
            if size is None or int_value(loop.extent) is None:
                self._add_task_scratch(old, loop.extent)
                return node
            shape = (loop.extent, *old.shape)
            large.append((old, dataclasses.replace(old, shape=shape, uid=next_uid())))
            return node.body

        body = inside(loop.body)
        iteration = loop.loop_var - loop.min
        result: Stmt = loop.replace(body=with_slices(body, dict(large), iteration))
        for _, new in large:
            self.assign_offset(new)
            result = s.Allocate(new, result)
        return result

    def _add_task_scratch(self, buffer: Buffer, extent: PrimExpr) -> None:
        if buffer in self.task_scratch:
            return
        size = self._bytes(buffer)
        largest = self._analyzer.int_bounds(size)[1]
        if largest is not None and largest <= MAX_STACK_BYTES:
            self.task_scratch[buffer] = TaskScratch(const(largest))
            return
        self.task_scratch[buffer] = TaskScratch(size)
        self._extents[buffer] = self.over_sizes(buffer, extent)

    def finish(self) -> Size:
        """Assign the offsets of symbolic buffers; returns the size of the workspace."""
        total: PrimExpr = const(self.size)
        for buffer, size in self._symbolic.items():
            self.offsets[buffer] = total
            total = self._analyzer.simplify(total + size)
        for buffer, extent in self._extents.items():
            size = self.task_scratch[buffer].size
            self.task_scratch[buffer] = TaskScratch(size, total)
            beyond = minimum(maximum(size - MAX_STACK_BYTES, 0), 1)
            total = self._analyzer.simplify(total + beyond * extent * size)
        return size_text(total)


def aligned(size: PrimExpr) -> PrimExpr:
    """A number of bytes rounded up to the alignment of scratch buffers."""
    return floordiv(size + (_ALIGNMENT - 1), const(_ALIGNMENT)) * _ALIGNMENT


def with_slices(body: Stmt, buffers: dict[Buffer, Buffer], iteration: PrimExpr) -> Stmt:
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
    planner = WorkspacePlanner(func)
    body = planner.outside(func.body)
    size = planner.finish()
    attrs: dict[str, Any] = dict(func.attrs)
    if size:
        attrs.update(workspace_bytes=size, workspace_offsets=planner.offsets)
    if planner.task_scratch:
        attrs["task_scratch"] = planner.task_scratch
    return func.replace(body=body, attrs=attrs)
