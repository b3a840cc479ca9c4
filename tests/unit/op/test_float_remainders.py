"""Remainders and whole quotients of floats: equal to NumPy's for every pair, bit by bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.ir.dtype import DType
from weft.tir import expr as x
from weft.tir.eval import evaluate_expr
from weft.tir.expr import Var

SIZE = 6007  # no multiple of a vector
CALLS = {"floor_divide": np.floor_divide, "floor_mod": np.remainder, "mod": np.fmod}


def _numbers(dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Any bits, ordinary numbers, and ends of the type, a third of each."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    info = ml_dtypes.finfo(kind)
    word = np.dtype(f"u{kind.itemsize}")
    anything = rng.integers(0, np.iinfo(word).max, SIZE, word, endpoint=True).view(kind)
    ordinary = (rng.standard_normal(SIZE) * 10.0 ** rng.integers(-3, 4, SIZE)).astype(kind)
    ends = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, float(info.max), 0.1, 3, -9,
                     float(info.smallest_subnormal), float(info.smallest_normal)]).astype(kind)
    which = rng.integers(0, 3, SIZE)
    return np.choose(which, [anything, ordinary, rng.choice(ends, SIZE)]).astype(kind)


def _expected(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By NumPy; of bfloat16 through float32, in which its remainders are exact."""
    wide = np.float32 if a.dtype == ml_dtypes.bfloat16 else a.dtype
    with np.errstate(all="ignore"):
        return CALLS[name](a.astype(wide), b.astype(wide)).astype(a.dtype)


def _assert_equal_bits(found: np.ndarray, expected: np.ndarray, where: str) -> None:
    same = (found == expected) & (np.signbit(found) == np.signbit(expected))
    same |= np.isnan(found) & np.isnan(expected)
    wrong = np.flatnonzero(~same)
    assert not wrong.size, f"{where}: {found[wrong[:3]]} for {expected[wrong[:3]]} at {wrong[:3]}"


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])  # the second without fma
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_quotient_is_exact(dtype, target):
    rng = np.random.default_rng(0)
    a, b = _numbers(dtype, rng), _numbers(dtype, rng)
    a[:3], b[:3] = [1.0, -1.0, 1.0], [0.1, 0.1, -0.1]
    text = (f"def @main(%a: Tensor[({SIZE},), {dtype}], %b: Tensor[({SIZE},), {dtype}]) "
            f"{{ ({', '.join(f'{name}(%a, %b)' for name in CALLS)}) }}")
    found = weft.compile(weft.parse(text), target=target, threads=1)(a, b)
    for name, values in zip(CALLS, found, strict=True):
        _assert_equal_bits(np.asarray(values), _expected(name, a, b), f"{name} {dtype}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_evaluator_agrees(dtype):
    a, b = Var("a", DType.of(dtype)), Var("b", DType.of(dtype))
    kind = np.dtype(dtype).type
    for one, other in [(1.0, 0.1), (-1.0, 0.1), (5.0, np.inf), (-5.0, np.inf), (1e30, 7e-20)]:
        values = {a: kind(one), b: kind(other)}
        found = [evaluate_expr(x.FloorDiv(a, b), values), evaluate_expr(x.FloorMod(a, b), values)]
        with np.errstate(all="ignore"):
            assert found == [np.floor_divide(kind(one), kind(other)),
                             np.remainder(kind(one), kind(other))]
