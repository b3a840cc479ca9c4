"""Symmetric matrices as ``Q T Q'`` with T tridiagonal, by Householder reflections.

Golub and Van Loan, Matrix Computations, 8.3.1. The matrix is stored whole, so that its product with
a vector and its update go along rows.
"""

from __future__ import annotations

import operator

from weft import te
from weft.ir.dtype import float64
from weft.tir import Buffer, PrimExpr, as_prim, const, maximum, not_, select
from weft.topi.linalg.program import (
    LANES,
    Program,
    Running,
    lane,
    lanes,
    load_part,
    padded,
    read_columns,
    spread,
    stride,
)
from weft.topi.linalg.reflections import Reflections, dots

# Squares of larger numbers overflow, those of smaller ones vanish: matrices are scaled before.
_LARGE, _FACTOR = 1e100, 2.0**-400


def read_symmetric(program: Program, source: Buffer, matrix: PrimExpr, work: Buffer) -> PrimExpr:
    """Read a matrix from its lower triangle; returns the power of 2 by which it is multiplied."""
    size = source.shape[1]
    read_columns(program, source, matrix, work)
    with program.loop(size, name="j") as j, program.loop(size, step=LANES, name="i") as i:
        row = load_part(source, (matrix, j), i, size)
        own = select(lanes(i) <= spread(j), row, work.load(j, lanes(i)))
        program.store(work, own, j, lanes(i))
    return scale_rows(program, work, size, size)


def scale_rows(program: Program, work: Buffer, rows: PrimExpr, length: PrimExpr) -> PrimExpr:
    """Multiply very large and very small matrices by a power of 2, which is returned."""
    most = Running(program, "most", 0.0)
    with program.loop(rows, name="j") as j, program.loop(length, step=LANES, name="i") as i:
        own = te.abs(work.load(j, lanes(i)))
        most.put(maximum(most.get(), own))
    largest = most.reduced(maximum)
    small = select(largest < 1.0 / _LARGE, const(1.0 / _FACTOR, float64), const(1.0, float64))
    factor = program.let(select(largest > _LARGE, const(_FACTOR, float64), small), "factor")
    with program.when(not_(factor.equal(1.0))), program.loop(rows, name="j") as j, \
            program.loop(length, step=LANES, name="i") as i:
        program.store(work, work.load(j, lanes(i)) * spread(factor), j, lanes(i))
    return factor


class Tridiagonal:
    """The reduction of a symmetric ``work`` matrix: its rows keep the vectors of reflections."""

    def __init__(self, program: Program, work: Buffer, size: PrimExpr) -> None:
        self.program, self.work, self.size = program, work, size
        length = padded(size) + LANES
        self.diagonal = program.memory("diagonal", length)
        self.subdiagonal = program.memory("subdiagonal", length)
        self.scales = program.memory("scales", length)
        self.product = program.memory("product", length)
        self.block = Reflections(program, size, stride(size))

    def reduce(self) -> None:
        program, work, size = self.program, self.work, self.size
        with program.loop(size, name="k") as k:
            program.store(self.diagonal, work.load(k, k), k)
            program.store(self.subdiagonal, 0.0, k)
            with program.when(k + 1 < size):
                start = program.let((k + 1) // LANES * LANES, "start")
                scale = self.block.reflect(work, k, k + 1, start, as_prim(0))
                program.store(self.subdiagonal, work.load(k, k + 1), k)
                program.store(self.scales, scale, k)
                with program.when(not_(scale.equal(0.0))):
                    self._multiply(k, start, scale)
                    self._update(start)

    def _vector(self, i: PrimExpr) -> PrimExpr:
        return self.block.vectors.load(0, lanes(i))

    def _multiply(self, k: PrimExpr, start: PrimExpr, scale: PrimExpr) -> None:
        """``w = p - (s p'v / 2) v`` with ``p = s A v``."""
        program, total = self.program, Running(self.program, "total", 0.0)
        with program.loop(self.size, start, step=LANES, name="j") as j:
            found = dots(program, [(self.block.vectors, as_prim(0))], self.work, j, start,
                         self.size)[0]
            part = program.let(select(lanes(j) > spread(k), found * spread(scale), spread(0.0)))
            program.store(self.product, part, lanes(j))
            total.put(total.get() + part * self._vector(j))
        share = program.let(spread(total.reduced(operator.add) * scale * 0.5), "share")
        with program.loop(self.size, start, step=LANES, name="j") as j:
            program.store(self.product, self.product.load(lanes(j)) - share * self._vector(j),
                          lanes(j))

    def _update(self, start: PrimExpr) -> None:
        """``A -= v w' + w v'``."""
        program, work = self.program, self.work
        with program.loop(self.size, start, step=LANES, name="j") as j:
            v, w = program.let(self._vector(j)), program.let(self.product.load(lanes(j)))
            pairs = [(program.let(lane(v, c)), program.let(lane(w, c))) for c in range(LANES)]
            with program.loop(self.size, start, step=LANES, name="i") as i:
                along, beside = program.let(self._vector(i)), program.let(
                    self.product.load(lanes(i)))
                for c, (own, other) in enumerate(pairs):
                    old = work.load(j + c, lanes(i))
                    program.store(work, old - own * beside - other * along, j + c, lanes(i))

    def vectors(self, target: Buffer) -> None:
        """The columns of Q as rows of ``target``."""
        self.block.orthogonal(self.work, self.scales, maximum(self.size - 1, 0), 1, target,
                              self.size)
