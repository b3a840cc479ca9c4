"""Loop programs of thread blocks, for algorithms that no schedule of a compute expresses.

A block is a sequence of thread nests in a loop over blocks: the threads of one nest have finished,
and their stores to shared memory are visible, before the next nest starts. Serial loops around
nests must have the same number of iterations in all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir import int64
from weft.tir import Buffer, PrimExpr, Var, as_prim, const, floordiv
from weft.tir.row_major import element_count, unravel
from weft.tir.stmt import Allocate, For, ForKind, IfThenElse, Stmt

Index = tuple[PrimExpr, ...]


def grid(extents: Sequence[PrimExpr | int], body: Callable[[Index], Stmt]) -> Stmt:
    """One block for every index of ``extents``, the last one fastest, in a grid of one axis."""
    block = Var("block", int64)
    return For(block, const(0), element_count(extents), ForKind.THREAD_BINDING,
               body(unravel(block, extents)), "blockIdx.x")


def threads(count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """One thread nest of ``count`` threads."""
    thread = Var("thread", int64)
    return For(thread, const(0), const(count), ForKind.THREAD_BINDING, body(thread), "threadIdx.x")


def one_thread(body: Stmt) -> Stmt:
    """A nest in which the first thread works."""
    return threads(1, lambda _: body)


def elements(extents: Sequence[PrimExpr], count: int, body: Callable[[Index], Stmt]) -> Stmt:
    """A launch with one thread for every index of ``extents``, ``count`` in each block."""
    total = element_count(extents)
    blocks = floordiv(total + (count - 1), const(count))

    def block(index: Index) -> Stmt:
        def thread(t: PrimExpr) -> Stmt:
            flat = index[0] * count + t
            return IfThenElse(flat < total, body(unravel(flat, extents)))

        return threads(count, thread)

    return grid([blocks], block)


def loop(name: str, extent: PrimExpr | int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``for name in range(extent): body(name)``, in each thread or around thread nests."""
    var = Var(name, int64)
    return For(var, const(0), as_prim(extent), ForKind.SERIAL, body(var))


def unrolled(name: str, extent: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """A loop of constant extent whose indices become constants."""
    var = Var(name, int64)
    return For(var, const(0), const(extent), ForKind.UNROLLED, body(var))


def allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """``body`` with memory for ``buffers``."""
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def ceil_div(a: PrimExpr, b: int) -> PrimExpr:
    """``a / b`` rounded up."""
    return floordiv(as_prim(a) + (b - 1), const(b))
