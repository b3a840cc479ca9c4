import pytest

from weft.frontend.common.resampling import resampling_order


@pytest.mark.parametrize(("growth", "order"), [
    ({2: 2.0, 3: 2.0}, [3, 2]),
    ({2: 0.5, 3: 0.5}, [2, 3]),
    ({2: 2.0, 3: 0.5, 4: 3.0}, [3, 4, 2]),
    ({1: 1.0, 3: 4.0}, [1, 3]),
    ({}, []),
])
def test_what_shrinks_comes_before_what_grows(growth, order):
    assert resampling_order(growth) == order
