"""``weft.grad``: gradients compile and run like any program."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.support.errors import PassError

TEXT = """
def @main(%x: Tensor[(5, 8), float32], %w: Tensor[(3, 8), float32]) {
  sum(multiply(tanh(nn.dense(%x, %w)), nn.dense(%x, %w)))
}
"""


def test_compiled_gradients_match_finite_differences():
    mod = weft.grad(weft.parse(TEXT))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 8), (3, 8)))
    value, dx, dw = weft.compile(mod)(x, w)

    def loss(x: np.ndarray, w: np.ndarray) -> float:
        y = x.astype(np.float64) @ w.astype(np.float64).T
        return float(np.sum(np.tanh(y) * y))

    assert value == pytest.approx(loss(x, w), rel=1e-5)
    for array, gradient, at in ((x, dx, 0), (w, dw, 1)):
        direction = rng.standard_normal(array.shape)
        moved = [[x.astype(np.float64), w.astype(np.float64)] for _ in range(2)]
        moved[0][at] = moved[0][at] + 1e-5 * direction
        moved[1][at] = moved[1][at] - 1e-5 * direction
        slope = (loss(*moved[0]) - loss(*moved[1])) / 2e-5
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=1e-4)


def test_one_parameter_of_a_function():
    mod = weft.parse("def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32])"
                     " { multiply(%x, %y) }")
    value, dy = weft.compile(weft.grad(mod["main"], with_respect_to=["y"]))(
        np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    )
    np.testing.assert_array_equal(dy, value)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(PassError, match="%z"):
        weft.grad(weft.parse(TEXT), with_respect_to=["z"])
