"""Transposes whose innermost axes have one element are vectorised."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def transposed(shape: tuple[int, ...], axes: list[int]) -> weft.IRModule:
    return weft.parse(f"def @main(%x: Tensor[{shape}, float32], %b: Tensor[{shape}, float32]) "
                      f"{{ transpose(exp(%x - %b), axes={axes}) }}")


def test_a_transpose_to_rows_of_one_element_is_tiled():
    text = weft.compile(transposed((1, 32, 48), [2, 1, 0])).as_text("scheduled")
    assert "vectorized" in text
    assert "# transpose = 1" in text


@pytest.mark.parametrize("seed", range(10))
def test_random_shapes_with_axes_of_one_element(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 1, 3, 8, 17, 32], size=rng.integers(2, 6)))
    axes = [int(a) for a in rng.permutation(len(shape))]
    x, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    got = weft.compile(transposed(shape, axes))(x, b)
    np.testing.assert_allclose(got, np.exp(x - b).transpose(axes), rtol=1e-5)
