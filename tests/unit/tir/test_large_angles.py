"""Sine, cosine and tangent of float64 and float32 of any size, against exactly reduced angles."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import weft
from weft.ir.dtype import float64
from weft.tir.decomp import DECOMPOSITIONS
from weft.tir.eval import evaluate_expr
from weft.tir.expr import Var

BITS = 1300
# The float64 nearest to a multiple of pi / 2 (Muller, Elementary Functions).
NEAREST = 6381956970095103.0 * 2.0**797


def _pi() -> int:
    """pi * 2**BITS, by the arcsine series of 1/2."""
    one = 1 << (BITS + 32)
    term = total = 3 * one
    n, odd, even, step = 1, 0, 0, 24
    while term:
        n, odd = n + odd, odd + 8
        even, step = even + step, step + 32
        term = term * n // even
        total += term
    return total >> 32


PI = Fraction(_pi(), 1 << BITS)


def _reference(name: str, x: float) -> np.longdouble:
    """By the angle that is left of ``x`` after exact quarter turns."""
    exact = Fraction(x)
    quarters = round(exact / (PI / 2))
    rest = exact - quarters * (PI / 2)
    angle = np.longdouble(float(rest)) + np.longdouble(float(rest - Fraction(float(rest))))
    sine, cosine = np.sin(angle), np.cos(angle)
    values = [(sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine)][quarters % 4]
    return values[0] / values[1] if name == "tan" else values[name == "cos"]


def _arguments(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    largest = 1024 if dtype == "float64" else 128
    exponents = np.concatenate([rng.uniform(-30, largest, 400), rng.uniform(0, 64, 400)])
    x = np.ldexp(1 + rng.random(800), exponents.astype(int) - 1) * rng.choice([-1.0, 1.0], 800)
    if dtype == "float32":
        return x.astype(np.float32)
    turns = rng.integers(1, 2**45, 200) * (math.pi / 2)  # as near to zeros as rounding is
    edges = [1e19, 5e15, 1e300, np.finfo(np.float64).max, NEAREST, 2.0**30, 2.0**31, 2.0**52,
             2.0**53 + 2, 2.0**68]
    return np.concatenate([x, turns, edges])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_size_of_angle(dtype: str) -> None:
    x = _arguments(dtype)
    module = weft.compile(weft.parse(
        f"def @main(%x: Tensor[({len(x)},), {dtype}]) {{ (sin(%x), cos(%x), tan(%x)) }}"))
    for name, limit, found in zip(("sin", "cos", "tan"), (2, 2, 2), module(x), strict=True):
        exact = np.array([_reference(name, float(v)) for v in x])
        unit = np.spacing(np.abs(exact).astype(dtype)).astype(np.longdouble)
        error = np.abs(np.asarray(found).astype(np.longdouble) - exact) / unit
        worst = int(np.argmax(error))
        assert error[worst] <= limit, f"{name}({x[worst]!r}) is off by {error[worst]} units"


@pytest.mark.parametrize("size", [1, 7, 64])
def test_large_angles_beside_small_ones(size: int) -> None:
    x = np.resize([0.5, 1e19, np.inf, np.nan, -0.0, -3e200], size)
    module = weft.compile(weft.parse(
        f"def @main(%x: Tensor[({size},), float64]) {{ (sin(%x), cos(%x)) }}"))
    with np.errstate(invalid="ignore"):
        for found, expected in zip(module(x), (np.sin(x), np.cos(x)), strict=True):
            np.testing.assert_array_max_ulp(np.nan_to_num(found), np.nan_to_num(expected), 2)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            np.testing.assert_array_equal(np.signbit(found)[x == 0], np.signbit(expected)[x == 0])


def test_the_evaluator_agrees() -> None:
    x = Var("x", float64)
    for value in (1e19, NEAREST, -1e300):
        found = evaluate_expr(DECOMPOSITIONS["cos"](x), {x: np.float64(value)})
        assert abs(float(found) - float(_reference("cos", value))) <= 2 * np.spacing(abs(found))
