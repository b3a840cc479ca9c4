"""The singular value decomposition: bidiagonal form and implicit QR steps.

Golub and Van Loan, Matrix Computations, 8.6.2; with a shift of 0 for blocks that are singular, as
Demmel and Kahan, Accurate singular values of bidiagonal matrices (1990).
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64, int64
from weft.tir import (
    Buffer,
    PrimExpr,
    all_of,
    any_of,
    const,
    int_value,
    maximum,
    minimum,
    not_,
    select,
)
from weft.tir.stmt import Stmt
from weft.topi.linalg.arrange import rank_values, sign_of
from weft.topi.linalg.bidiagonal import Bidiagonal
from weft.topi.linalg.program import (
    LANES,
    Program,
    Running,
    lanes,
    over_batch,
    padded,
    read_columns,
    spread,
    stride,
    write_columns,
)
from weft.topi.linalg.registers import extern
from weft.topi.linalg.rotation import rotate_rows, rotation
from weft.topi.linalg.tridiagonal import scale_rows

_EPSILON = 2.0**-53
# Times the size: the steps after which the superdiagonal is left as it is.
_MAX_ITERATIONS = 40


def svd(x: te.Tensor, *, full: bool) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Left vectors, singular values (batch, columns), descending, and right vectors, as columns.

    There are as many left vectors as rows with ``full``, else as columns.
    """
    batch, rows, columns = x.shape
    count = rows if full else columns
    flops = 12 * (int_value(rows) or 0) * (int_value(columns) or 0) ** 2
    left, values, right = extern(
        [(batch, rows, count), (batch, columns), (batch, columns, columns)], [x], _build,
        [x.dtype] * 3, "svd", flops)
    return left, values, right


def _build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    program, source, (left, values, right) = Program(), inputs[0], outputs
    batch, rows, columns = source.shape
    count = left.shape[2]
    work_size = (int_value(rows) or 64) * (int_value(columns) or 64) ** 2 * 8
    with over_batch(program, batch, work_size) as matrix:
        work = program.memory("work", padded(count), stride(rows))
        read_columns(program, source, matrix, work)
        factor = scale_rows(program, work, columns, rows)
        form = Bidiagonal(program, work, rows, columns)
        form.reduce()
        u = program.memory("u", padded(count), stride(rows))
        v = program.memory("v", padded(columns), stride(columns))
        form.vectors(u, count, v)
        _Steps(program, form.diagonal, form.superdiagonal, u, v, source.shape).run()
        _arrange(program, form, u, v, count)
        with program.loop(columns) as i:
            value = form.left_scales.load(i) / factor
            program.store(values, value.astype(values.dtype), matrix, i)
        write_columns(program, work, left, matrix)
        write_columns(program, form.right_rows, right, matrix)
    return program.statement()


def _arrange(program: Program, form: Bidiagonal, u: Buffer, v: Buffer, count: PrimExpr) -> None:
    """Descending values that are not negative; what is sorted replaces the bidiagonal form."""
    columns, rows, diagonal = form.columns, form.rows, form.diagonal
    with program.loop(columns) as i:
        value = program.let(diagonal.load(i), "value")
        sign = select(value < 0.0, const(-1.0, float64), const(1.0, float64))
        program.store(form.superdiagonal, sign, i)
        program.store(diagonal, te.abs(value), i)
    with program.loop(columns, name="j") as j:
        rank = program.let(rank_values(program, diagonal, j, columns, is_descending=True))
        sign = sign_of(program, v, j, columns)
        other = program.let(spread(sign * form.superdiagonal.load(j)))
        program.store(form.left_scales, diagonal.load(j), rank)
        with program.loop(columns, step=LANES, name="k") as k:
            program.store(form.right_rows, v.load(j, lanes(k)) * spread(sign), rank, lanes(k))
        with program.loop(rows, step=LANES, name="k") as k:
            program.store(form.work, u.load(j, lanes(k)) * other, rank, lanes(k))
    with program.loop(count, columns, name="j") as j, \
            program.loop(rows, step=LANES, name="k") as k:
        program.store(form.work, u.load(j, lanes(k)), j, lanes(k))


