"""The frame of a kernel: a grid of blocks, shared memory, threads, and helpers to write loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.ir import DType, int64
from weft.support.dataclass import dataclass
from weft.tir import TRUE, Analyzer, Buffer, For, Var
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, as_prim, call, const, int_value
from weft.tir.intrinsics import intrinsic
from weft.tir.stmt import Allocate, AttrStmt, BufferStore, Evaluate, ForKind, LetStmt, Stmt, seq
from weft.tir.transform.gpu.thread_sync import OWN_BARRIERS

WARP = 32
Grid: TypeAlias = "tuple[PrimExpr, ...]"


def kernel(
    grid: Grid, threads: int, shared: Sequence[Buffer],
    body: Callable[[Sequence[PrimExpr], PrimExpr], Stmt], analyzer: Analyzer,
) -> Stmt:
    """Blocks of ``threads`` threads; ``body(block indices, thread index)`` is one thread.

    ``grid`` has up to three extents, x first. ``analyzer`` learns the ranges of the indices.
    """
    blocks = [Var(f"block_{d}", int64) for d in "xyz"[:len(grid)]]
    thread = Var("thread", int64)
    analyzer.bind(thread, 0, threads)
    for var, extent in zip(blocks, grid, strict=True):
        analyzer.bind(var, 0, extent)
    indices = [const(0) if int_value(n) == 1 else v for n, v in zip(grid, blocks, strict=True)]
    whole = AttrStmt(OWN_BARRIERS, 1, body(indices, thread))
    nest: Stmt = bound(thread, const(threads), "threadIdx.x", whole)
    for memory in reversed(shared):
        nest = Allocate(memory, nest)
    for var, extent, d in zip(blocks, grid, "xyz", strict=False):
        if int_value(extent) != 1 or d == "x":
            nest = bound(var, extent, f"blockIdx.{d}", nest)
    return nest


def bound(var: Var, extent: PrimExpr, tag: str, body: Stmt) -> For:
    return For(var, const(0), extent, ForKind.THREAD_BINDING, body, thread_tag=tag)


def serial(
    name: str, extent: PrimExpr | int, body: Callable[[PrimExpr], Stmt],
    kind: ForKind = ForKind.SERIAL, start: PrimExpr | int = 0,
) -> Stmt:
    """A loop; one iteration needs none."""
    count = as_prim(extent)
    if int_value(count) == 1:
        return body(as_prim(start))
    var = Var(name, int64)
    return For(var, as_prim(start), count, kind, body(var))


def vectorized(width: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return serial("lane", width, body, ForKind.VECTORIZED)


def let(name: str, value: PrimExpr, body: Callable[[PrimExpr], Stmt], analyzer: Analyzer,
        extent: PrimExpr | int) -> Stmt:
    """``body`` of a variable with ``value``, which is known to be in ``[0, extent)``."""
    if isinstance(value, Var) or int_value(value) is not None:
        return body(value)
    var = Var(name, value.dtype)
    analyzer.bind(var, 0, extent)
    return LetStmt(var, value, body(var))


def barrier() -> Stmt:
    """Wait for all threads of the block."""
    return Evaluate(intrinsic("barrier"))


def registers(name: str, count: int, dtype: DType | str) -> Buffer:
    """Registers of a thread; indices must be constants."""
    return Buffer(name, (const(count),), DType.of(dtype), "local")


def shared_memory(name: str, count: int, dtype: DType | str, alignment: int = 128) -> Buffer:
    """Memory of a block."""
    return Buffer(name, (const(count),), DType.of(dtype), "shared", alignment=alignment)


def load_vector(memory: Buffer, start: PrimExpr | int, width: int) -> BufferLoad:
    """``width`` elements from ``start`` on."""
    return BufferLoad(memory, (_span(as_prim(start), width),))


def store_vector(memory: Buffer, start: PrimExpr | int, value: PrimExpr) -> BufferStore:
    """Store a vector from element ``start`` on."""
    return BufferStore(memory, value, (_span(as_prim(start), value.dtype.lanes),))


def _span(start: PrimExpr, width: int) -> PrimExpr:
    return start if width == 1 else Ramp(start, const(1), width)


def address(element: PrimExpr) -> PrimExpr:
    """The address of the element that a load names."""
    return call("handle", "address_of", element)


def fill(memory: Buffer, count: int, value: PrimExpr, width: int = 4) -> Stmt:
    """Registers with one value."""
    step = width if count % width == 0 else 1
    whole = value if step == 1 else Broadcast(value, step)
    return seq([store_vector(memory, i, whole) for i in range(0, count, step)])


def ceil_div(size: PrimExpr, step: int) -> PrimExpr:
    """``size / step`` rounded up."""
    known = int_value(size)
    return const(-(-known // step)) if known is not None else (size + (step - 1)) // step


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The accumulators of one thread, in groups of ``width`` neighbours along a row of C.

    A group is its M and first N in the tile, and the register of its first accumulator. ``owns``
    says whether the thread stores them: other threads may have the same sums.
    """

    registers: Buffer
    width: int
    groups: tuple[tuple[PrimExpr, PrimExpr, int], ...]
    owns: PrimExpr = TRUE


Finish: TypeAlias = Callable[[Sums], Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The tile of C of matrix ``z`` whose first element is (``m``, ``n``).

    It sums ``k_tiles`` tiles of K from number ``first_k_tile`` on; ``finish`` is the epilogue.
    """

    z: PrimExpr
    m: PrimExpr
    n: PrimExpr
    first_k_tile: PrimExpr
    k_tiles: PrimExpr
    finish: Finish
    analyzer: Analyzer
