"""One formula gives the output sizes of windowed operators for every kind of size."""

from __future__ import annotations

import pytest

from weft.ir.shape import ANY, SymDim
from weft.tir.expr import const, int_value
from weft.topi.nn.window import window_count, window_count_up, window_span


@pytest.mark.parametrize(("size", "taps", "dilation", "stride", "count", "count_up"), [
    (7, 3, 1, 1, 5, 5), (7, 3, 1, 2, 3, 3), (8, 3, 1, 2, 3, 4), (9, 3, 2, 3, 2, 3),
    (3, 3, 1, 5, 1, 1),
])
def test_numbers_and_index_expressions_agree(size, taps, dilation, stride, count, count_up):
    span = window_span(taps, dilation)
    assert (window_count(size, span, stride), window_count_up(size, span, stride)) \
        == (count, count_up)
    tir_span = window_span(const(taps), dilation)
    assert int_value(window_count(const(size), tir_span, stride)) == count
    assert int_value(window_count_up(const(size), tir_span, stride)) == count_up


def test_symbolic_and_unknown_dimensions():
    n = SymDim.symbol("n")
    assert window_count(n * 2, 2, 2) == n
    assert window_count(n, window_span(3, 1), 1) == n - 2
    assert window_count(ANY, 3, 2) is window_span(ANY, 2) is ANY
    assert window_count(5, ANY, 2) is ANY