class _Steps:
    """Implicit QR steps of a bidiagonal matrix; vectors are rows of ``u`` and ``v``."""

    def __init__(self, program: Program, diagonal: Buffer, superdiagonal: Buffer, u: Buffer,
                 v: Buffer, shape: tuple[PrimExpr, ...]) -> None:
        self.program, self.diagonal, self.superdiagonal = program, diagonal, superdiagonal
        self.u, self.v = u, v
        _, self.rows, self.size = shape

    def run(self) -> None:
        program, size = self.program, self.size
        norm = self._norm()
        left = program.memory("left", 1, dtype=int64)  # rows that are not diagonal yet
        program.store(left, size, 0)
        with program.loop(_MAX_ITERATIONS), program.when(program.let(left.load(0)) > 0), \
                program.loop(size):
            last = program.let(left.load(0) - 1, "last")
            with program.when(last >= 0):
                first = program.let(self._first(last, norm), "first")
                with program.when(first.equal(last)):
                    program.store(left, last, 0)
                with program.otherwise():
                    self._step(first, last, norm)

    def _norm(self) -> PrimExpr:
        """The largest element; if one is NaN, the diagonal becomes NaN."""
        program = self.program
        norm = program.memory("norm", 1)
        program.store(norm, 0.0, 0)
        for source in (self.diagonal, self.superdiagonal):
            with program.loop(self.size) as i:
                value = program.let(source.load(i), "value")
                program.store(norm, maximum(norm.load(0), te.abs(value)), 0)
                with program.when(te.isnan(value)), program.loop(self.size) as j:
                    program.store(self.diagonal, value, j)
        return program.let(norm.load(0), "norm")

    def _first(self, last: PrimExpr, norm: PrimExpr) -> PrimExpr:
        """The first row of the block that ends with ``last``: before it is 0."""
        program = self.program
        found = Running(program, "found", 0, int64)
        least = program.let(spread(norm * (_EPSILON / 128.0)), "least")
        with program.loop(last, step=LANES, name="i") as i:
            at = program.let(lanes(i), "at")
            size = te.abs(self.diagonal.load(at)) + te.abs(self.diagonal.load(lanes(i + 1)))
            value = program.let(te.abs(self.superdiagonal.load(at)), "value")
            is_large = all_of(value > spread(_EPSILON) * size, value > least)
            is_start = all_of(not_(is_large), at < spread(last))
            found.put(maximum(found.get(), select(is_start, at + spread(1), found.get())))
        return found.reduced(maximum)

    def _start(self, first: PrimExpr, last: PrimExpr, norm: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The vector that the first rotation takes to an axis; the shift is near the last value."""
        program, d, e = self.program, self.diagonal, self.superdiagonal
        head, least = program.let(d.load(first), "head"), program.memory("least", 1)
        program.store(least, te.abs(head), 0)
        with program.loop(last + 1, first) as i:
            program.store(least, minimum(least.load(0), te.abs(d.load(i))), 0)
        one = program.let(d.load(last - 1), "one")
        two, beside = program.let(d.load(last), "two"), program.let(e.load(last - 1), "beside")
        before = select(last - 1 > first, e.load(maximum(last - 2, 0)), const(0.0, float64))
        a = program.let(one * one + before * before, "a")
        b, c = program.let(one * beside, "b"), program.let(two * two + beside * beside, "c")
        half = program.let((a - c) * 0.5, "half")
        root = program.let(te.sqrt(half * half + b * b), "root")
        shift = program.let(c - b * b / (half + select(half < 0.0, -root, root)), "shift")
        is_singular = any_of(least.load(0) <= norm * _EPSILON, not_(te.abs(shift) > 0.0))
        y = select(is_singular, head, head - shift / head)
        return program.let(y, "y"), program.let(e.load(first), "z")

    def _step(self, first: PrimExpr, last: PrimExpr, norm: PrimExpr) -> None:
        program, d, e = self.program, self.diagonal, self.superdiagonal
        start, beside = self._start(first, last, norm)
        y, z = program.cell("y", start), program.cell("z", beside)
        with program.loop(last, first, name="k") as k:
            c, s, length = rotation(program, program.let(y.load(0)), program.let(z.load(0)))
            with program.when(k > first):
                program.store(e, length, k - 1)
            own, above = program.let(d.load(k), "own"), program.let(e.load(k), "above")
            below = program.let(d.load(k + 1), "below")
            rotated = program.let(c * above - s * own, "rotated")
            bulge, lower = program.let(s * below, "bulge"), program.let(c * below, "lower")
            rotate_rows(program, self.v, k, k + 1, self.size, c, s)
            c, s, length = rotation(program, program.let(c * own + s * above, "head"), bulge)
            program.store(d, length, k)
            program.store(y, c * rotated + s * lower, 0)
            program.store(d, c * lower - s * rotated, k + 1)
            following = program.let(select(k + 1 < last, e.load(k + 1), const(0.0, float64)))
            program.store(z, s * following, 0)
            with program.when(k + 1 < last):
                program.store(e, c * following, k + 1)
            rotate_rows(program, self.u, k, k + 1, self.rows, c, s)
        program.store(e, y.load(0), last - 1)
