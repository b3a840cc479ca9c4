"""The QR factorization in blocks of eight Householder reflections, in LAPACK's storage.

Schreiber and Van Loan, A storage-efficient WY representation for products of Householder
transformations (1989).
"""

from __future__ import annotations

from weft import te
from weft.tir import Buffer, PrimExpr, as_prim, int_value, minimum, select
from weft.tir.stmt import Stmt
from weft.topi.linalg.program import (
    LANES,
    Program,
    lanes,
    over_batch,
    padded,
    read_block,
    read_columns,
    spread,
    stride,
    write_columns,
)
from weft.topi.linalg.reflections import Reflections
from weft.topi.linalg.registers import extern


def qr(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """The packed reflections with R, and the scales of the reflections.

    R is on and above the diagonal, the vectors ``v`` of reflections ``1 - s v v'`` below it; their
    leading ones are not stored.
    """
    batch, rows, columns = x.shape
    steps = minimum(rows, columns)
    packed, scales = extern([x.shape, (batch, steps)], [x], _factor, [x.dtype, x.dtype], "qr",
                            2 * _work(x.shape))
    return packed, scales


def _work(shape: tuple[PrimExpr, ...]) -> int:
    rows, columns = (int_value(size) or 64 for size in shape[1:])
    return rows * columns * min(rows, columns)


def _factor(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    program, source, (packed, scales) = Program(), inputs[0], outputs
    batch, rows, columns = source.shape
    with over_batch(program, batch, _work(source.shape)) as matrix:
        work = program.memory("columns", padded(columns), stride(rows))
        read_columns(program, source, matrix, work)
        block = Reflections(program, rows, stride(rows))
        limit = minimum(rows, columns)
        with program.loop(limit, step=LANES, name="start") as start:
            end = program.let(minimum(start + LANES, limit), "end")
            with program.loop(end, start, name="k") as k:
                scale = block.reflect(work, k, k, start, k - start)
                program.store(scales, scale.astype(scales.dtype), matrix, k)
                block.apply_one(work, start, k, start, k - start, scale)
            block.clear(end - start, start)
            with program.when(start + LANES < columns):
                block.multiply(start)
                block.apply(work, columns, start + LANES, start, transpose=True)
        write_columns(program, work, packed, matrix)
    return program.statement()


def reflect(packed: te.Tensor, scales: te.Tensor, c: te.Tensor, *, transpose: bool) -> te.Tensor:
    """``Q c`` or ``Q' c`` for the factor Q that ``packed`` and ``scales`` represent."""
    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        return _multiply(inputs, outputs[0], transpose)

    work = (int_value(scales.shape[1]) or 64) * (int_value(c.shape[2]) or 64)
    return extern([c.shape], [packed, scales, c], build, [c.dtype], "reflect",
                  4 * work * (int_value(c.shape[1]) or 64))[0]


def _multiply(inputs: tuple[Buffer, ...], out: Buffer, transpose: bool) -> Stmt:
    program = Program()
    packed, scales, c = inputs
    batch, rows, columns = c.shape
    count = scales.shape[1]
    with over_batch(program, batch, _work(c.shape)) as matrix:
        work = program.memory("columns", padded(columns), stride(rows))
        read_columns(program, c, matrix, work)
        block = Reflections(program, rows, stride(rows))
        last = program.let((count + (LANES - 1)) // LANES * LANES - LANES, "last")
        with program.loop(count, step=LANES, name="step") as step:
            start = step if transpose else program.let(last - step, "start")
            _read_vectors(program, block, packed, matrix, start)
            used = program.let(minimum(count - start, LANES), "used")
            with program.loop(used, name="k") as k:
                program.store(block.scales, scales.load(matrix, start + k).astype("float64"), k)
            block.clear(used, start)
            block.multiply(start)
            block.apply(work, columns, as_prim(0), start, transpose=transpose)
        write_columns(program, work, out, matrix)
    return program.statement()


def _read_vectors(program: Program, block: Reflections, packed: Buffer, matrix: PrimExpr,
                  start: PrimExpr) -> None:
    """The vectors below the diagonal of eight columns."""
    def put(c: int, i: PrimExpr, column: PrimExpr) -> None:
        at = lanes(i)
        head = select(at.equal(spread(start + c)), spread(1.0), spread(0.0))
        program.store(block.vectors, select(at > spread(start + c), column, head), c, at)

    read_block(program, packed, matrix, start, put)
