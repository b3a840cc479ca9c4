"""The update ``c -= b a`` of a matrix product, in tiles of registers."""

from __future__ import annotations

from collections.abc import Callable

from weft.tir import Buffer, PrimExpr
from weft.topi.linalg.program import LANES, Program, lanes, spread
from weft.topi.linalg.registers import rows_at_a_time


class Tile:
    """``height`` rows by some vectors of a work matrix, in registers.

    Eight sums of one vector each already keep two multiply-adds a cycle of four cycles busy. Where
    the CPU has no registers for them, an update takes some of the rows at a time.
    """

    def __init__(self, program: Program, matrix: Buffer, row: PrimExpr, at: PrimExpr,
                 height: int, vectors: int = 1) -> None:
        self.program, self.matrix, self.row, self.at = program, matrix, row, at
        self.height, self.vectors = height, vectors
        self.registers = program.memory("tile", height, vectors * LANES, scope="local")

    def get(self, j: int, v: int) -> PrimExpr:
        return self.registers.load(j, lanes(v * LANES))

    def put(self, value: PrimExpr, j: int, v: int) -> None:
        self.program.store(self.registers, value, j, lanes(v * LANES))

    def load(self) -> None:
        for j in range(self.height):
            for v in range(self.vectors):
                self.put(self.matrix.load(self.row + j, lanes(self.at + v * LANES)), j, v)

    def save(self) -> None:
        for j in range(self.height):
            for v in range(self.vectors):
                self.program.store(self.matrix, self.get(j, v), self.row + j,
                                   lanes(self.at + v * LANES))

    def subtract(self, a: Buffer, first: PrimExpr, last: PrimExpr,
                 factor: Callable[[int, PrimExpr], PrimExpr]) -> None:
        """Subtract ``factor(j, k) a[k, at]`` from row ``j`` for ``first <= k < last``."""
        program, rows = self.program, rows_at_a_time()
        for start in range(0, self.height, rows):
            with program.loop(last, first, name="k") as k:
                vectors = [program.let(a.load(k, lanes(self.at + v * LANES)), "a")
                           for v in range(self.vectors)]
                for j in range(start, min(start + rows, self.height)):
                    value = program.let(spread(factor(j, k)), "b")
                    for v, vector in enumerate(vectors):
                        self.put(self.get(j, v) - vector * value, j, v)
