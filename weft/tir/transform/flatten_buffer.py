"""Flattens buffers to one dimension; indices become one canonical sum of products.

Vector accesses become ramps, broadcasts or interleaved contiguous loads where the flat index allows
it, so that as few gathers as possible are left.
"""

from __future__ import annotations

import dataclasses

from weft.ir.dtype import int64
from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import (
    Broadcast,
    BufferLoad,
    PrimExpr,
    Ramp,
    Var,
    access_lanes,
    const,
    int_value,
)
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.transform.interleave_tile import interleave, interleaved_starts, of_lane
from weft.tir.transform.rewriter import RewriterWithAnalyzer


class _Flattener(RewriterWithAnalyzer):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self._is_symbolic = any(isinstance(param, Var) for param in func.params)
        self.flat: dict[Buffer, Buffer] = {}
        self._strides: dict[Buffer, tuple[PrimExpr, ...]] = {}
        self._loads: dict[PrimExpr, PrimExpr] = {}

    def buffer(self, old: Buffer) -> Buffer:
        new = self.flat.get(old)
        if new is None:
            if old.strides is not None:
                raise LoweringError(f"unsupported strided buffer: {old.name}",
                                    help="copy it into a compact buffer first")
            total: PrimExpr = const(1)
            strides: list[PrimExpr] = []
            for size in reversed(old.shape):
                strides.insert(0, total)
                total = self.analyzer.simplify(total * size)
            self._strides[old] = tuple(strides)
            is_flat = old.ndim == 1
            new = old if is_flat else dataclasses.replace(old, shape=(total,), uid=next_uid())
            self.flat[old] = new
        return new

    def index(self, old: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
        self.buffer(old)
        lanes = access_lanes(indices)
        terms = list(zip(indices, self._strides[old], strict=True))
        if lanes == 1:
            return self._sum(terms)
        if not all(isinstance(i, Ramp | Broadcast) or i.dtype.lanes == 1 for i in indices):
            return self._gather(terms, lanes)
        base = self._sum([(_start(i), stride) for i, stride in terms])
        step = self._sum([(i.stride, n) for i, n in terms if isinstance(i, Ramp)])
        return Ramp(base, step, lanes) if step is not const(0) else Broadcast(base, lanes)

    def _sum(self, terms: list[tuple[PrimExpr, PrimExpr]]) -> PrimExpr:
        return self.analyzer.sum_of_products(
            [(index if index.dtype is int64 else index.astype(int64), n) for index, n in terms])

    def _gather(self, terms: list[tuple[PrimExpr, PrimExpr]], lanes: int) -> PrimExpr:
        ramp = self._as_ramp(terms, lanes)
        return self._lane_by_lane(terms, lanes) if ramp is None else ramp

    def _as_ramp(self, terms: list[tuple[PrimExpr, PrimExpr]], lanes: int) -> PrimExpr | None:
        """The flat index as a ramp or broadcast; ``None`` if it is not linear in the lane.

        The index of a fused axis is split into quotient and remainder in different dimensions.
        Neither is linear in the lane, but the flat sum is.
        """
        lane = Var("lane", int64)
        by_lane = [(of_lane(index, lane), stride) for index, stride in terms]
        if any(index is None for index, _ in by_lane):
            return None
        self.analyzer.bind(lane, 0, lanes)
        here = self._sum([(index, stride) for index, stride in by_lane if index is not None])
        there = self.analyzer.simplify(visitor.substitute(here, {lane: lane + 1}))
        step = self.analyzer.simplify(there - here)
        self.analyzer.release(lane)
        if visitor.mentions(step, lane) or any(type(e) is BufferLoad
                                               for e in visitor.post_order(step)):
            return None
        base = self.analyzer.simplify(visitor.substitute(here, {lane: const(0)}))
        return Ramp(base, step, lanes) if step is not const(0) else Broadcast(base, lanes)

    def _lane_by_lane(self, terms: list[tuple[PrimExpr, PrimExpr]], lanes: int) -> PrimExpr:
        scalar = self._sum([(i, n) for i, n in terms if i.dtype.lanes == 1])
        total: PrimExpr = Broadcast(scalar, lanes)
        for index, stride in terms:
            if index.dtype.lanes > 1:
                wide = index if index.dtype.element is int64 else index.astype(int64)
                total = total + wide * Broadcast(stride, lanes)
        return self.analyzer.simplify(total)

    def expr(self, e: PrimExpr) -> PrimExpr:
        e = super().expr(e)
        for inner in visitor.depth_checkpoints(e, self.heights):
            self._flatten(inner)
        return self._flatten(e)

    def _flatten(self, e: PrimExpr) -> PrimExpr:
        done = self._loads.get(e)
        if done is None:
            is_load = type(e) is BufferLoad
            done = self._load(e) if is_load else visitor.map_children(e, self._flatten)
            self._loads[e] = done
        return done

    def _load(self, e: BufferLoad) -> PrimExpr:
        new = self.buffer(e.buffer)
        index = self.index(e.buffer, tuple(map(self._flatten, e.indices)))
        mask = None if e.predicate is None else self._flatten(e.predicate)
        if mask is None and index.dtype.lanes > 1 and not isinstance(index, Ramp | Broadcast):
            starts = interleaved_starts(index, self.analyzer)
            if starts is not None:
                lanes = index.dtype.lanes // len(starts)
                return interleave([BufferLoad(new, (Ramp(start, const(1), lanes),), None)
                                   for start in starts])
        if isinstance(index, Broadcast) and mask is None:
            return Broadcast(BufferLoad(new, (index.value,), None), index.lanes)
        return BufferLoad(new, (index,), mask)

    def visit(self, node: Stmt) -> Stmt:
        match node:
            case s.BufferStore():
                indices = tuple(self._flatten(i) for i in node.indices)
                mask = node.predicate
                return s.BufferStore(self.buffer(node.buffer), self.expr(node.value),
                                     (self.index(node.buffer, indices),),
                                     None if mask is None else self.expr(mask))
            case s.Allocate():
                return s.Allocate(self.buffer(node.buffer), self.visit(node.body))
            case s.SeqStmt():
                return visitor.map_stmts(node, self.visit)
        return super().visit(node)

    def case(self, condition: PrimExpr, body: Stmt) -> Stmt:
        # Indices were simplified under the condition, so the memo is not valid outside.
        outer, self._loads = self._loads, {}
        result = super().case(condition, body)
        self._loads = outer
        return result

    def loop(self, node: s.For) -> Stmt:
        # The masks of a tail of one vector of a symbolic row then do not depend on the loop, and
        # outer loops do not compute them again. Loops over fixed sizes have no such masks.
        extent = self.expr(node.extent)
        if (self._is_symbolic and node.kind is s.ForKind.SERIAL and int_value(extent) is None
                and self.analyzer.can_prove(extent <= 1)):
            body = visitor.substitute(node.body, {node.loop_var: node.min})
            return self.visit(s.IfThenElse(extent >= 1, body))
        # Several loops may share a variable, with different ranges, so the memo is per loop.
        outer, self._loads = self._loads, {}
        result = super().loop(node)
        self._loads = outer
        return result


def _start(index: PrimExpr) -> PrimExpr:
    if isinstance(index, Ramp):
        return index.base
    return index.value if isinstance(index, Broadcast) else index


def flatten_buffer(func: PrimFunc) -> PrimFunc:
    """Make every buffer one-dimensional.

    A = allocate(float32[4, 8])
    for i in range(4):
        A[i, ramp(0, 1, 8)] = broadcast(B[i, 2], 8)
    =>
    A = allocate(float32[32])
    for i in range(4):
        A[ramp(i * 8, 1, 8)] = broadcast(B[i * 8 + 2], 8)
    """
    flattener = _Flattener(func)
    params = tuple(flattener.buffer(p) if isinstance(p, Buffer) else p for p in func.params)
    body = flattener.visit(func.body)
    attrs = dict(func.attrs)
    for key in ("workspace_offsets", "task_scratch", "shared_offsets"):
        if key in attrs:  # keyed by the new buffers
            attrs[key] = {flattener.flat.get(b, b): value for b, value in attrs[key].items()}
    return func.replace(params=params, body=body, attrs=attrs)
