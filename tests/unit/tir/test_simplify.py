"""The simplifier: known results, and agreement with exhaustive evaluation on small domains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.ir.dtype import float32
from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate
from weft.tir.expr import (
    TRUE,
    PrimExpr,
    Var,
    all_of,
    any_of,
    const,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
    not_,
    select,
)
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer, simplify
from weft.tir.stmt import BufferStore, For, ForKind, SeqStmt, Stmt

M, J, K, FREE = (Var(name) for name in "ijkn")
RANGES = {M: (0, 5), J: (-3, 4), K: (0, 16)}


def analyzer() -> Analyzer:
    made = Analyzer()
    for var, (low, high) in RANGES.items():
        made.bind(var, low, high - low)
    return made


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((M * 16 + K) // 16, "i"),
        ((M * 16 + K) % 16, "k"),
        ((M * 64 + K * 2 + 1) // 32, "i * 2"),
        ((M * 8 + K) // 4 % 2, "k // 4 % 2"),
        (M // 4 * 4 + M % 4, "i"),
        (K - K // 4 * 4, "k % 4"),
        (K // 2 // 3, "k // 6"),
        ((K + 5) // 9 * 9 + (K + 5) // 3 % 3 * 3 + (K + 5) % 3, "k + 5"),
        (M + M + J - M, "i + j"),
        (M * 16 + K < 80, "True"),
        (M * 2 + 3 < 8, "i < 3"),
        (minimum(M, 7), "i"),
        (maximum(J, -3), "j"),
        (select(M < 3, minimum(M, 3), 9), "select(i < 3, i, 9)"),
        (all_of(M < 3, M < 7), "i < 3"),
        (not_(M < 3), "i >= 3"),
        (K.equal(20), "False"),
    ],
)
def test_canonical_form(before: PrimExpr, after: str) -> None:
    assert str(analyzer().simplify(before)) == after


def test_symbolic_extents() -> None:
    made = Analyzer()
    rows, columns = Var("rows"), Var("columns")
    for size in (rows, columns):
        made.bind(size, 1, None)
    made.bind(M, 0, rows)
    made.bind(J, 0, columns)
    flat = M * columns + J
    assert made.can_prove(columns > J)
    assert made.can_prove(flat < rows * columns)
    assert made.simplify(flat // columns) is M
    assert made.simplify(flat % columns) is J
    assert made.can_prove(columns // 16 * 16 <= columns)
    assert not made.can_prove(columns > M)


def test_constraint_holds_only_inside() -> None:
    made = analyzer()
    with made.constraint(all_of(M < 2, J >= M)):
        assert made.int_bounds(M) == (0, 1)
        assert made.can_prove(J >= 0)
    assert made.int_bounds(M) == (0, 4)
    assert not made.can_prove(J >= 0)


def test_bounds_of_unbound_variables_are_open() -> None:
    made = analyzer()
    assert made.int_bounds(FREE) == (None, None)
    assert made.int_bounds(FREE % 8) == (0, 7)
    assert made.int_bounds(M * 4 - J) == (-3, 19)


def test_binding_again_changes_what_follows() -> None:
    made = Analyzer()
    assert str(made.simplify(FREE // 8)) == "n // 8"
    made.bind(FREE, 0, 8)
    assert made.simplify(FREE // 8) is const(0)
    made.bind(FREE, 8, 8)
    assert made.simplify(FREE // 8) is const(1)


def test_floats_keep_their_bits() -> None:
    value = Var("x", const(0.0, "float32").dtype)
    assert simplify(value * 1.0) is value
    assert simplify(value - 0.0) is value
    assert str(simplify(value + 0.0)) == "x + 0.0"
    assert str(simplify(not_(value < 1.0))) == "not x < 1.0"


CONSTANTS = st.integers(-20, 20)
LEAVES = st.sampled_from([M, J, K]) | CONSTANTS.map(const)


def arithmetic(children: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    divisors = st.integers(1, 17).map(const)
    return st.one_of(
        st.builds(lambda a, b: a + b, children, children),
        st.builds(lambda a, b: a - b, children, children),
        st.builds(lambda a, b: a * b, children, CONSTANTS.map(const)),
        st.builds(floordiv, children, divisors),
        st.builds(floormod, children, divisors),
        st.builds(minimum, children, children),
        st.builds(maximum, children, children),
        st.builds(lambda a, b, c, d: select(a < b, c, d), children, children, children, children),
        st.builds(
            lambda a, b, c, d: if_then_else(a.equal(b), c, d),
            children, children, children, children,
        ),
    )  # fmt: skip


NUMBERS = st.recursive(LEAVES, arithmetic, max_leaves=12)
COMPARISONS = st.builds(
    lambda a, b, how: getattr(a, how)(b),
    NUMBERS,
    NUMBERS,
    st.sampled_from(["__lt__", "__le__", "__gt__", "__ge__", "equal", "not_equal"]),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda c: st.one_of(st.builds(all_of, c, c), st.builds(any_of, c, c), st.builds(not_, c)),
    max_leaves=4,
)
SIZES = tuple(high - low for low, high in RANGES.values())


def tabulate(*expressions: PrimExpr) -> list[np.ndarray]:
    """The values of expressions at every point of the domain, by the evaluator."""
    tables = [buffer(f"t{n}", SIZES, e.dtype) for n, e in enumerate(expressions)]
    place = tuple(v - low for v, (low, _) in zip(RANGES, RANGES.values(), strict=True))
    body: Stmt = SeqStmt(tuple(
        BufferStore(t, e, place) for t, e in zip(tables, expressions, strict=True)))
    for variable, (low, high) in reversed(RANGES.items()):
        body = For(variable, const(low), const(high - low), ForKind.SERIAL, body)
    arrays = [np.zeros(SIZES, e.dtype.numpy) for e in expressions]
    evaluate(PrimFunc("tabulate", tuple(tables), body), *arrays)
    return arrays


def assert_same_everywhere(before: PrimExpr, after: PrimExpr, where: PrimExpr = TRUE) -> None:
    expected, found, meant = tabulate(before, after, where)
    wrong = np.argwhere(meant & (expected != found))
    if wrong.size:
        point = [low + int(i) for i, (low, _) in zip(wrong[0], RANGES.values(), strict=True)]
        raise AssertionError(f"{before} became {after}, at {point}")


@given(NUMBERS)
@settings(max_examples=150, deadline=None)
def test_numbers_keep_their_value(e: PrimExpr) -> None:
    made = analyzer()
    assert_same_everywhere(e, made.simplify(e))
    low, high = made.int_bounds(e)
    (found,) = tabulate(e)
    assert low is not None
    assert high is not None
    assert low <= found.min() <= found.max() <= high


@given(CONDITIONS)
@settings(max_examples=150, deadline=None)
def test_conditions_keep_their_value(e: PrimExpr) -> None:
    assert_same_everywhere(e, analyzer().simplify(e))


@given(CONDITIONS, NUMBERS)
@settings(max_examples=100, deadline=None)
def test_values_under_a_constraint(condition: PrimExpr, e: PrimExpr) -> None:
    made = analyzer()
    with made.constraint(condition):
        after = made.simplify(e)
    assert_same_everywhere(e, after, where=condition)


def test_ranges_bound_under_a_condition_end_with_it():
    i, o = Var("i"), Var("o")
    analyzer = Analyzer()
    analyzer.bind(i, 0, 4)
    analyzer.bind(o, i, const(4) - i)
    with analyzer.constraint(i < 3):
        analyzer.bind(o, const(2) - i, i)
    analyzer.bind(o, 0, 4)
    assert not analyzer.can_prove(o >= i)
    assert not analyzer.can_prove(i >= 1)


def test_reads_in_a_select_stay_guarded_whichever_side_is_chosen():
    i = Var("i")
    data = Buffer("data", (const(4),), float32)
    guarded = data.load(maximum(i, 0))
    chosen = select(i >= 0, guarded, const(0.0, float32))
    assert simplify(chosen) is chosen
    skipped = if_then_else(i >= 0, guarded, const(0.0, float32))
    assert str(simplify(skipped)) == "if_then_else(i >= 0, data[i], 0.0)"
