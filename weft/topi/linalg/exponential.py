"""The matrix exponential by scaling and squaring: exp(a) = exp(a / 2**s)**(2**s).

Golub and Van Loan, Matrix Computations, 9.3.1, with a Taylor series: all of it is products.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager

from weft import te
from weft.ir.dtype import float64, int64
from weft.tir import Buffer, PrimExpr, as_prim, const, int_value, maximum, select
from weft.tir.stmt import Stmt
from weft.topi.linalg.program import (
    LANES,
    Program,
    Running,
    lanes,
    load_part,
    over_batch,
    padded,
    spread,
    store_part,
    stride,
)
from weft.topi.linalg.registers import extern
from weft.topi.linalg.update import Tile

# With this many terms the Taylor series of a matrix of norm 1/2 reaches 2**-53.
_TERMS = 15
_NORM = 0.5
_SQUARINGS = 34  # squared: the norm of any matrix of float64 is below 2**1100


def matrix_exp(x: te.Tensor) -> te.Tensor:
    """The exponential of each matrix of a batch (batch, n, n)."""
    size = int_value(x.shape[1]) or 0
    return extern([x.shape], [x], _build, [x.dtype], "matrix_exp", 2 * _TERMS * size**3)[0]


def _build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    program, source, out = Program(), inputs[0], outputs[0]
    batch, size, _ = source.shape
    with over_batch(program, batch, _TERMS * (int_value(size) or 64) ** 3) as matrix:
        left, power, product = (program.memory(name, padded(size), stride(size))
                                for name in ("left", "power", "product"))
        norm = _read(program, source, matrix, left)
        squarings, factor = program.cell("squarings", 0, int64), program.cell("factor", 1.0)
        # In two loops, of which the outer one soon ends.
        with program.loop(_SQUARINGS), program.when(program.let(norm * factor.load(0)) > _NORM), \
                program.loop(_SQUARINGS), program.when(norm * factor.load(0) > _NORM):
            program.store(squarings, squarings.load(0) + 1, 0)
            program.store(factor, factor.load(0) * 0.5, 0)
        with _elements(program, size) as (i, j):
            program.store(left, left.load(i, j) * spread(factor.load(0)), i, j)
            program.store(power, select(j.equal(spread(i)), spread(1.0), spread(0.0)), i, j)
        with program.loop(squarings.load(0) + _TERMS, name="step") as step:
            with program.when(step >= _TERMS), _elements(program, size) as (i, j):
                program.store(left, power.load(i, j), i, j)
            _negative_product(program, left, power, product, size)
            # Horner: 1 + x / n (1 + x / (n - 1) (...)), then squares.
            is_term = step < _TERMS
            divisor = select(is_term, (step * -1 + _TERMS).astype(float64), const(1.0, float64))
            divisor = program.let(spread(divisor), "divisor")
            one = program.let(spread(select(is_term, const(1.0, float64), const(0.0, float64))))
            with _elements(program, size) as (i, j):
                unit = select(j.equal(spread(i)), one, spread(0.0))
                program.store(power, unit - product.load(i, j) / divisor, i, j)
        with program.loop(size, name="i") as i, program.loop(size, step=LANES, name="j") as j:
            store_part(program, out, power.load(i, lanes(j)), (matrix, i), j, size)
    return program.statement()


@contextmanager
def _elements(program: Program, size: PrimExpr) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    """A loop over rows and vectors of columns."""
    with program.loop(size, name="i") as i, program.loop(size, step=LANES, name="j") as j:
        yield i, program.let(lanes(j), "at")


def _read(program: Program, source: Buffer, matrix: PrimExpr, target: Buffer) -> PrimExpr:
    """Read a matrix; returns the largest sum of magnitudes of a row."""
    size = source.shape[1]
    norm = program.cell("norm", 0.0)
    with program.loop(size, name="i") as i:
        total = Running(program, "total", 0.0)
        with program.loop(size, step=LANES, name="j") as j:
            own = program.let(load_part(source, (matrix, i), j, size), "own")
            program.store(target, own, i, lanes(j))
            total.put(total.get() + te.abs(own))
        program.store(norm, maximum(norm.load(0), total.reduced(operator.add)), 0)
    return program.let(norm.load(0), "norm")


def _negative_product(program: Program, left: Buffer, right: Buffer, target: Buffer,
                      size: PrimExpr) -> None:
    """``target = -left right``."""
    with program.loop(size, step=LANES, name="row") as row, \
            program.loop(size, step=LANES, name="column") as column:
        tile = Tile(program, target, row, column, LANES)
        for j in range(LANES):
            tile.put(spread(0.0), j, 0)
        tile.subtract(right, as_prim(0), size, lambda c, k: left.load(row + c, k))
        tile.save()
