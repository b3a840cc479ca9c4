"""Row-major positions are the inverse of their indices."""

from __future__ import annotations

from weft.ir.dtype import int64
from weft.tir import Var, const, int_value
from weft.tir.row_major import element_count, ravel, unravel


def test_positions_count_up_in_row_major_order() -> None:
    sizes = (2, 1, 3)
    assert int_value(element_count(sizes)) == 6
    indices = [tuple(map(int_value, unravel(const(flat), sizes))) for flat in range(6)]
    assert indices == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 0), (1, 0, 1), (1, 0, 2)]
    assert [int_value(ravel(index, sizes)) for index in indices] == list(range(6))


def test_a_scalar_has_one_position_and_no_indices() -> None:
    assert int_value(element_count(())) == 1
    assert unravel(const(0), ()) == ()


def test_a_single_axis_costs_no_arithmetic() -> None:
    flat, size = Var("i", int64), Var("n", int64)
    assert unravel(flat, (size,)) == (flat,)
    assert ravel((flat,), (size,)) is flat
