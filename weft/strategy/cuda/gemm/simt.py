"""GEMM on the ordinary cores: register tiles of each thread, double-buffered shared memory.

The blocking is that of CUTLASS's SIMT kernels: a warp is 4 x 8 threads, each with ``tm`` x ``tn``
accumulators in 4 x 4 fragments. While a block multiplies one k-tile of ``bk``, it loads the next
one into registers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.ir import DType
from weft.strategy.cuda.gemm.frame import (
    WARP,
    Sums,
    Work,
    barrier,
    fill,
    load_vector,
    registers,
    serial,
    shared_memory,
    store_vector,
)
from weft.strategy.cuda.gemm.operand import MN_MAJOR, Operand
from weft.strategy.cuda.gemm.staging import Staging, TileLayout, TileOrigin
from weft.support.dataclass import dataclass
from weft.tir import Allocate, Broadcast, Buffer, ForKind, IfThenElse, PrimExpr, Stmt, const, seq

BLOCK = 4  # rows, and columns, of a fragment
WARP_ROWS, WARP_COLUMNS = 4, 8


@dataclass(frozen=True, slots=True)
class SimtTile:
    """``warps_m`` x ``warps_n`` warps, ``tm`` x ``tn`` sums per thread, ``bk`` of K at a time."""

    warps_m: int
    warps_n: int
    tm: int
    tn: int
    bk: int = 8

    @property
    def threads(self) -> int:
        return self.warps_m * self.warps_n * WARP

    @property
    def bm(self) -> int:
        return self.warps_m * WARP_ROWS * self.tm

    @property
    def bn(self) -> int:
        return self.warps_n * WARP_COLUMNS * self.tn

    def shared_bytes(self, itemsize: int) -> int:
        return 2 * self.bk * (self.bm + self.bn + 2 * BLOCK) * itemsize

    def __str__(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk} in {self.threads} threads, {self.tm}x{self.tn} each"


@dataclass(frozen=True, slots=True, eq=False)
class SimtLoops:
    """The accumulators of one block of C; elements are converted before shared memory."""

    tile: SimtTile
    a: Operand
    b: Operand
    dtype: DType  # of the sums

    @property
    def threads(self) -> int:
        return self.tile.threads

    def shared(self) -> tuple[Buffer, ...]:
        return tuple(
            shared_memory(name, 2 * self._layout(size, operand).elements, self.dtype)
            for name, size, operand in (("a_tile", self.tile.bm, self.a),
                                        ("b_tile", self.tile.bn, self.b)))

    def _layout(self, outer: int, operand: Operand) -> TileLayout:
        # Transposing stores of neighbours along K would hit one bank without the padding.
        padding = 0 if operand.major == MN_MAJOR else BLOCK
        return TileLayout(MN_MAJOR, self.tile.bk, outer, self.dtype.itemsize, padding)

    def block(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:
        """One block: the loop over K, then ``work.finish`` of the sums."""
        tile = self.tile
        sums = registers("sums", tile.tm * tile.tn, self.dtype)
        stagings = [
            Staging(_short_vectors(operand), outer, tile.bk, self._layout(outer, operand),
                    tile.threads, work.analyzer)
            for operand, outer in ((self.a, tile.bm), (self.b, tile.bn))]
        prefetched = [registers(f"next_{n}", s.registers, s.operand.dtype)
                for n, s in zip("ab", stagings, strict=True)]
        outers = (work.m, work.n)

        def origin(side: int, k_tile: PrimExpr) -> TileOrigin:
            return TileOrigin(work.z, outers[side], (work.first_k_tile + k_tile) * tile.bk)

        def load(k_tile: PrimExpr) -> Stmt:
            return seq([s.load(r, origin(n, k_tile), thread)
                        for n, (s, r) in enumerate(zip(stagings, prefetched, strict=True))])

        def store(slot: PrimExpr) -> Stmt:
            return seq([s.store(r, m, slot * s.layout.elements, thread)
                        for s, r, m in zip(stagings, prefetched, shared, strict=True)])

        def step(number: PrimExpr) -> Stmt:
            more = number + 1 < work.k_tiles
            return seq([
                IfThenElse(more, load(number + 1)),
                self._multiply(sums, shared, stagings, number % 2, thread),
                IfThenElse(more, store((number + 1) % 2)),
                barrier(),
            ])

        body = seq([
            fill(sums, tile.tm * tile.tn, const(0, self.dtype)),
            load(const(0)), store(const(0)), barrier(),
            serial("step", work.k_tiles, step),
            work.finish(self._sums(sums, thread)),
        ])
        for memory in (*prefetched, sums):
            body = Allocate(memory, body)
        return body

    def _position(self, thread: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """M and N of a thread's first element in the tile."""
        tile, warp, lane = self.tile, thread // WARP, thread % WARP
        row = warp // tile.warps_n * (WARP_ROWS * tile.tm) + lane // WARP_COLUMNS * BLOCK
        column = warp % tile.warps_n * (WARP_COLUMNS * tile.tn) + lane % WARP_COLUMNS * BLOCK
        return row, column

    def _multiply(
        self, sums: Buffer, shared: Sequence[Buffer], stagings: Sequence[Staging],
        slot: PrimExpr, thread: PrimExpr,
    ) -> Stmt:
        """Add the products of a tile."""
        tile = self.tile
        row, column = self._position(thread)
        a = registers("a_values", tile.tm, self.dtype)
        b = registers("b_values", tile.tn, self.dtype)

        def read(side: int, values: Buffer, first: PrimExpr, stride: int, k: PrimExpr) -> Stmt:
            staging = stagings[side]
            return seq([
                store_vector(values, n * BLOCK, load_vector(
                    shared[side], slot * staging.layout.elements
                    + staging.layout.offset(first + n * stride, k), BLOCK))
                for n in range((tile.tm, tile.tn)[side] // BLOCK)])

        def one(k: PrimExpr) -> Stmt:
            return seq([
                read(0, a, row, WARP_ROWS * BLOCK, k),
                read(1, b, column, WARP_COLUMNS * BLOCK, k),
                *(store_vector(
                    sums, i * tile.tn + j,
                    load_vector(sums, i * tile.tn + j, BLOCK)
                    + Broadcast(a.load(i), BLOCK) * load_vector(b, j, BLOCK))
                  for i in range(tile.tm) for j in range(0, tile.tn, BLOCK)),
            ])

        return Allocate(a, Allocate(b, serial("k", tile.bk, one, ForKind.UNROLLED)))

    def _sums(self, sums: Buffer, thread: PrimExpr) -> Sums:
        """Groups of neighbours along a row of C, with their position in the tile."""
        tile = self.tile
        row, column = self._position(thread)
        groups = []
        for i in range(tile.tm):
            for j in range(0, tile.tn, BLOCK):
                at_row = row + (i // BLOCK * WARP_ROWS * BLOCK + i % BLOCK)
                at_column = column + j // BLOCK * WARP_COLUMNS * BLOCK
                groups.append((at_row, at_column, i * tile.tn + j))
        return Sums(sums, BLOCK, tuple(groups))


def _short_vectors(operand: Operand) -> Operand:
    """Vectors of at most 4 elements, which fit in any tile."""
    return dataclasses.replace(operand, vector_length=min(operand.vector_length, BLOCK))
