"""Vectors in the order of their values, with the sign that makes them unique."""

from __future__ import annotations

import operator

from weft import te
from weft.ir.dtype import float64, int64
from weft.tir import Buffer, PrimExpr, all_of, any_of, const, maximum, minimum, not_, select
from weft.topi.linalg.program import LANES, Program, Running, lanes, spread

_NEAR = 1.0 - 1e-9  # of the largest magnitude: equal but for rounding


def rank_values(program: Program, values: Buffer, number: PrimExpr, size: PrimExpr, *,
                is_descending: bool) -> PrimExpr:
    """How many of ``values`` come before one of them in sorted order; NaN is the largest."""
    count = Running(program, "count", 0, int64)
    own = program.let(spread(values.load(number)), "own")
    with program.loop(size, step=LANES, name="k") as k:
        at = program.let(lanes(k), "at")
        other = program.let(values.load(at), "other")
        low, high = _less(other, own), _less(own, other)
        before, after = (high, low) if is_descending else (low, high)
        ahead = any_of(before, all_of(not_(after), at < spread(number)))
        inside = at < spread(size)
        count.put(count.get() + select(all_of(ahead, inside), spread(1), spread(0)))
    return count.reduced(operator.add)


def _less(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return any_of(a < b, all_of(te.isnan(b), not_(te.isnan(a))))


def sign_of(program: Program, rows: Buffer, row: PrimExpr, size: PrimExpr) -> PrimExpr:
    """-1 if the first element of largest magnitude of a row is negative, else 1."""
    most, first = Running(program, "most", 0.0), Running(program, "first", size, int64)
    with program.loop(size, step=LANES, name="k") as k:
        most.put(maximum(most.get(), te.abs(rows.load(row, lanes(k)))))
    limit = program.let(spread(most.reduced(maximum) * _NEAR), "limit")
    with program.loop(size, step=LANES, name="k") as k:
        is_large = te.abs(rows.load(row, lanes(k))) >= limit
        first.put(minimum(first.get(), select(is_large, lanes(k), spread(size))))
    found = first.reduced(minimum)
    element = rows.load(row, minimum(found, size - 1))
    return program.let(select(element < 0.0, const(-1.0, float64), const(1.0, float64)), "sign")


def arrange_rows(program: Program, values: Buffer, rows: Buffer, target: Buffer, sorted_values:
                 Buffer, size: PrimExpr, *, is_descending: bool) -> None:
    """Rows of ``rows``, as long as there are, in the order of ``values`` and signed."""
    with program.loop(size, name="j") as j:
        rank = program.let(rank_values(program, values, j, size, is_descending=is_descending))
        sign = program.let(spread(sign_of(program, rows, j, size)))
        program.store(sorted_values, values.load(j), rank)
        with program.loop(size, step=LANES, name="k") as k:
            program.store(target, rows.load(j, lanes(k)) * sign, rank, lanes(k))
