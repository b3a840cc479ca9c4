"""Texts of sizes: what they compute, and that no other text becomes code."""

from __future__ import annotations

import contextlib
import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.runtime.sizes import MAX_SIZE, evaluate, names_in, parsed, table_function
from weft.support.errors import ArtifactError

SYMBOLS = {"n": 7, "batch": 3, "if": 5, "__class__": 2, "max": 9, "s_n": 4}

TEXTS = st.recursive(
    st.one_of(st.integers(0, 1 << 40).map(str), st.sampled_from(sorted(SYMBOLS))),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", "-", "*"]), inner).map("".join),
        inner.map("({})".format), inner.map("-({})".format),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: f"floordiv({p[0]}, {p[1]})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda p: f"max ({', '.join(p)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda p: f"min({', '.join(p)})")),
    max_leaves=12)


def oracle(text: str) -> int:
    """The value by Python, with symbols that are no keywords."""
    plain = text.replace("if", "v_if").replace("max (", "MAX(").replace("max", "v_max") \
        .replace("MAX(", "max(")
    names = {"v_if": SYMBOLS["if"], "v_max": SYMBOLS["max"], "floordiv": lambda a, b: a // b}
    return eval(plain, {}, {**SYMBOLS, **names, "max": max})


@given(TEXTS)
def test_values_are_those_of_python(text: str) -> None:
    expected = oracle(text)
    assert evaluate(text, SYMBOLS) == expected
    if expected <= MAX_SIZE:
        assert table_function([text, "_0 + 1"], list(SYMBOLS))(SYMBOLS)[0] == expected


def test_every_word_of_python_is_a_name() -> None:
    for word in (*keyword.kwlist, *keyword.softkwlist, "__import__", "ﬁ", "é", "floordiv"):
        text = f"{word}*2 + floordiv({word}, 2)"
        assert evaluate(text, {word: 6}) == 15
        assert names_in(text) == {word}
        assert table_function([text, "_0"], [word])({word: 6}) == (15, 15)


HOSTILE = [
    "", " ", "()", "n n", "2n", "1_000", "0x10", "1.5", "1e3", "n.real", "n[0]", "[n]", "{n}",
    "n if n else 1", "n or 1", "not n", "n < 1", "lambda: 1", "(n := 3)", "n = 3", "n\nn", "n#",
    "~n", "+n", "n ** 9", "n % 2", "n / 2", "n << 9", "*n", "'n'", "f'{n}'", "n\0", "n;n",
    "print(n)",
    "__import__('os')", "__import__(n)", "eval(n)", "().__class__", "max", "max()", "max(n)",
    "max(*n)", "max(n, key=n)", "min(n, n)(n)", "floordiv(n)", "floordiv(n, 1, 1)",
    "(max)(n, n)", "-" * 5000 + "n", "(" * 5000 + "n" + ")" * 5000, "+".join(["n"] * 5000),
    "max(n, " * 1500 + "n" + ")" * 1500, "9" * 30_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:20]))
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ArtifactError):
        evaluate(text, {"n": 3})
    with pytest.raises(ArtifactError):
        table_function([text], ["n"])({"n": 3})


@given(st.text(alphabet="nm_09 +-*/(),.:=[]{}'\"\n\\@%<>maxinfloordiv", max_size=40))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    try:
        names = names_in(text)
    except ArtifactError:
        return
    with contextlib.suppress(ArtifactError):  # a division by zero
        assert type(evaluate(text, dict.fromkeys(names, 3))) is int


def test_unknown_symbols_and_divisions_by_zero() -> None:
    for text in ("m", "n + m", "n // 0", "floordiv(n, n - 3)"):
        with pytest.raises(ArtifactError, match="cannot be computed"):
            evaluate(text, {"n": 3})


def test_entries_of_a_table_do_not_grow_without_end() -> None:
    squares = ["n*n", *(f"_{k}*_{k}" for k in range(60))]
    assert table_function(squares[:3], ["n"])({"n": 9})[-1] == 9 ** 8
    with pytest.raises(OverflowError):
        table_function(squares, ["n"])({"n": 9})


def test_trees_hold_the_names_of_the_text() -> None:
    assert names_in("2*if*floordiv(__x + é, 2)") == {"if", "__x", "é"}
    assert names_in(3) == frozenset()
    assert parsed("n").body.id == "n"
