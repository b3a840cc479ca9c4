"""Plane rotations: their coefficients, and rows of work matrices rotated."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64
from weft.tir import Buffer, PrimExpr, Var, const, select
from weft.tir.intrinsics import intrinsic
from weft.topi.linalg.program import LANES, Program, lanes, spread

# Squares below this have lost digits; both coordinates are then multiplied by the factor.
_SMALL, _FACTOR = 1e-280, 2.0**600


def rotation(program: Program, x: PrimExpr, y: PrimExpr) -> tuple[Var, Var, Var]:
    """Cosine, sine and ``r`` with ``c x + s y = r`` and ``c y - s x = 0``.

    ``x`` may be known later than ``y``: it enters last.
    """
    square = program.let(y * y, "square")
    total = program.let(intrinsic("multiply_add", x, x, square), "total")
    length = program.let(te.sqrt(total), "length")
    found = [program.cell(name, value) for name, value in
             (("cosine", x / length), ("sine", y / length), ("length", length))]
    with program.when(total < _SMALL):
        x, y = program.let(x * _FACTOR), program.let(y * _FACTOR)
        length = program.let(te.sqrt(x * x + y * y), "length")
        is_zero = length.equal(0.0)
        program.store(found[0], select(is_zero, const(1.0, float64), x / length), 0)
        program.store(found[1], select(is_zero, const(0.0, float64), y / length), 0)
        program.store(found[2], length / _FACTOR, 0)
    c, s, r = (program.let(cell.load(0), "rotation") for cell in found)
    return c, s, r


def rotate_rows(program: Program, matrix: Buffer, one: PrimExpr, other: PrimExpr, size: PrimExpr,
                c: PrimExpr, s: PrimExpr) -> None:
    """``one, other = c one + s other, c other - s one``."""
    cosine, sine = program.let(spread(c)), program.let(spread(s))
    with program.loop(size, step=LANES, name="k") as k:
        x, y = (program.let(matrix.load(row, lanes(k))) for row in (one, other))
        program.store(matrix, cosine * x + sine * y, one, lanes(k))
        program.store(matrix, cosine * y - sine * x, other, lanes(k))
