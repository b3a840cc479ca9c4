"""The Cholesky factorization, eight columns at a time (Golub and Van Loan, 4.2).

Columns take what the columns before them contribute as a matrix product in tiles of registers.
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64, int32
from weft.tir import Buffer, PrimExpr, as_prim, int_value, minimum, select
from weft.tir.stmt import Stmt
from weft.topi.linalg.program import (
    LANES,
    Program,
    lanes,
    over_batch,
    padded,
    read_columns,
    spread,
    stride,
    write_columns,
)
from weft.topi.linalg.registers import extern
from weft.topi.linalg.update import Tile


def cholesky(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """The lower factor (batch, n, n), from the lower triangle, and info (batch,), int32.

    ``info`` is the order of the first leading minor that is not positive, 0 for none; from that
    column on the factor holds the columns of ``x``.
    """
    size = int_value(x.shape[1]) or 0
    lower, info = extern([x.shape, (x.shape[0],)], [x], _build, [x.dtype, int32], "cholesky",
                         size ** 3 // 3)
    return lower, info


def _build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    program, source, (lower, info) = Program(), inputs[0], outputs
    batch, size, _ = source.shape
    known = int_value(size) or 64
    with over_batch(program, batch, known * known * 8) as matrix:
        work = program.memory("columns", padded(size), stride(size))
        read_columns(program, source, matrix, work)
        program.store(info, 0, matrix)
        with program.loop(size, step=LANES, name="panel") as start, \
                program.when(program.let(info.load(matrix)).equal(0)):
            _take(program, work, start, size)
            _panel(program, work, start, source, info, matrix)
        _clear(program, work, size)
        write_columns(program, work, lower, matrix)
    return program.statement()


def _take(program: Program, work: Buffer, start: PrimExpr, size: PrimExpr) -> None:
    """Subtract what the columns before ``start`` contribute to eight columns."""
    with program.when(start > 0), program.loop(size, start, step=LANES, name="i") as i:
        tile = Tile(program, work, start, i, LANES)
        tile.load()
        tile.subtract(work, as_prim(0), start, lambda j, k: work.load(k, start + j))
        tile.save()


def _panel(program: Program, work: Buffer, start: PrimExpr, source: Buffer, info: Buffer,
           matrix: PrimExpr) -> None:
    """Factor eight columns; at a minor that is not positive, the rest is as it was."""
    size = source.shape[1]
    end = program.let(minimum(start + LANES, size), "end")
    with program.loop(end, start, name="k") as k, \
            program.when(program.let(info.load(matrix)).equal(0)):
        rest = program.let(work.load(k, k), "rest")
        with program.when(rest > 0.0):
            root = program.let(spread(te.sqrt(rest)), "root")
            with program.loop(size, start, step=LANES, name="i") as i:
                column = program.let(work.load(k, lanes(i)) / root, "column")
                program.store(work, column, k, lanes(i))
                with program.loop(end, k + 1, name="j") as j:  # in the panel's own vector
                    old = work.load(j, lanes(i))
                    program.store(work, old - column * spread(work.load(k, j)), j, lanes(i))
        with program.otherwise():
            program.store(info, k.astype(int32) + 1, matrix)
            with program.loop(end, k, name="j") as j, program.loop(size, j) as i:
                program.store(work, source.load(matrix, i, j).astype(float64), j, i)


def _clear(program: Program, work: Buffer, size: PrimExpr) -> None:
    """Zeros above the diagonal."""
    with program.loop(size, 1, name="j") as j, program.loop(j, step=LANES) as i:
        kept = select(lanes(i) < spread(j), spread(0.0), work.load(j, lanes(i)))
        program.store(work, kept, j, lanes(i))
