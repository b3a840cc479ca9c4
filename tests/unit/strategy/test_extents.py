"""Symbolic extents as numbers: typical, lowest and highest sizes, and what divides them."""

from __future__ import annotations

import pytest

from weft import te
from weft.strategy.extents import are_equal, highest_size, is_multiple, lowest_size, size_of
from weft.tir.expr import const

N, SHORT, EIGHTS = te.var("n"), te.var("m{2..16}"), te.var("k{8..%8}")


@pytest.mark.parametrize(("extent", "lowest", "typical", "highest"), [
    (const(7), 7, 7, 7),
    (N, 0, 64, None),
    (N * 3 + 1, 1, 193, None),
    ((N + 15) // 16, 0, 4, None),
    (SHORT, 2, 16, 16),
    (SHORT * N, 0, 1024, None),
    (EIGHTS * 8, 8, 64, None),  # the variable counts multiples
    (N - 100, 0, 0, None),
])
def test_numbers_of_an_extent(extent, lowest, typical, highest):
    assert (lowest_size(extent), size_of(extent), highest_size(extent)) == (
        lowest, typical, highest)


def test_a_factor_divides_whatever_the_symbols_are():
    assert is_multiple(N * 16, 8)
    assert is_multiple(const(24), 8)
    assert not is_multiple(N, 8)
    assert not is_multiple(N * 4, 8)
    assert is_multiple(EIGHTS * 8, 8)


def test_equal_extents():
    assert are_equal(N * 4 + N, N * 5)
    assert not are_equal(N, SHORT)
