"""Matrices as ``U B V'`` with B upper bidiagonal (Golub and Van Loan, Matrix Computations, 5.4.8).

Reflections from the left take columns, those from the right rows; both are applied along the
columns, which are the contiguous rows of the work matrix.
"""

from __future__ import annotations

from weft.tir import Buffer, PrimExpr, as_prim, maximum, not_
from weft.topi.linalg.program import LANES, Program, lanes, padded, spread, stride
from weft.topi.linalg.reflections import Reflections

_SUMS = 4  # that a product with a vector adds in parallel


class Bidiagonal:
    """The reduction of ``work``, column by column, whose rows keep the left vectors."""

    def __init__(self, program: Program, work: Buffer, rows: PrimExpr, columns: PrimExpr) -> None:
        self.program, self.work, self.rows, self.columns = program, work, rows, columns
        length = padded(columns) + LANES
        self.diagonal = program.memory("diagonal", length)
        self.superdiagonal = program.memory("superdiagonal", length)
        self.left_scales = program.memory("left.scales", length)
        self.right_scales = program.memory("right.scales", length)
        self.product = program.memory("product", stride(rows))
        self.right_rows = program.memory("right.rows", padded(columns), stride(columns))
        self.left = Reflections(program, rows, stride(rows))
        self.right = Reflections(program, columns, stride(columns))

    def reduce(self) -> None:
        program, work = self.program, self.work
        zero = as_prim(0)
        with program.loop(self.columns, name="k") as k:
            start = program.let(k // LANES * LANES, "start")
            scale = self.left.reflect(work, k, k, start, zero)
            program.store(self.left_scales, scale, k)
            program.store(self.diagonal, work.load(k, k), k)
            program.store(self.superdiagonal, 0.0, k)
            with program.when(k + 1 < self.columns):
                after = program.let((k + 1) // LANES * LANES, "after")
                with program.when(not_(scale.equal(0.0))), \
                        program.loop(self.columns, after, step=LANES, name="j") as j:
                    self.left.apply_one(work, j, k, start, zero, scale)
                self._reduce_row(k, after)

    def _reduce_row(self, k: PrimExpr, start: PrimExpr) -> None:
        program = self.program
        with program.loop(padded(self.columns), start, name="j") as j:
            program.store(self.right_rows, self.work.load(j, k), k, j)
        scale = self.right.reflect(self.right_rows, k, k + 1, start, as_prim(0))
        program.store(self.right_scales, scale, k)
        program.store(self.superdiagonal, self.right_rows.load(k, k + 1), k)
        with program.when(not_(scale.equal(0.0))):
            self._multiply(start, scale)
            self._update(start)

    def _multiply(self, start: PrimExpr, scale: PrimExpr) -> None:
        """``y = s A v``."""
        program, every = self.program, lanes(0)
        with program.loop(self.rows, start, step=LANES, name="i") as i:
            sums = program.memory("sums", _SUMS, LANES, scope="local")
            for n in range(_SUMS):
                program.store(sums, spread(0.0), n, every)
            with program.loop(self.columns, start, step=LANES, name="j") as j:
                for c in range(LANES):
                    factor = spread(self.right.vectors.load(0, j + c))
                    value = sums.load(c % _SUMS, every) + factor * self.work.load(j + c, lanes(i))
                    program.store(sums, value, c % _SUMS, every)
            total: PrimExpr = sums.load(0, every)
            for n in range(1, _SUMS):
                total = total + sums.load(n, every)
            program.store(self.product, total * spread(scale), lanes(i))

    def _update(self, start: PrimExpr) -> None:
        """``A -= y v'``."""
        program = self.program
        with program.loop(self.columns, start, step=LANES, name="j") as j:
            factors = [program.let(spread(self.right.vectors.load(0, j + c)), "factor")
                       for c in range(LANES)]
            with program.loop(self.rows, start, step=LANES, name="i") as i:
                y = program.let(self.product.load(lanes(i)), "y")
                for c, factor in enumerate(factors):
                    old = self.work.load(j + c, lanes(i))
                    program.store(self.work, old - factor * y, j + c, lanes(i))

    def vectors(self, left: Buffer, count: PrimExpr, right: Buffer) -> None:
        """The first ``count`` columns of U and those of V as rows."""
        self.left.orthogonal(self.work, self.left_scales, self.columns, 0, left, count)
        self.right.orthogonal(self.right_rows, self.right_scales, maximum(self.columns - 1, 0), 1,
                              right, self.columns)
