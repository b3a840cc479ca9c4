"""GEMV and GEMM of small M: each warp computes a few columns of C, and its lanes divide K.

A lane reads vectors of up to 16 bytes of each operand row; the vector' partial sums are added by
shuffles. Both operands must be K-major, as weights of dense layers are.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.cuda.device_functions import device_function
from weft.ir import DType, float32
from weft.strategy.cuda.gemm.frame import (
    WARP,
    Sums,
    Work,
    fill,
    load_vector,
    registers,
    serial,
    store_vector,
)
from weft.strategy.cuda.gemm.operand import Operand, as_vector
from weft.support.dataclass import dataclass
from weft.tir import Broadcast, Buffer, BufferLoad, PrimExpr, all_of, const, if_then_else
from weft.tir.stmt import Allocate, BufferStore, Stmt, seq

MAX_M = 8  # accumulators of a lane: M times the columns of its warp


@dataclass(frozen=True, slots=True)
class GemvTile:
    """``warps`` warps per block; each computes ``m`` x ``n`` elements, ``vector`` of K per load."""

    m: int
    n: int
    vector: int
    warps: int = 4
    in_flight: int = 4  # loads of a lane that are outstanding at a time

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def bk(self) -> int:
        """Elements of K that a warp reads at a time."""
        return WARP * self.vector

    @property
    def bm(self) -> int:
        return self.m

    @property
    def bn(self) -> int:
        return self.warps * self.n

    def __str__(self) -> str:
        return (f"a warp for {self.m} x {self.n} elements, {self.vector} products per "
                f"lane and load")


@dataclass(frozen=True, slots=True, eq=False)
class GemvLoops:
    """The sums of one block."""

    tile: GemvTile
    a: Operand
    b: Operand
    accumulator: DType = float32

    @property
    def threads(self) -> int:
        return self.tile.threads

    def shared(self) -> tuple[Buffer, ...]:
        return ()

    def block(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:  # noqa: ARG002
        """One block; a k-tile is what a warp loads at a time."""
        tile, vector = self.tile, self.tile.vector
        count = tile.m * tile.n
        partials = registers("parts", count * vector, self.accumulator)
        sums = registers("sums", count, self.accumulator)
        a = registers("a_values", tile.m * vector, self.accumulator)
        b = registers("b_values", tile.n * vector, self.accumulator)
        column = thread // WARP * tile.n

        def step(number: PrimExpr) -> Stmt:
            k = (work.first_k_tile + number) * tile.bk + thread % WARP * vector
            return Allocate(a, Allocate(b, seq([
                *(self._read(a, i, self.a, work, work.m + i, k) for i in range(tile.m)),
                *(self._read(b, j, self.b, work, work.n + column + j, k)
                  for j in range(tile.n)),
                *(store_vector(partials, at, load_vector(partials, at, vector)
                               + load_vector(a, i * vector, vector)
                               * load_vector(b, j * vector, vector))
                  for i in range(tile.m) for j in range(tile.n)
                  for at in [(i * tile.n + j) * vector]),
            ])))

        body = seq([
            fill(partials, count * vector, const(0, self.accumulator)),
            serial("step", work.k_tiles, step),
            *(self._total(partials, sums, n) for n in range(count)),
            work.finish(self._sums(sums, column, thread)),
        ])
        return Allocate(partials, Allocate(sums, body))

    def _read(self, values: Buffer, number: int, operand: Operand, work: Work, outer: PrimExpr,
              k: PrimExpr) -> Stmt:
        """A vector along K in the type of the accumulator; zeros beyond the ends."""
        vector = self.tile.vector
        condition, load = operand.load_at(work.z, outer, k)
        inside = work.analyzer.simplify(all_of(operand.inside(outer, k), condition))
        whole = as_vector(load, vector) if isinstance(load, BufferLoad) else None
        if whole is not None:
            zero = const(0, operand.dtype)
            value = if_then_else(inside, whole, zero if vector == 1 else Broadcast(zero, vector))
            return store_vector(values, number * vector,
                               value.astype(self.accumulator.vector(vector)))
        return seq([
            BufferStore(values, operand.guarded(work.z, outer, k + n, work.analyzer)
                        .astype(self.accumulator), (const(number * vector + n),))
            for n in range(vector)])

    def _total(self, partials: Buffer, sums: Buffer, number: int) -> Stmt:
        """Add the elements of an accumulator vector, then those of all lanes of the warp."""
        vector = self.tile.vector
        total: PrimExpr = partials.load(number * vector)
        for n in range(1, vector):
            total = total + partials.load(number * vector + n)
        kind = "f32" if self.accumulator.is_float else "b32"
        shuffle = device_function(f"shfl_xor_{kind}")
        here = (const(number),)
        return seq([
            BufferStore(sums, total, here),
            *(BufferStore(sums, sums.load(number) + shuffle(
                self.accumulator, sums.load(number), const(1 << bit, "int32")), here)
              for bit in reversed(range(5))),
        ])

    def _sums(self, sums: Buffer, column: PrimExpr, thread: PrimExpr) -> Sums:
        tile = self.tile
        groups = tuple((const(i), column, i * tile.n) for i in range(tile.m))
        return Sums(sums, tile.n, groups, (thread % WARP).equal(0))
