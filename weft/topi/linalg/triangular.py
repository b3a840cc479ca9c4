"""Triangular systems: blocks of eight rows are solved in registers, a tile of right sides at once.

What the rows of a block take from the rows that are solved already is a matrix product (Golub and
Van Loan, Matrix Computations, 3.1.4).
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64
from weft.tir import Buffer, PrimExpr, as_prim, int_value
from weft.tir.stmt import Stmt
from weft.topi.linalg.program import (
    LANES,
    Program,
    is_multiple,
    load_part,
    over_batch,
    spread,
    store_part,
)
from weft.topi.linalg.registers import extern
from weft.topi.linalg.update import Tile
from weft.topi.upcast import converted


def triangular_solve(a: te.Tensor, b: te.Tensor, *, lower: bool, unit: bool) -> te.Tensor:
    """``x`` with ``a x = b``; ``unit`` assumes a unit diagonal."""
    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        return _Solve(inputs[0], inputs[1], outputs[0], lower, unit).statement()

    size, width = (int_value(s) or 0 for s in b.shape[1:])
    return extern([b.shape], [converted(a, float64), b], build, [b.dtype], "triangular_solve",
                  size * size * width)[0]


class _Solve:
    def __init__(self, a: Buffer, b: Buffer, x: Buffer, lower: bool, unit: bool) -> None:
        self.a, self.b, self.x, self.lower, self.unit = a, b, x, lower, unit
        self.program = Program()

    def statement(self) -> Stmt:
        program = self.program
        batch, size, width = self.b.shape
        work = (int_value(size) or 64) ** 2 * (int_value(width) or 64)
        vectors = next((v for v in (3, 2) if is_multiple(width, v * LANES)),
                       1 if (int_value(width) or LANES) <= LANES else 2)
        columns = vectors * LANES
        with over_batch(program, batch, work) as matrix:
            whole = program.let(size // LANES * LANES, "whole")
            with program.tiles(width, as_prim(0), columns) as column:
                solved = program.memory("solved", size, columns)
                for begin, end, height in ((as_prim(0), whole, LANES), (whole, size, 1)):
                    with program.loop(end, begin, step=height, name="step") as step:
                        row = step if self.lower else size - height - step
                        self._block(solved, matrix, program.let(row, "row"), column, height,
                                    vectors)
        return program.statement()

    def _block(self, solved: Buffer, matrix: PrimExpr, row: PrimExpr, column: PrimExpr,
               height: int, vectors: int) -> None:
        """Solve ``height`` rows of a tile of columns, of which ``solved`` has the rows before."""
        program, width = self.program, self.b.shape[2]
        tile = Tile(program, solved, row, as_prim(0), height, vectors)
        for j in range(height):
            for v in range(vectors):
                tile.put(load_part(self.b, (matrix, row + j), column + v * LANES, width,
                                   whole=vectors * LANES), j, v)
        before = (as_prim(0), row) if self.lower else (row + height, self.b.shape[1])
        tile.subtract(solved, *before, lambda j, k: self.a.load(matrix, row + j, k))
        for step in range(height):
            k = step if self.lower else height - 1 - step
            if not self.unit:
                pivot = program.let(spread(self.a.load(matrix, row + k, row + k)), "pivot")
                for v in range(vectors):
                    tile.put(tile.get(k, v) / pivot, k, v)
            for j in range(k + 1, height) if self.lower else range(k):
                factor = program.let(spread(self.a.load(matrix, row + j, row + k)), "factor")
                for v in range(vectors):
                    tile.put(tile.get(j, v) - factor * tile.get(k, v), j, v)
        tile.save()
        for j in range(height):
            for v in range(vectors):
                store_part(program, self.x, tile.get(j, v), (matrix, row + j),
                           column + v * LANES, width, whole=vectors * LANES)
