"""Eigenvalues and eigenvectors of symmetric matrices: tridiagonal form and implicit QL steps.

Golub and Van Loan, Matrix Computations, 8.3.3; Dongarra, Sorensen and Hammarling, Block reduction
of matrices to condensed forms for eigenvalue computations (1989). The step's next rotation depends
on its last one, with a root and a division between; the vectors are rotated in the meantime.
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.tir import Buffer, PrimExpr, all_of, int_value, minimum, not_, select
from weft.tir.stmt import Stmt
from weft.topi.linalg.arrange import arrange_rows
from weft.topi.linalg.program import (
    LANES,
    Program,
    Running,
    lanes,
    over_batch,
    padded,
    spread,
    stride,
    write_columns,
)
from weft.topi.linalg.registers import extern
from weft.topi.linalg.rotation import rotate_rows, rotation
from weft.topi.linalg.tridiagonal import Tridiagonal, read_symmetric

_EPSILON = 2.0**-53
# Times the size: the steps after which the subdiagonal is left as it is.
_MAX_ITERATIONS = 40


def eigh(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Eigenvalues (batch, n), ascending, and eigenvectors as columns (batch, n, n)."""
    size = int_value(x.shape[1]) or 0
    values, vectors = extern([x.shape[:2], x.shape], [x], _build, [x.dtype, x.dtype], "eigh",
                             9 * size**3)
    return values, vectors


def _build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    program, source, (values, vectors) = Program(), inputs[0], outputs
    batch, size, _ = source.shape
    with over_batch(program, batch, (int_value(size) or 64) ** 3 * 8) as matrix:
        work = program.memory("work", padded(size), stride(size))
        factor = read_symmetric(program, source, matrix, work)
        form = Tridiagonal(program, work, size)
        form.reduce()
        basis = program.memory("basis", padded(size), stride(size))
        form.vectors(basis)
        _Steps(program, form.diagonal, form.subdiagonal, basis, size).run()
        arrange_rows(program, form.diagonal, basis, work, form.product, size, is_descending=False)
        with program.loop(size) as i:
            value = form.product.load(i) / factor
            program.store(values, value.astype(values.dtype), matrix, i)
        write_columns(program, work, vectors, matrix)
    return program.statement()


class _Steps:
    """Implicit QL steps; the rows of ``basis`` become the eigenvectors."""

    def __init__(self, program: Program, diagonal: Buffer, subdiagonal: Buffer, basis: Buffer,
                 size: PrimExpr) -> None:
        self.program, self.diagonal, self.subdiagonal = program, diagonal, subdiagonal
        self.basis, self.size = basis, size

    def run(self) -> None:
        program, size = self.program, self.size
        self._spread_nan()
        first = program.memory("first", 1, dtype=int64)  # of the block that is not diagonal yet
        program.store(first, 0, 0)
        with program.loop(_MAX_ITERATIONS), program.when(program.let(first.load(0)) < size), \
                program.loop(size):
            start = program.let(first.load(0), "start")
            with program.when(start < size):
                end = program.let(self._end(start), "end")
                with program.when(end.equal(start)):
                    program.store(first, start + 1, 0)
                with program.otherwise():
                    self._step(start, end)

    def _spread_nan(self) -> None:
        """One NaN makes all values NaN: the steps take NaN on the subdiagonal for 0."""
        program = self.program
        for source in (self.diagonal, self.subdiagonal):
            with program.loop(self.size) as i, program.when(te.isnan(source.load(i))), \
                    program.loop(self.size) as j:
                program.store(self.diagonal, source.load(i), j)

    def _end(self, start: PrimExpr) -> PrimExpr:
        """The last row of the block: behind it is 0, or the end of the matrix."""
        program = self.program
        found = Running(program, "found", self.size - 1, int64)
        with program.loop(self.size, start // LANES * LANES, step=LANES, name="i") as i:
            at = program.let(lanes(i), "at")
            size = te.abs(self.diagonal.load(at)) + te.abs(self.diagonal.load(lanes(i + 1)))
            is_large = te.abs(self.subdiagonal.load(at)) > spread(_EPSILON) * size
            is_end = all_of(not_(is_large), at >= spread(start))
            found.put(minimum(found.get(), select(is_end, at, found.get())))
        return found.reduced(minimum)

    def _step(self, start: PrimExpr, end: PrimExpr) -> None:
        program, d, e = self.program, self.diagonal, self.subdiagonal
        slope = program.let((d.load(start + 1) - d.load(start)) / (e.load(start) * 2.0), "slope")
        root = program.let(te.sqrt(slope * slope + 1.0), "root")
        shift = e.load(start) / (slope + select(slope < 0.0, -root, root))
        g = program.cell("g", d.load(end) - d.load(start) + shift)
        cosine, sine = program.cell("cosine", 1.0), program.cell("sine", 1.0)
        moved = program.cell("moved", 0.0)
        with program.loop(end - start, name="step") as step:
            i = program.let(end - 1 - step, "i")
            beside = program.let(e.load(i), "e")
            f = program.let(sine.load(0) * beside, "f")
            b = program.let(cosine.load(0) * beside, "b")
            c, s, length = rotation(program, program.let(g.load(0), "old"), f)
            program.store(e, length, i + 1)
            lower = program.let(d.load(i + 1) - moved.load(0), "lower")
            r = program.let((d.load(i) - lower) * s + c * (b * 2.0), "r")
            shifted = program.let(s * r, "shifted")
            program.store(d, lower + shifted, i + 1)
            program.store(g, c * r - b, 0)
            program.store(moved, shifted, 0)
            program.store(sine, s, 0)
            program.store(cosine, c, 0)
            rotate_rows(program, self.basis, i + 1, i, self.size, c, s)
        program.store(d, d.load(start) - moved.load(0), start)
        program.store(e, g.load(0), start)
        program.store(e, 0.0, end)
