"""Programs for all sizes refuse the sizes that the same program for one size refuses."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidInputError
from weft.transform.analysis.least_sizes import least_sizes


def program(body: str) -> weft.IRModule:
    return weft.parse("def @main(%x: Tensor[(n, 4), float32], %y: Tensor[(m, 4), float32]) "
                      f"{{ {body} }}")


@pytest.mark.parametrize(("body", "sizes"), [
    ("max(%x, axis=[0])", ["n - 1"]),
    ("argmin(%x, axis=[0])", ["n - 1"]),
    ("mean(concatenate((%x, %y), axis=0), axis=[0])", ["m + n - 1"]),
    ("sum(%x, axis=[0])", []),
    ("max(%x, axis=[1])", []),
    ("nn.max_pool2d(expand_dims(%x, axis=0, num_newaxis=2), pool_size=[3, 1], strides=[4, 1])",
     ["n - 3"]),
    ("if (less(1f, 2f)) { max(%x, axis=[0]) } else { sum(%x, axis=[0]) }", []),
    ("reshape(%x, newshape=[0, -1])", []),
])
def test_least_sizes(body: str, sizes: list[str]) -> None:
    assert [str(size) for size in least_sizes(program(body))] == sizes


def test_a_call_below_the_least_size_is_refused() -> None:
    model = weft.compile(weft.parse("""def @main(%x: Tensor[(n, 4), float32]) {
      (argmax(%x, axis=[0]), nn.max_pool1d(expand_dims(transpose(%x, axes=[1, 0]), axis=0,
       num_newaxis=1), pool_size=[3])) }"""))
    for size in (0, 1, 2):
        with pytest.raises(InvalidInputError, match="too small"):
            model(np.zeros((size, 4), np.float32))
    assert [r.shape for r in model(np.zeros((3, 4), np.float32))] == [(4,), (1, 4, 1)]


def test_sizes_that_share_a_symbol_change_together() -> None:
    """The gradient of a convolution takes images and results, whose sizes go together."""
    gradient = weft.grad(weft.parse("""
        def @main(%x: Tensor[(1, 2, h, w), float32], %w: Tensor[(4, 2, 3, 3), float32]) {
          nn.conv2d(%x, %w, padding=(1, 1), strides=(2, 1)) }"""), cotangent="ones")
    assert [str(size) for size in least_sizes(gradient)] == ["h - 1", "w - 1"]
