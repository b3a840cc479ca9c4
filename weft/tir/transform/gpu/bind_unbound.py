"""Binds loop nests that no schedule has bound to blocks and threads, so that every program runs.

The independent loops outside a nest are fused and shared among threads, 256 in a block. A nest
without independent outer loops runs in one block, whose threads share the independent inner loops;
thread 0 executes the rest. A nest that branches on data is run by one thread.
"""

from __future__ import annotations

from dataclasses import replace

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Var, const, floordiv, floormod, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.size_text import bind_size
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.gpu.independent import is_independent
from weft.tir.transform.gpu.thread_axes import WARP, bound_loop, has_bound
from weft.tir.visitor import (
    map_stmts,
    mentions,
    post_order,
    post_order_stmts,
    stmts_of,
    substitute,
)

THREADS = 256  # threads of a block: full occupancy on every architecture


def bind_unbound(func: PrimFunc) -> PrimFunc:
    """Bind the loops of each nest without bound loops.

    for i in range(1000):
        A[i] = B[i] + 1.0
    =>
    for blockIdx.x in blockIdx.x(4):
        for threadIdx.x in threadIdx.x(256):
            if likely(blockIdx.x * 256 + threadIdx.x < 1000):
                A[blockIdx.x * 256 + threadIdx.x] = B[blockIdx.x * 256 + threadIdx.x] + 1.0
    """
    return func.replace(body=_Binder(func).host(func.body))


class _Binder:
    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = Analyzer()
        for param in func.params:
            if isinstance(param, Var):
                bind_size(self.analyzer, param)

    def host(self, node: Stmt) -> Stmt:
        """Statements outside of all blocks."""
        if isinstance(node, s.SeqStmt | s.Allocate | s.AttrStmt):
            return map_stmts(node, self.host)
        if has_bound(node):
            return node
        return self._bound(node)

    def _bound(self, node: Stmt) -> Stmt:
        loops, guards, body = self._nest(node)
        if not loops:
            return self._one_block(node)
        total: PrimExpr = const(1)
        for loop in loops:
            total = self.analyzer.simplify(total * loop.extent)
        for guard in reversed(guards):
            body = s.IfThenElse(guard, body)
        return self._grid(loops, total, body)

    def _nest(self, node: Stmt) -> tuple[list[s.For], list[PrimExpr], Stmt]:
        """The independent outer loops, the conditions between them, and the body inside."""
        loops: list[s.For] = []
        guards: list[PrimExpr] = []
        bound: list[s.For] = []
        while True:
            if isinstance(node, s.For) and not _depends(node, loops) \
                    and is_independent(node, self.analyzer):
                loops.append(node)
                self.analyzer.bind(node.loop_var, node.min, node.extent)
                bound.append(node)
                node = node.body
            elif isinstance(node, s.IfThenElse) and node.else_case is None \
                    and isinstance(node.then_case, s.For | s.IfThenElse):
                guards.append(node.condition)
                node = node.then_case
            else:
                break
        for loop in bound:
            self.analyzer.release(loop.loop_var)
        return loops, guards, node

    def _grid(self, loops: list[s.For], total: PrimExpr, body: Stmt) -> Stmt:
        count = int_value(total)
        threads = THREADS if count is None else min(THREADS, -(-max(count, 1) // WARP) * WARP)
        block, thread = Var("blockIdx.x"), Var("threadIdx.x")
        number = block * threads + thread
        values: dict[Var, PrimExpr] = {}
        rest: PrimExpr = number
        for loop in reversed(loops):
            is_first = loop is loops[0]
            index = rest if is_first else floormod(rest, loop.extent)
            values[loop.loop_var] = loop.min + index
            rest = floordiv(rest, loop.extent)
        body = substitute(serial_lanes(body), values)
        if count is None or count % threads:
            body = s.IfThenElse(x.call("bool", "likely", number < total), body)
        blocks = self.analyzer.simplify(floordiv(total + (threads - 1), const(threads)))
        return bound_loop(block, blocks, "blockIdx.x",
                          bound_loop(thread, threads, "threadIdx.x", body))

    def _one_block(self, node: Stmt) -> Stmt:
        """One block; its threads share the independent loops inside ``node``.

        One thread runs branches on data: others could test what it has stored to meanwhile.
        """
        is_shared = not _branches_on_data(node) and self._has_shared_loop(node)
        threads = THREADS if is_shared else 1
        block = Var("blockIdx.x")
        body = self._in_block(node) if threads > 1 else node
        if threads == 1:
            body = bound_loop(Var("threadIdx.x"), 1, "threadIdx.x", serial_lanes(body))
        return bound_loop(block, 1, "blockIdx.x", body)

    def _has_shared_loop(self, node: Stmt) -> bool:
        if isinstance(node, s.For):
            if is_independent(node, self.analyzer):
                return True
            self.analyzer.bind(node.loop_var, node.min, node.extent)
            found = self._has_shared_loop(node.body)
            self.analyzer.release(node.loop_var)
            return found
        return any(map(self._has_shared_loop, stmts_of(node)))

    def _in_block(self, node: Stmt) -> Stmt:
        """A statement of one block: independent loops become thread loops."""
        if isinstance(node, s.For):
            if is_independent(node, self.analyzer):
                return self._over_threads(node)
            self.analyzer.bind(node.loop_var, node.min, node.extent)
            body = self._in_block(node.body)
            self.analyzer.release(node.loop_var)
            kind = ForKind.SERIAL if node.kind is not ForKind.UNROLLED else node.kind
            return replace(node, body=body, kind=kind)
        return map_stmts(node, self._in_block)

    def _over_threads(self, loop: s.For) -> Stmt:
        thread, turn = Var("threadIdx.x"), Var(f"{loop.loop_var.name}.outer")
        count = int_value(loop.extent)
        threads = THREADS if count is None else min(THREADS, -(-max(count, 1) // WARP) * WARP)
        index = turn * threads + thread
        body = substitute(serial_lanes(loop.body), {loop.loop_var: loop.min + index})
        if count is None or count % threads:
            body = s.IfThenElse(x.call("bool", "likely", index < loop.extent), body)
        turns = self.analyzer.simplify(floordiv(loop.extent + (threads - 1), const(threads)))
        return bound_loop(thread, threads, "threadIdx.x",
                          s.For(turn, const(0), turns, ForKind.SERIAL, body))


def serial_lanes(body: Stmt) -> Stmt:
    """``body`` with serial loops instead of those for CPU threads and vector registers."""
    body = map_stmts(body, serial_lanes)
    if isinstance(body, s.For) and body.kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
        return replace(body, kind=ForKind.SERIAL)
    return body


def _branches_on_data(node: Stmt) -> bool:
    """Whether a branch tests memory, or a name, which may be of memory."""
    statements = list(post_order_stmts(node))
    names = [n.var for n in statements if isinstance(n, s.LetStmt)]
    return any(isinstance(n, s.IfThenElse) and (
        mentions(n.condition, *names)
        or any(isinstance(e, x.BufferLoad) for e in post_order(n.condition))) for n in statements)


def _depends(loop: s.For, outer: list[s.For]) -> bool:
    """Whether the range of a loop depends on the loops around it, or on data; such a loop is not
    fused.

    The host computes the size of a grid, and it has no access to data.
    """
    variables = [o.loop_var for o in outer]
    return any(mentions(e, *variables) or any(isinstance(n, x.BufferLoad) for n in post_order(e))
               for e in (loop.min, loop.extent))
