"""The two sides of a branch know different things: nothing found on one holds on the other."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.tir.parser import parse_func
from weft.tir.transform.flatten_buffer import flatten_buffer
from weft.tir.transform.simplify import simplify


def test_an_index_that_one_side_decides_is_kept_on_the_other():
    func = parse_func("""
def f(A: float32[4, 4], I: int64[4], B: float32[4]):
    for i in range(4):
        if I[i] < 1 and I[i] >= 0:
            B[i] = A[I[i], 0]
        else:
            B[i] = A[I[i], 0] + 1.0
""")
    text = str(flatten_buffer(func))
    assert "B[i] = A[0]\n" in text
    assert "B[i] = A[I[i] * 4] + 1.0" in text


@pytest.mark.parametrize("stored", [True, False])
def test_a_condition_holds_until_what_it_reads_is_stored(stored):
    func = parse_func(f"""
def f(N: int64[1], M: int64[1], B: float32[4]):
    if N[0] >= 1:
        for i in range(4):
            if N[0] >= 1:
                B[i] = 1.0
                {"N" if stored else "M"}[0] = N[0] - 1
""")
    assert str(simplify(func)).count("if N[0] >= 1:") == 1 + stored


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("opt_level", [0, 3])
def test_rows_of_joined_parts(cut, opt_level):
    model = weft.parse(f"""
def @main(%y: Tensor[(4, 4), float32], %i: Tensor[(4), int64]) {{
  %0 = strided_slice(%y, begin=[0], end=[{cut}], strides=[1], axes=[0]);
  %1 = strided_slice(%y, begin=[{cut}], end=[4], strides=[1], axes=[0]);
  take(concatenate((%0, %1 * 2f)), %i, axis=0)
}}""")
    y = np.arange(16, dtype=np.float32).reshape(4, 4)
    index = np.array([1, 3, 0, 2])
    joined = np.concatenate([y[:cut], y[cut:] * 2])
    got = weft.compile(model, opt_level=opt_level)(y, index)
    np.testing.assert_array_equal(got, joined[index])
