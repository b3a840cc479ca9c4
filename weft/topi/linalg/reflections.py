"""Blocks of eight Householder reflections as one update of matrices: the compact WY form.

Of reflections ``1 - s v v'`` the product is ``1 - V T V'``, V with a vector in each column (Golub
and Van Loan, Matrix Computations, 5.2.3). T is applied by substitution with the products of the
vectors with each other, so that it is never formed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from weft import te
from weft.ir.dtype import float64
from weft.tir import (
    Buffer,
    PrimExpr,
    Var,
    all_of,
    any_of,
    as_prim,
    const,
    minimum,
    select,
)
from weft.topi.linalg.program import (
    LANES,
    Program,
    Running,
    lane,
    lanes,
    padded,
    spread,
    sum_rows,
)
from weft.topi.linalg.update import Tile

# Sums of squares outside of these bounds are computed of numbers multiplied by the factor. Sums
# that are small beside a first element above the last bound do not change it.
_SMALL, _LARGE, _FACTOR, _NEGLIGIBLE = 1e-280, 1e280, 2.0**600, 1e-100


def dots(program: Program, vectors: Sequence[tuple[Buffer, PrimExpr]], matrix: Buffer,
         row: PrimExpr, start: PrimExpr, stop: PrimExpr) -> list[PrimExpr]:
    """For each vector its products with eight rows of a work matrix, a lane for each row."""
    sums = program.memory("sums", len(vectors) * LANES, LANES, scope="local")
    every = lanes(0)
    for n in range(len(vectors) * LANES):
        program.store(sums, spread(0.0), n, every)
    with program.loop(stop, start, step=LANES, name="i") as i:
        loaded = [program.let(b.load(at, lanes(i)), "v") for b, at in vectors]
        for j in range(LANES):
            other = program.let(matrix.load(row + j, lanes(i)), "c")
            for n, vector in enumerate(loaded):
                at = n * LANES + j
                program.store(sums, sums.load(at, every) + vector * other, at, every)
    return [sum_rows(program, [sums.load(n * LANES + j, every) for j in range(LANES)])
            for n in range(len(vectors))]


class Reflections:
    """Eight vectors, 0 before and 1 at their first element, with their scales."""

    def __init__(self, program: Program, rows: PrimExpr, length: PrimExpr) -> None:
        self.program, self.rows = program, rows
        self.vectors = program.memory("vectors", LANES, length)
        self.scales = program.memory("factors", LANES)
        self.gram = program.memory("gram", LANES, LANES)

    def multiply(self, start: PrimExpr) -> None:
        """Compute the products of the vectors, which are 0 before ``start``, with each other."""
        with self.program.loop(LANES, name="k") as k:
            found = dots(self.program, [(self.vectors, k)], self.vectors, as_prim(0), start,
                         self.rows)
            self.program.store(self.gram, found[0], k, lanes(0))

    def apply(self, matrix: Buffer, columns: PrimExpr, first: PrimExpr, start: PrimExpr, *,
              transpose: bool) -> None:
        """Multiply the columns from ``first`` on (the rows of ``matrix``) from the left."""
        with self.program.tiles(columns, first, LANES) as j:
            weights = self.program.memory("weights", LANES, LANES)
            self._weigh(weights, matrix, j, start, transpose)
            self._subtract(weights, matrix, j, start)

    def _weigh(self, weights: Buffer, matrix: Buffer, j: PrimExpr, start: PrimExpr,
               transpose: bool) -> None:
        """``T V' c``, or ``T' V' c``, of eight columns ``c``."""
        program, every = self.program, lanes(0)
        with program.loop(LANES, step=2, name="k") as k:
            pair = [(self.vectors, k), (self.vectors, k + 1)]
            for n, found in enumerate(dots(program, pair, matrix, j, start, self.rows)):
                program.store(weights, found, k + n, every)
        known: list[tuple[int, PrimExpr]] = []
        for k in range(LANES) if transpose else reversed(range(LANES)):
            value: PrimExpr = weights.load(k, every)
            for other, weight in known:
                value = value - spread(self.gram.load(k, other)) * weight
            known.append((k, program.let(spread(self.scales.load(k)) * value, "weight")))
            program.store(weights, known[-1][1], k, every)

    def _subtract(self, weights: Buffer, matrix: Buffer, j: PrimExpr, start: PrimExpr) -> None:
        program = self.program
        with program.loop(self.rows, start, step=LANES, name="i") as i:
            tile = Tile(program, matrix, j, i, LANES)
            tile.load()
            tile.subtract(self.vectors, as_prim(0), as_prim(LANES),
                          lambda c, k: weights.load(k, c))
            tile.save()

    def clear(self, first: PrimExpr, start: PrimExpr) -> None:
        """The reflections from number ``first`` on do nothing."""
        with self.program.loop(LANES, first, name="k") as k:
            self.program.store(self.scales, 0.0, k)
            with self.program.loop(self.rows, start, step=LANES, name="i") as i:
                self.program.store(self.vectors, spread(0.0), k, lanes(i))

    def reflect(self, work: Buffer, column: PrimExpr, at: PrimExpr, start: PrimExpr,
                number: PrimExpr) -> Var:
        """Find the reflection that leaves of a column the element ``at`` and those before it.

        It becomes ``number`` of the block, and its vector is stored in the column behind ``at``.
        The scale is returned. Elements before ``start`` are not read.
        """
        program = self.program
        below, factor = self._length_below(work, column, at, start)
        first = program.let(work.load(column, at) * factor, "first")
        is_done = program.let(any_of(below.equal(0.0), all_of(
            factor > 1.0, te.abs(work.load(column, at)) > _NEGLIGIBLE)), "done")
        length = program.let(te.sqrt(first * first + below), "length")
        head = program.let(select(is_done, first, select(first >= 0.0, -length, length)), "head")
        scale = program.let(select(is_done, 0.0, (head - first) / head), "scale")
        divisor = program.let(spread(select(is_done, 1.0, first - head)), "divisor")
        last = program.let(spread(select(is_done, work.load(column, at), head / factor)), "last")
        many = program.let(spread(factor), "many")
        program.store(self.scales, scale, number)
        with program.loop(self.rows, start, step=LANES, name="i") as i:
            position = program.let(lanes(i), "position")
            own = program.let(work.load(column, position), "own")
            tail = program.let(select(position > spread(at), own * many / divisor, own), "tail")
            is_head = position.equal(spread(at))
            program.store(work, select(is_head, last, tail), column, position)
            inner = select(is_head, spread(1.0), tail)
            program.store(self.vectors, select(position < spread(at), spread(0.0), inner), number,
                          position)
        return scale

    def _length_below(self, work: Buffer, column: PrimExpr, at: PrimExpr, start: PrimExpr
                      ) -> tuple[Var, Var]:
        """The sum of squares behind ``at``, of numbers multiplied by the factor returned with it.

        The factor is 1 unless squares would overflow or vanish.
        """
        program = self.program
        below, factor = program.cell("below", 0.0), program.cell("factor", 1.0)
        with program.loop(2, name="attempt") as attempt:
            known = program.let(below.load(0), "known")
            is_small = program.let(known < _SMALL, "small")
            with program.when(any_of(attempt.equal(0), is_small, known > _LARGE)):
                many = select(is_small, const(_FACTOR, float64), const(1.0 / _FACTOR, float64))
                many = program.let(select(attempt.equal(0), const(1.0, float64), many), "many")
                squares = Running(program, "squares", 0.0)
                with program.loop(self.rows, start, step=LANES, name="i") as i:
                    own = work.load(column, lanes(i)) * spread(many)
                    x = program.let(select(lanes(i) > spread(at), own, spread(0.0)))
                    squares.put(squares.get() + x * x)
                program.store(below, squares.reduced(operator.add), 0)
                program.store(factor, many, 0)
        return program.let(below.load(0), "below"), program.let(factor.load(0), "factor")

    def apply_one(self, work: Buffer, first: PrimExpr, after: PrimExpr, start: PrimExpr,
                  number: PrimExpr, scale: PrimExpr) -> None:
        """Apply one reflection to those of eight columns that are behind ``after``."""
        program = self.program
        found = dots(program, [(self.vectors, number)], work, first, start, self.rows)[0]
        weight = program.let(select(lanes(first) > spread(after), found * spread(scale),
                                    spread(0.0)), "weight")
        weights = [program.let(lane(weight, c), "weight") for c in range(LANES)]
        with program.loop(self.rows, start, step=LANES, name="i") as i:
            vector = program.let(self.vectors.load(number, lanes(i)), "v")
            for c in range(LANES):
                old = work.load(first + c, lanes(i))
                program.store(work, old - vector * weights[c], first + c, lanes(i))

    def orthogonal(self, source: Buffer, scales: Buffer, count: PrimExpr, offset: int,
                   target: Buffer, columns: PrimExpr) -> None:
        """Columns of the product of ``count`` reflections as rows of ``target``.

        The vector of number ``k`` is in row ``k`` of ``source``, behind element ``k + offset``.
        """
        program = self.program
        with program.loop(padded(columns), name="j") as j, \
                program.loop(padded(self.rows), step=LANES, name="i") as i:
            one = select(lanes(i).equal(spread(j)), spread(1.0), spread(0.0))
            program.store(target, one, j, lanes(i))
        last = program.let((count + (LANES - 1)) // LANES * LANES - LANES, "last")
        with program.loop(count, step=LANES, name="step") as step:
            start = program.let(last - step, "start")
            used = program.let(minimum(count - start, LANES), "used")
            with program.loop(used, name="k") as k:
                program.store(self.scales, scales.load(start + k), k)
                with program.loop(self.rows, start, step=LANES, name="i") as i:
                    at, head = lanes(i), spread(start + k + offset)
                    one = select(at.equal(head), spread(1.0), spread(0.0))
                    program.store(self.vectors, select(
                        at > head, source.load(start + k, at), one), k, at)
            self.clear(used, start)
            self.multiply(start)
            self.apply(target, columns, as_prim(0), start, transpose=False)
