"""Inserts the barriers that the threads of a block need between accesses to shared memory.

Two accesses need a barrier between them if they may touch the same bytes, one of them writes, and
they may come from different threads. The analysis keeps, for each statement, the accesses that it
may make before its first barrier and after its last one; a barrier goes in front of the outermost
statement that conflicts with what ran before it, and at the start of a loop whose iterations
conflict with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field

from weft.ir.dtype import handle
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import EQ, And, BufferLoad, Call, PrimExpr, Var, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import Evaluate, Stmt, seq
from weft.tir.transform.gpu.same_thread import AccessIndices, ThreadIndices
from weft.tir.transform.gpu.thread_axes import BLOCK_TAGS, THREADS_APART, is_bound, is_thread
from weft.tir.visitor import exprs_of, map_stmts, mentions, post_order, post_order_stmts, vars_of

BARRIER = Evaluate(Call(handle, "barrier", ()))
# Key of an ``AttrStmt`` around hand-written loops that contain all barriers that they need:
# accesses do not show the order of asynchronous copies.
OWN_BARRIERS = "own_barriers"


def thread_sync(func: PrimFunc) -> PrimFunc:
    """Insert barriers.

    for threadIdx.x in threadIdx.x(64):
        S[threadIdx.x] = A[threadIdx.x]
        B[threadIdx.x] = S[63 - threadIdx.x]
    =>
    for threadIdx.x in threadIdx.x(64):
        S[threadIdx.x] = A[threadIdx.x]
        barrier()
        B[threadIdx.x] = S[63 - threadIdx.x]
    """
    offsets = func.attrs.get("shared_offsets", {})

    def rewrite(node: Stmt) -> Stmt:
        if is_bound(node):
            return _launch(func, node, offsets)
        return map_stmts(node, rewrite)

    return func.replace(body=rewrite(func.body))


def _launch(func: PrimFunc, node: Stmt, offsets: dict[Buffer, int]) -> Stmt:
    loops: list[s.For] = []
    inner = node
    while isinstance(inner, s.For) and is_bound(inner):
        loops.append(inner)
        inner = inner.body
    threads = [loop for loop in loops if is_thread(loop)]
    if math.prod(int_value(loop.extent) or 2 for loop in threads) == 1:
        return node
    is_alone = all(int_value(loop.extent) == 1 for loop in loops if loop.thread_tag in BLOCK_TAGS)
    body = _Sync(func, inner, threads, offsets, params_too=is_alone).run(inner).stmt
    for loop in reversed(loops):
        body = loop.replace(body=body)
    return body


@dataclass(frozen=True, slots=True)
class _Access:
    buffer: Buffer
    is_write: bool
    indices: AccessIndices
    store: s.BufferStore | None = None


@dataclass(slots=True)
class _Summary:
    """A statement with its barriers, and its accesses before the first and after the last barrier.

    ``waits``: every thread meets a barrier in the statement, so nothing before it conflicts with
    the statements after it.
    """

    stmt: Stmt
    before: list[_Access] = field(default_factory=list)
    after: list[_Access] = field(default_factory=list)
    waits: bool = False


class _Sync:
    def __init__(self, func: PrimFunc, body: Stmt, threads: Sequence[s.For],
                 offsets: dict[Buffer, int], *, params_too: bool) -> None:
        self.func = func
        self.offsets = offsets
        self.vars = {loop.loop_var for loop in threads}
        self.thread_indices = ThreadIndices(body, threads)
        # The thread indices that are fixed in the current branch.
        self.fixed: dict[Var, int] = {}
        private = {n.buffer for n in post_order_stmts(body) if isinstance(n, s.Allocate)
                   and n.buffer.scope != "shared"}
        written = {n.buffer for n in post_order_stmts(body) if isinstance(n, s.BufferStore)}
        # With one block, threads also communicate through global memory.
        self.common = {b for b in written if params_too and b not in private
                       and b.scope == "global"}

    def run(self, node: Stmt) -> _Summary:
        """The statement with barriers inside where it needs them."""
        match node:
            case s.SeqStmt():
                return self._sequence(node.stmts)
            case s.For():
                return self._loop(node)
            case s.IfThenElse():
                return self._branch(node)
            case s.LetStmt():
                return self._let(node)
            case s.AttrStmt(key=key) if key == OWN_BARRIERS:
                return _Summary(node.body, waits=True)
            case s.AttrStmt() if node.key == THREADS_APART:
                accesses = [a for n in post_order_stmts(node.body) for a in self._accesses(n)]
                return _Summary(node.body, accesses, accesses)
            case s.Allocate() | s.AttrStmt():
                inner = self.run(node.body)
                inner.stmt = node.replace(body=inner.stmt)
                return inner
        if isinstance(node, Evaluate) and isinstance(node.value, Call) \
                and node.value.name == "barrier":
            return _Summary(node, waits=True)
        accesses = self._accesses(node)
        return _Summary(node, accesses, accesses)

    def _sequence(self, stmts: Iterable[Stmt]) -> _Summary:
        result = _Summary(s.SeqStmt(()))
        out: list[Stmt] = []
        for stmt in stmts:
            part = self.run(stmt)
            if self._conflict(result.after, part.before):
                out.append(BARRIER)
                result.after, result.waits = [], True
            if not result.waits:
                result.before = [*result.before, *part.before]
            result.after = part.after if part.waits else [*result.after, *part.after]
            result.waits = result.waits or part.waits
            out.append(part.stmt)
        result.stmt = seq(out)
        return result

    def _loop(self, node: s.For) -> _Summary:
        inner = self.run(node.body)
        bounds = [a for root in (node.min, node.extent) for a in self._reads(root)]
        if self._conflict(inner.after, inner.before, node.loop_var):
            inner = _Summary(seq([BARRIER, inner.stmt]), [], inner.after, waits=True)
        if inner.waits and self._differs(node.min, node.extent):
            raise self._unreached(f"loop {node.loop_var.name}")
        runs = (int_value(node.extent) or 0) > 0
        return _Summary(node.replace(body=inner.stmt), [*bounds, *inner.before],
                        [*bounds, *inner.after], inner.waits and runs)

    def _branch(self, node: s.IfThenElse) -> _Summary:
        if self._differs(node.condition):
            return self._divergent(node)
        reads = self._reads(node.condition)
        outer, self.fixed = self.fixed, {**self.fixed, **self._fixed_by(node.condition)}
        sides = [self._after_reads(reads, node.then_case)]
        self.fixed = outer
        if node.else_case is not None:
            sides.append(self._after_reads(reads, node.else_case))
        stmt = node.replace(then_case=sides[0].stmt,
                            else_case=sides[1].stmt if len(sides) > 1 else None)
        return _Summary(stmt, [*reads, *(a for side in sides for a in side.before)],
                        [*reads, *(a for side in sides for a in side.after)],
                        len(sides) > 1 and all(side.waits for side in sides))

    def _let(self, node: s.LetStmt) -> _Summary:
        reads = self._reads(node.value)
        inner = self._after_reads(reads, node.body)
        after = inner.after if inner.waits else [*reads, *inner.after]
        return _Summary(node.replace(body=inner.stmt), [*reads, *inner.before], after, inner.waits)

    def _after_reads(self, reads: list[_Access], node: Stmt) -> _Summary:
        inner = self.run(node)
        if self._conflict(reads, inner.before):
            return _Summary(seq([BARRIER, inner.stmt]), [], inner.after, waits=True)
        return inner

    def _accesses(self, node: Stmt) -> list[_Access]:
        found = [a for root in exprs_of(node) for a in self._reads(root)]
        if isinstance(node, s.BufferStore) and self._is_common(node.buffer):
            found.append(_Access(node.buffer, True, self._indices(node.indices), node))
        return found

    def _reads(self, root: PrimExpr) -> list[_Access]:
        """The loads in an expression; a call may also write to the addresses among its operands."""
        nodes = list(post_order(root))
        written = {e.args[0] for e in nodes if isinstance(e, Call) and e.name == "address_of"}
        return [_Access(e.buffer, e in written, self._indices(e.indices))
                for e in nodes if type(e) is BufferLoad and self._is_common(e.buffer)]

    def _indices(self, indices: tuple[PrimExpr, ...]) -> AccessIndices:
        return self.thread_indices.of(indices, self.fixed)

    def _fixed_by(self, condition: PrimExpr) -> dict[Var, int]:
        """The thread indices that a condition compares with a constant for equality."""
        if isinstance(condition, And):
            return {**self._fixed_by(condition.a), **self._fixed_by(condition.b)}
        if isinstance(condition, EQ) and isinstance(condition.a, Var) and condition.a in self.vars:
            value = int_value(condition.b)
            return {} if value is None else {condition.a: value}
        return {}

    def _is_common(self, buffer: Buffer) -> bool:
        return buffer.scope == "shared" or buffer in self.common

    def _conflict(self, first: Sequence[_Access], second: Sequence[_Access],
                  loop: Var | None = None) -> bool:
        """Whether accesses conflict; those of ``second`` are of the next iteration of ``loop``."""
        return any((a.is_write or b.is_write) and not _writes_once(a, b, loop)
                   and self._may_meet(a, b) for a in first for b in second)

    def _may_meet(self, a: _Access, b: _Access) -> bool:
        """Whether different threads may touch the same bytes."""
        if a.buffer is b.buffer:
            return not self.thread_indices.is_own(a.indices, b.indices)
        if a.buffer not in self.offsets or b.buffer not in self.offsets:
            return False
        low, other = self.offsets[a.buffer], self.offsets[b.buffer]
        return low < other + (b.buffer.static_bytes or 0) \
            and other < low + (a.buffer.static_bytes or 0)

    def _differs(self, *exprs: PrimExpr) -> bool:
        """Whether a value may differ between the threads of a block."""
        return any(vars_of(e) & self.vars for e in exprs)

    def _divergent(self, node: s.IfThenElse) -> _Summary:
        """A branch that only some threads take: code of one stage, without barriers.

        ``unify_threads`` has moved the condition inside all code that the block computes together.
        """
        if _has_barrier(node):
            raise self._unreached(f"the condition {node.condition}")
        found = self._reads(node.condition)
        outer, self.fixed = self.fixed, {**self.fixed, **self._fixed_by(node.condition)}
        for inner in post_order_stmts(node.then_case):
            found += self._accesses(inner)
        self.fixed = outer
        if node.else_case is not None:
            for inner in post_order_stmts(node.else_case):
                found += self._accesses(inner)
        return _Summary(node, found, found)

    def _unreached(self, where: str) -> LoweringError:
        return LoweringError(
            f"{self.func.name}: the threads of a block need a barrier that not all of them reach",
            where=where, help="move what the block computes together out of the condition")


def _writes_once(a: _Access, b: _Access, loop: Var | None) -> bool:
    """Whether a stage fills its buffer: each iteration of the loop stores to other elements."""
    return a.store is not None and a.store is b.store and loop is not None \
        and any(mentions(i, loop) for i in a.store.indices)


def _has_barrier(node: Stmt) -> bool:
    return any(isinstance(n, Evaluate) and isinstance(n.value, Call) and n.value.name == "barrier"
               for n in post_order_stmts(node))
