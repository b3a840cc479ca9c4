"""Makes the thread loops of a launch one nest around all statements of its blocks.

A schedule binds the loops of several stages to threads: those of the result, and those of stages
that the threads of a block compute together in shared memory. Each launch becomes block loops, then
thread loops, then the code of one thread, with the allocations of shared memory. A loop that was
bound to a thread index becomes a use of that index, under a condition if the loop is shorter than
the number of threads. If several threads would do the same work, the first one does it.

Threads meet at barriers, so conditions that differ between threads move into the branches, to the
single statements, wherever a block computes something together.
"""

from __future__ import annotations

import dataclasses

from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.buffer import Buffer, next_uid
from weft.tir.cross_thread import CROSS_THREAD_REDUCE
from weft.tir.expr import BufferLoad, Call, PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt, seq
from weft.tir.transform.gpu import thread_axes

# A buffer that the threads of a block share is in shared memory, up to this size.
MAX_IMPLICIT_SHARED = 16 * 1024
MAX_HOST_ITERATIONS = 256


def unify_threads(func: PrimFunc) -> PrimFunc:
    """Give each launch one nest of thread loops.

    for blockIdx.x in blockIdx.x(4):
        S = allocate(float32[64] shared)
        for threadIdx.x in threadIdx.x(64):
            S[threadIdx.x] = A[blockIdx.x * 64 + threadIdx.x]
        for threadIdx.x in threadIdx.x(64):
            B[blockIdx.x * 64 + threadIdx.x] = S[63 - threadIdx.x]
    =>
    for blockIdx.x in blockIdx.x(4):
        for threadIdx.x in threadIdx.x(64):
            S = allocate(float32[64] shared)
            S[threadIdx.x] = A[blockIdx.x * 64 + threadIdx.x]
            B[blockIdx.x * 64 + threadIdx.x] = S[63 - threadIdx.x]
    """
    return func.replace(body=_host(func, func.body))


def _host(func: PrimFunc, node: Stmt) -> Stmt:
    """Statements outside of blocks."""
    if isinstance(node, s.SeqStmt | s.AttrStmt) or (
            isinstance(node, s.Allocate) and node.buffer.scope == "global"
            and not thread_axes.is_thread(node.body)):
        return visitor.map_stmts(node, lambda inner: _host(func, inner))
    if not thread_axes.has_bound(node):
        return node
    if isinstance(node, s.For) and not thread_axes.is_bound(node) and _has_blocks(node.body):
        count = int_value(node.extent)
        if count is None or count > MAX_HOST_ITERATIONS:
            raise LoweringError("a serial loop around the blocks of a kernel", where=func.name,
                                got=f"{node.extent} iterations of {node.loop_var.name}",
                                expected=f"a constant of at most {MAX_HOST_ITERATIONS}",
                                help="bind a loop outside of it, so that one launch runs it")
        return seq([_host(func, visitor.substitute(node.body, {node.loop_var: node.min + i}))
                    for i in range(count)])
    return _Launch(func, node).unified()


def _has_blocks(node: Stmt) -> bool:
    return any(map(thread_axes.is_block, visitor.post_order_stmts(node)))


@dataclass(frozen=True, slots=True)
class _Path:
    """The context of a statement: the tags of the thread loops around it, and its moved conditions.

    A tag occurs twice if the stage of an inner loop is computed in a loop of the outer stage.
    """

    tags: tuple[str, ...] = ()
    conditions: tuple[PrimExpr, ...] = ()

    def inside(self, tag: str | None = None, *conditions: PrimExpr) -> _Path:
        tags = self.tags if tag is None else (*self.tags, tag)
        return _Path(tags, (*self.conditions, *conditions))


