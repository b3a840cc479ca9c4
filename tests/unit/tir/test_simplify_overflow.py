"""The simplifier knows that data overflows: agreement with the evaluator at the ends of int64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.ir.dtype import DType, int64
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.eval import evaluate
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.stmt import BufferStore, For, ForKind

LOW, HIGH = -(2**63), 2**63 - 1
ENDS = np.array([LOW, LOW + 1, LOW // 2, -3, -2, -1, 0, 1, 2, 3, HIGH // 2, HIGH - 1, HIGH])
SIZE = len(ENDS) ** 2
K = Var("i")
A, B = (buffer(name, (SIZE,), "int64") for name in "ab")
NARROW, UNSIGNED = buffer("narrow", (SIZE,), "int8"), buffer("unsigned", (SIZE,), "uint64")
ARRAYS = [np.repeat(ENDS, len(ENDS)), np.tile(ENDS, len(ENDS))]
ARRAYS += [(ARRAYS[0] % 256).astype(np.uint8).view(np.int8), ARRAYS[1].view(np.uint64)]

DATA = [A.load(K), B.load(K), x.Cast(int64, NARROW.load(K)), x.Cast(int64, UNSIGNED.load(K))]
CLAMPED = [x.minimum(x.maximum(e, 0), limit) for e in DATA for limit in (9, HIGH)]


def _values(e: PrimExpr) -> np.ndarray:
    out = buffer("out", (SIZE,), e.dtype)
    body = For(K, const(0), const(SIZE), ForKind.SERIAL, BufferStore(out, e, (K,)))
    result = np.zeros(SIZE, e.dtype.numpy)
    evaluate(PrimFunc("f", (A, B, NARROW, UNSIGNED, out), body), *ARRAYS, result)
    return result


def _assert_kept(e: PrimExpr) -> None:
    analyzer = Analyzer()
    analyzer.bind(K, 0, SIZE)
    after = analyzer.simplify(e)
    low, high = analyzer.int_bounds(e) if e.dtype is int64 else (None, None)
    values = _values(e)
    np.testing.assert_array_equal(_values(after), values, err_msg=f"{e}  =>  {after}")
    assert low is None or low <= values.min(), f"{e} is at least {low}"
    assert high is None or values.max() <= high, f"{e} is at most {high}"


a, b = DATA[:2]


@pytest.mark.parametrize("e", [
    a + 1 > a, a < a + 1, a - b < 0, (a * 2).equal(b * 2), (a * 2).not_equal(b * 2), a <= b,
    x.minimum(a + 1, a), x.maximum(a - 1, a), (a * 16 + 5) // 16, (a * 3 + 1) % 3,
    (a * 2) // 2, x.maximum(a, 0) + x.maximum(b, 0) >= 0, x.not_(a < b), a + b > b,
    (a // 3 + 5) // 7, (a - HIGH) // 5, x.Cast(int64, NARROW.load(K) + const(1, "int8")) >= -127,
    x.Cast(int64, UNSIGNED.load(K)) >= 0, K + (HIGH - 5) > 0, x.maximum(b, K + (HIGH - 5)),
    x.select(a > 5, a - 6 >= -1, a + HIGH < 0), a // 4 * 4 + a % 4, a - a // 4 * 4,
    x.FloorDiv(a, b) * b + x.FloorMod(a, b), x.FloorMod(a, b) <= b, x.Div(a, b) * 2 // 2,
], ids=str)  # fmt: skip
def test_sums_of_data_are_not_numbers(e: PrimExpr) -> None:
    _assert_kept(e)


def _binary(children: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    operations: list[Callable[[PrimExpr, PrimExpr], PrimExpr]] = [
        x.add, x.sub, x.mul, x.floordiv, x.floormod, x.minimum, x.maximum, x.div]
    return st.builds(lambda f, p, q: f(p, q), st.sampled_from(operations), children, children)


def _chosen(children: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    return st.builds(lambda c, t, f, lazy: (x.if_then_else if lazy else x.select)(c, t, f),
                     _condition(children), children, children, st.booleans())


def _condition(children: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    orders = st.sampled_from([x.LT, x.LE, x.GT, x.GE, x.EQ, x.NE])
    single = st.builds(x.compare, orders, children, children)
    return single | st.builds(x.all_of, single, single) | st.builds(x.not_, single)


LEAVES = (st.sampled_from(DATA) | st.sampled_from(DATA) | st.sampled_from([*CLAMPED, K])
          | st.sampled_from(ENDS.tolist()).map(const) | st.integers(-20, 20).map(const))
NUMBERS = st.recursive(LEAVES, lambda inner: _binary(inner) | _chosen(inner), max_leaves=9)
SLOW = settings(max_examples=150, deadline=None, derandomize=True, database=None,
                suppress_health_check=list(HealthCheck))


@SLOW
@given(NUMBERS)
def test_numbers_keep_their_value(e: PrimExpr) -> None:
    _assert_kept(e)


@SLOW
@given(_condition(NUMBERS))
def test_conditions_keep_their_value(e: PrimExpr) -> None:
    _assert_kept(e)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint64", "int64"])
def test_constants_wrap(name: str) -> None:
    dtype = DType.of(name)
    info = np.iinfo(name)
    top, one = const(info.max, dtype), const(1, dtype)
    assert top + one is const(info.min, dtype)
    assert const(info.min, dtype) - one is top
    assert top * const(2, dtype) is const(-2, dtype)
    assert x.cast(const(-1), dtype) is const(-1, dtype)
    assert x.floordiv(const(info.min, dtype), const(-1, dtype)).dtype is dtype


def test_clamped_indices_are_numbers() -> None:
    """What keeps gathers as fast as they were: a clamped element of data is an index."""
    analyzer, rows = Analyzer(), Var("rows")
    analyzer.bind(rows, 1, None)
    analyzer.bind(K, 0, 16)
    for limit in (const(99), rows - 1):
        index = x.maximum(x.minimum(A.load(K), limit), 0)
        assert analyzer.simplify((index * 16 + K) // 16) is analyzer.simplify(index)
        assert analyzer.can_prove(index * 16 + K >= 0)
    with analyzer.constraint(x.all_of(A.load(K) >= 0, A.load(K) < rows)):
        assert analyzer.simplify((A.load(K) * 16 + K) // 16) is A.load(K)
    assert analyzer.simplify((A.load(K) * 16 + K) // 16) is not A.load(K)
