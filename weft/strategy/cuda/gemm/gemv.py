"""Products with few rows: a warp for a few columns, whose lanes share K.

Each lane reads 16 bytes of each column and row at a time; the lanes' sums are added by shuffles. It
needs both operands contiguous along K, as weights of dense layers are.
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
    lanes_at,
    registers,
    serial,
    store_lanes,
)
from weft.strategy.cuda.gemm.operand import Operand, as_vector
from weft.support.dataclass import dataclass
from weft.tir import Broadcast, Buffer, BufferLoad, PrimExpr, all_of, const, if_then_else
from weft.tir.stmt import Allocate, BufferStore, Stmt, seq

MAX_ROWS = 8


@dataclass(frozen=True, slots=True)
class GemvTile:
    """``warps`` warps per block; each sums ``rows`` x ``columns`` elements, ``lanes`` per load."""

    rows: int
    columns: int
    lanes: int
    warps: int = 4
    in_flight: int = 4  # loads of a lane that wait at the same time

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def depth(self) -> int:
        """Elements of K that a warp reads at a time."""
        return WARP * self.lanes

    @property
    def bm(self) -> int:
        return self.rows

    @property
    def bn(self) -> int:
        return self.warps * self.columns

    def __str__(self) -> str:
        return (f"a warp for {self.rows} x {self.columns} elements, {self.lanes} products per "
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
        """One block; ``work.steps`` counts loads of ``depth`` elements of K by a warp."""
        tile, lanes = self.tile, self.tile.lanes
        count = tile.rows * tile.columns
        parts = registers("parts", count * lanes, self.accumulator)
        sums = registers("sums", count, self.accumulator)
        a = registers("a_values", tile.rows * lanes, self.accumulator)
        b = registers("b_values", tile.columns * lanes, self.accumulator)
        column = thread // WARP * tile.columns

        def step(number: PrimExpr) -> Stmt:
            k = (work.first_step + number) * tile.depth + thread % WARP * lanes
            return Allocate(a, Allocate(b, seq([
                *(self._read(a, i, self.a, work, work.row + i, k) for i in range(tile.rows)),
                *(self._read(b, j, self.b, work, work.column + column + j, k)
                  for j in range(tile.columns)),
                *(store_lanes(parts, at, lanes_at(parts, at, lanes)
                              + lanes_at(a, i * lanes, lanes) * lanes_at(b, j * lanes, lanes))
                  for i in range(tile.rows) for j in range(tile.columns)
                  for at in [(i * tile.columns + j) * lanes]),
            ])))

        body = seq([
            fill(parts, count * lanes, const(0, self.accumulator)),
            serial("step", work.steps, step),
            *(self._total(parts, sums, n) for n in range(count)),
            work.finish(self._sums(sums, column, thread)),
        ])
        return Allocate(parts, Allocate(sums, body))

    def _read(self, values: Buffer, number: int, operand: Operand, work: Work, outer: PrimExpr,
              k: PrimExpr) -> Stmt:
        """Neighbours along K in the type of the sums; zeros beyond the ends."""
        lanes = self.tile.lanes
        condition, load = operand.load_at(work.z, outer, k)
        inside = work.analyzer.simplify(all_of(operand.inside(outer, k), condition))
        whole = as_vector(load, lanes) if isinstance(load, BufferLoad) else None
        if whole is not None:
            zero = const(0, operand.dtype)
            value = if_then_else(inside, whole, zero if lanes == 1 else Broadcast(zero, lanes))
            return store_lanes(values, number * lanes,
                               value.astype(self.accumulator.vector(lanes)))
        return seq([
            BufferStore(values, operand.guarded(work.z, outer, k + n, work.analyzer)
                        .astype(self.accumulator), (const(number * lanes + n),))
            for n in range(lanes)])

    def _total(self, parts: Buffer, sums: Buffer, number: int) -> Stmt:
        """Add the sums of the lanes of a register, then those of the threads of the warp."""
        lanes = self.tile.lanes
        total: PrimExpr = parts.load(number * lanes)
        for n in range(1, lanes):
            total = total + parts.load(number * lanes + n)
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
        groups = tuple((const(i), column, i * tile.columns) for i in range(tile.rows))
        return Sums(sums, tile.columns, groups, (thread % WARP).equal(0))
