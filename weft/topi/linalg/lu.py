"""LU factors with partial pivoting, in blocks of columns, and the order of rows of their pivots.

Golub and Van Loan, Matrix Computations, 3.4. A panel of eight columns is factored column by
column; a block of panels updates the columns behind it in tiles of registers.
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import DType, int32, int64
from weft.tir import (
    Buffer,
    PrimExpr,
    all_of,
    any_of,
    as_prim,
    int_value,
    minimum,
    not_,
    select,
)
from weft.tir.stmt import Stmt
from weft.topi.linalg.program import (
    LANES,
    Program,
    Running,
    lane,
    lanes,
    over_batch,
    padded,
    read_columns,
    reduce_lanes,
    spread,
    stride,
    write_columns,
)
from weft.topi.linalg.registers import extern
from weft.topi.linalg.update import Tile

BLOCK = 64  # columns whose factors update the rest at once


def lu(x: te.Tensor) -> tuple[te.Tensor, ...]:
    """Packed factors, pivots (int32), the order of rows (int64) and info (int32).

    ``x[order] = L U``; L without its unit diagonal is below the diagonal of the packed factors.
    ``pivots`` holds, counted from 1, the row with which each row was exchanged; ``info`` is the
    index, from 1, of the first zero on the diagonal of U, 0 for none.
    """
    batch, rows, columns = x.shape
    steps = minimum(rows, columns)
    flops = 2 * (int_value(rows) or 0) * (int_value(columns) or 0) * (int_value(steps) or 0)
    return extern([x.shape, (batch, steps), (batch, rows), (batch,)], [x], _build,
                  [x.dtype, int32, int64, int32], "lu", flops)


def _build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    program, source = Program(), inputs[0]
    packed, pivots, order, info = outputs
    batch, rows, columns = source.shape
    size = (int_value(rows) or 64) * (int_value(columns) or 64)
    steps = min(int_value(rows) or 64, int_value(columns) or 64)
    with over_batch(program, batch, size * steps) as matrix:
        work = program.memory("columns", padded(columns), stride(rows))
        read_columns(program, source, matrix, work)
        factors = _Factors(program, work, rows, columns, packed.dtype)
        program.store(info, 0, matrix)
        with program.loop(rows) as i:
            program.store(order, i, matrix, i)
        with program.loop(minimum(rows, columns), step=LANES, name="panel") as start:
            factors.panel(start, pivots, info, matrix)
            factors.exchange(start, pivots, order, matrix)
            factors.trail(start)
        write_columns(program, work, packed, matrix)
    return program.statement()


class _Factors:
    """The factors of one matrix of ``dtype``; row ``j`` of ``work`` is its column ``j``."""

    def __init__(self, program: Program, work: Buffer, rows: PrimExpr, columns: PrimExpr,
                 dtype: DType) -> None:
        self.program, self.work, self.rows, self.columns = program, work, rows, columns
        self.dtype = dtype  # of the result, in which a diagonal may be 0 that is not in float64
        self.end = minimum(rows, columns)

    def panel(self, start: PrimExpr, pivots: Buffer, info: Buffer, matrix: PrimExpr) -> None:
        """Factor eight columns, whose rows are exchanged; those of other columns are not."""
        program, work = self.program, self.work
        with program.loop(minimum(start + LANES, self.end), start, name="k") as k:
            best = program.let(self._pivot(start, k), "best")
            program.store(pivots, best.astype(int32) + 1, matrix, k)
            with program.when(best > k), program.loop(start + LANES, start, name="j") as j:
                self._swap(j, k, best)
            pivot = program.let(work.load(k, k), "pivot")
            with program.when(all_of(pivot.astype(self.dtype).equal(0.0),
                                     info.load(matrix).equal(0))):
                program.store(info, k.astype(int32) + 1, matrix)
            with program.when(not_(pivot.equal(0.0))):
                self._eliminate(start, k, pivot)

    def _pivot(self, start: PrimExpr, k: PrimExpr) -> PrimExpr:
        """The first row, from ``k`` on, with the largest magnitude in column ``k``."""
        program, work = self.program, self.work
        most = Running(program, "most", te.abs(work.load(k, k)))
        where = Running(program, "where", k, int64)
        with program.loop(self.rows, start, step=LANES, name="i") as i:
            at = program.let(lanes(i), "at")
            size = program.let(te.abs(work.load(k, at)), "size")
            is_more = program.let(all_of(size > most.get(), at > spread(k),
                                            at < spread(self.rows)), "more")
            where.put(select(is_more, at, where.get()))
            most.put(select(is_more, size, most.get()))
        largest = most.reduced(_greater)
        first = select(most.get().equal(spread(largest)), where.get(),
                       spread(self.rows.astype(int64)))
        found = reduce_lanes(program, program.let(first), _lesser)
        return select(largest.equal(largest), found, k)

    def _swap(self, j: PrimExpr, one: PrimExpr, other: PrimExpr) -> None:
        program, work = self.program, self.work
        above, below = program.let(work.load(j, one)), program.let(work.load(j, other))
        program.store(work, below, j, one)
        program.store(work, above, j, other)

    def _eliminate(self, start: PrimExpr, k: PrimExpr, pivot: PrimExpr) -> None:
        program, work = self.program, self.work
        with program.loop(self.rows, start, step=LANES, name="i") as i:
            at = program.let(lanes(i), "at")
            is_below = program.let(at > spread(k), "below")
            own = program.let(work.load(k, at), "own")
            factor = program.let(own / spread(pivot), "factor")
            program.store(work, select(is_below, factor, own), k, at)
            with program.loop(start + LANES, k + 1, name="j") as j:
                old = program.let(work.load(j, at), "old")
                new = old - factor * spread(work.load(j, k))
                program.store(work, select(is_below, new, old), j, at)

    def exchange(self, start: PrimExpr, pivots: Buffer, order: Buffer, matrix: PrimExpr) -> None:
        """Exchange the rows of the other columns as the panel's."""
        program, end = self.program, minimum(start + LANES, self.end)
        with program.loop(end, start, name="k") as k:
            best = program.let(pivots.load(matrix, k).astype(int64) - 1, "best")
            above = program.let(order.load(matrix, k))
            below = program.let(order.load(matrix, best))
            program.store(order, below, matrix, k)
            program.store(order, above, matrix, best)
        for first, last in ((as_prim(0), start), (start + LANES, self.columns)):
            with program.loop(last, first, name="j") as j, \
                    program.loop(end, start, name="k") as k:
                self._swap(j, k, program.let(pivots.load(matrix, k).astype(int64) - 1, "best"))

    def trail(self, start: PrimExpr) -> None:
        """Update the rest of the block, and the columns behind it at its end."""
        program = self.program
        after = program.let(start + LANES, "after")
        block = program.let(start // BLOCK * BLOCK, "block")
        ends = any_of(after.equal(block + BLOCK), after >= self.end)
        limit = minimum(block + BLOCK, self.columns)
        with program.loop(2, name="scope") as scope:
            is_inner = scope.equal(0)
            first = program.let(select(is_inner, start, block), "first")
            left = program.let(select(is_inner, after, block + BLOCK), "left")
            right = program.let(select(is_inner, limit, select(ends, self.columns, 0)), "right")
            with program.tiles(right, left, LANES) as j:
                self._solve(j, first, after)
                self._subtract(j, first, after)

    def _solve(self, j: PrimExpr, first: PrimExpr, last: PrimExpr) -> None:
        """Rows of U, eight at a time, of the columns from ``j`` on."""
        program, work = self.program, self.work
        with program.loop(last, first, step=LANES, name="row") as row:
            tile = Tile(program, work, j, row, LANES)
            tile.load()
            tile.subtract(work, first, row, lambda c, k: work.load(j + c, k))
            for k in range(LANES - 1):
                below = work.load(row + k, lanes(row))
                kept = select(lanes(0) > spread(k), below, spread(0.0))
                factor = program.let(kept, "factor")
                for c in range(LANES):
                    tile.put(tile.get(c, 0) - factor * lane(tile.get(c, 0), k), c, 0)
            tile.save()

    def _subtract(self, j: PrimExpr, first: PrimExpr, last: PrimExpr) -> None:
        program, work = self.program, self.work
        with program.loop(self.rows, last, step=LANES, name="i") as i:
            tile = Tile(program, work, j, i, LANES)
            tile.load()
            tile.subtract(work, first, last, lambda c, k: work.load(j + c, k))
            tile.save()


def _greater(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return select(a > b, a, b)


def _lesser(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return select(a < b, a, b)


def exchange(pivots, order) -> None:  # noqa: ANN001
    """The permutation of rows that the exchanges of ``pivots`` produce in sequence."""
    for b in range(pivots.shape[0]):
        for i in range(order.shape[1]):
            order[b, i] = i
        for k in range(pivots.shape[1]):
            other = pivots[b, k] - 1
            if 0 <= other < order.shape[1]:
                kept = order[b, k]
                order[b, k] = order[b, other]
                order[b, other] = kept


def pivot_order(pivots: te.Tensor, rows: PrimExpr | int) -> te.Tensor:
    """Which row of the matrix stands in each position after its exchanges: (batch, rows), int64."""
    return te.python_extern([(pivots.shape[0], rows)], [pivots], exchange, [int64],
                            name="pivot_order")[0]