class _Launch:
    def __init__(self, func: PrimFunc, node: Stmt) -> None:
        self.func, self.node = func, node
        loops = [n for n in visitor.post_order_stmts(node) if isinstance(n, s.For)
                 and thread_axes.is_bound(n)]
        self.extents = self._extents(loops)
        self.vars = {tag: Var(tag) for tag in self.extents}
        self.threads = [self.vars[t] for t in thread_axes.THREAD_TAGS if t in self.vars]
        # The numbers of thread loops and of conditions around the allocation of each buffer.
        self.owned: dict[Buffer, tuple[int, int]] = {}

    def _extents(self, loops: list[s.For]) -> dict[str, PrimExpr]:
        found: dict[str, PrimExpr] = {}
        for loop in loops:
            tag, extent = loop.thread_tag or "", loop.extent
            old = found.get(tag)
            if old is None or old is extent:
                found[tag] = extent
                continue
            a, b = int_value(old), int_value(extent)
            if a is None or b is None or tag in thread_axes.BLOCK_TAGS:
                raise LoweringError(f"loops of different extents are bound to {tag}",
                                    where=self.func.name, got=f"{old} and {extent}",
                                    help="bind loops of equal constant extents")
            found[tag] = const(max(a, b))
        return found

    def unified(self) -> Stmt:
        body = self._visit(self.node, _Path())
        if "threadIdx.x" not in self.vars:
            self.vars["threadIdx.x"], self.extents["threadIdx.x"] = Var("threadIdx.x"), const(1)
        for tag in thread_axes.THREAD_TAGS:
            if tag in self.vars:
                body = thread_axes.bound_loop(self.vars[tag], self.extents[tag], tag, body)
        if "blockIdx.x" not in self.vars:
            self.vars["blockIdx.x"], self.extents["blockIdx.x"] = Var("blockIdx.x"), const(1)
        for tag in thread_axes.BLOCK_TAGS:
            if tag in self.vars:
                body = thread_axes.bound_loop(self.vars[tag], self.extents[tag], tag, body)
        return body

    def _visit(self, node: Stmt, path: _Path) -> Stmt:
        if path.conditions and isinstance(node, s.For | s.SeqStmt | s.LetStmt | s.IfThenElse) \
                and not self._meets(node):
            # No thread waits for another one in this statement, so it is tested as a whole.
            starts = {self._first_condition(n) for n in visitor.post_order_stmts(node)
                      if isinstance(n, s.BufferStore | s.Evaluate)}
            if len(starts) == 1:
                conditions = path.conditions[starts.pop():]
                return self._guarded(self._visit(node, _Path(path.tags)), list(conditions))
        match node:
            case s.For() if thread_axes.is_bound(node):
                return self._bound(node, path)
            case s.IfThenElse():
                return self._branch(node, path)
            case s.Allocate():
                return self._allocate(node, path)
            case s.BufferStore():
                return self._guarded(node, self._conditions(node, path))
            case s.Evaluate():
                if _is_barrier(node):
                    return node
                return self._guarded(node, self._conditions(node, path))
        return visitor.map_stmts(node, lambda inner: self._visit(inner, path))

    def _bound(self, loop: s.For, path: _Path) -> Stmt:
        tag = loop.thread_tag or ""
        var = self.vars[tag]
        body = visitor.substitute(loop.body, {loop.loop_var: loop.min + var})
        if tag in thread_axes.BLOCK_TAGS:
            if any(isinstance(n, s.For) and n.thread_tag == tag
                   for n in visitor.post_order_stmts(body)):
                raise LoweringError(f"nested loops are bound to {tag}", where=self.func.name,
                                    got=loop.loop_var.name,
                                    help="a stage inside of a block is shared among its threads")
            return self._visit(body, path)
        shorter = () if loop.extent is self.extents[tag] else (var < loop.extent,)
        if shorter and not self._meets(body):
            return s.IfThenElse(shorter[0], self._visit(body, path.inside(tag)))
        return self._visit(body, path.inside(tag, *shorter))

    def _branch(self, node: s.IfThenElse, path: _Path) -> Stmt:
        if not visitor.mentions(node.condition, *self.threads) or not self._meets(node):
            return visitor.map_stmts(node, lambda inner: self._visit(inner, path))
        then = self._visit(node.then_case, path.inside(None, node.condition))
        if node.else_case is None:
            return then
        other = self._visit(node.else_case, path.inside(None, x.not_(node.condition)))
        return seq([then, other])

    def _meets(self, node: Stmt) -> bool:
        """Whether the threads of the block work together in ``node``."""
        return any(thread_axes.is_thread(n)
                   or (isinstance(n, s.Allocate) and n.buffer.scope == "shared")
                   or _is_barrier(n) or _is_reduction(n) for n in visitor.post_order_stmts(node))

    def _allocate(self, node: s.Allocate, path: _Path) -> Stmt:
        buffer, body = node.buffer, node.body
        is_of_block = not path.tags and any(map(thread_axes.is_thread,
                                                visitor.post_order_stmts(body)))
        if buffer.scope == "global" and is_of_block:
            buffer = self._shared_form(buffer)
            body = visitor.replace_buffers(body, {node.buffer: buffer})
        self.owned[buffer] = len(path.tags), len(path.conditions)
        return s.Allocate(buffer, self._visit(body, path))

    def _shared_form(self, buffer: Buffer) -> Buffer:
        size = buffer.static_bytes
        if size is None or size > MAX_IMPLICIT_SHARED:
            raise LoweringError(
                f"buffer {buffer.name} of a block is too large for shared memory",
                where=self.func.name, got=f"{size} bytes" if size else "a symbolic size",
                expected=f"at most {MAX_IMPLICIT_SHARED} bytes",
                help="compute the stage at the root, or set_scope('shared') with smaller tiles")
        return dataclasses.replace(buffer, scope="shared", uid=next_uid())

    def _conditions(self, node: s.BufferStore | s.Evaluate, path: _Path) -> list[PrimExpr]:
        """The conditions of a statement; the first of several equal threads runs it."""
        if isinstance(node, s.BufferStore) and self._is_private(node.buffer):
            reads = [e for root in visitor.exprs_of(node) for e in visitor.post_order(root)
                     if type(e) is BufferLoad and not self._is_private(e.buffer)]
            return list(path.conditions) if reads else []
        conditions = path.conditions[self._first_condition(node):]
        if isinstance(node, s.Evaluate):
            return list(conditions)
        inside = path.tags[self.owned.get(node.buffer, (0, 0))[0]:]
        alike = [tag for tag in thread_axes.THREAD_TAGS if tag in self.extents and tag not in inside
                 and int_value(self.extents[tag]) != 1]
        return [*conditions, *(x.EQ(self.vars[tag], const(0)) for tag in alike)]

    def _first_condition(self, node: Stmt) -> int:
        """The number of leading conditions that do not apply to a statement.

        All threads compute a shared buffer together, also threads whose own result fails a
        condition around the allocation.
        """
        if isinstance(node, s.BufferStore):
            written = [node.buffer] if not self._is_private(node.buffer) else []
        else:
            written = [e.buffer for root in visitor.exprs_of(node) for e in visitor.post_order(root)
                       if type(e) is BufferLoad and e.buffer.scope == "shared"]
        return max((self.owned.get(b, (0, 0))[1] for b in written), default=0)

    def _is_private(self, buffer: Buffer) -> bool:
        """Whether each thread has a private copy of the buffer."""
        return buffer.scope == "local" or (buffer in self.owned and buffer.scope != "shared")

    def _guarded(self, node: Stmt, conditions: list[PrimExpr]) -> Stmt:
        return s.IfThenElse(x.all_of(*conditions), node) if conditions else node


def _is_barrier(node: Stmt) -> bool:
    return isinstance(node, s.Evaluate) and type(node.value) is Call \
        and node.value.name == "barrier"


def _is_reduction(node: Stmt) -> bool:
    return isinstance(node, s.AttrStmt) and node.key == CROSS_THREAD_REDUCE
