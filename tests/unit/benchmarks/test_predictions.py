"""The table of predicted and measured times."""

from __future__ import annotations

import pytest

from benchmarks.predictions import Row, near_share, rank_correlation, table_of


def _rows(*pairs: tuple[float, float]) -> list[Row]:
    return [Row(f"k{n}", "", predicted, measured, 0.0)
            for n, (predicted, measured) in enumerate(pairs)]


def test_the_share_of_near_predictions():
    assert near_share(_rows((1.0, 1.0), (1.1, 1.0), (1.2, 1.0), (0.5, 1.0))) == 0.5


@pytest.mark.parametrize(("pairs", "correlation"), [
    ([(1, 10), (2, 20), (3, 30)], 1.0), ([(1, 30), (2, 20), (3, 10)], -1.0), ([(1, 2)], 1.0)])
def test_ranks_are_compared_not_times(pairs, correlation):
    assert rank_correlation(_rows(*pairs)) == pytest.approx(correlation)


def test_the_table_ends_with_both():
    table = table_of("kernels", _rows((1e-6, 1e-6), (2e-6, 4e-6)))
    assert table.caption == ("2 predictions: 50% within 15% of the measured time, "
                             "rank correlation 1.000")
