"""Text that is not the language: each error has a location, a caret, and the expected syntax."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ir.test_text import EVERYTHING
from weft.ir import as_text, assert_structural_equal, parse, parse_type
from weft.ir.text.parser import parse_expr
from weft.ir.visitor import post_order
from weft.support.errors import ParseError, WeftError


def error_of(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(text, source="model.ir")
    return caught.value


def test_an_unknown_operator_suggests_another():
    error = error_of("def @main(%x: float32) {\n  nn.rellu(%x)\n}")
    assert error.where == "model.ir:2:3"
    assert error.notes == ("|   nn.rellu(%x)", "|   ^^^^^^^^")
    assert "'nn.relu'" in error.help


def test_an_unknown_variable_lists_those_in_scope():
    error = error_of("def @main(%x: float32) {\n  add(%x, %yy)\n}")
    assert error.where == "model.ir:2:11"
    assert error.expected == "one of %x"


def test_a_variable_is_not_visible_outside_its_branch():
    text = "def @main(%c: bool) { %0 = if (%c) { %1 = exp(1f); %1 } else { 2f }; %1 }"
    assert error_of(text).where == "model.ir:1:70"


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("def @main(%x: float32) { nn.softmax(%x, axis=1.5) }", "wrong type", "int"),
        ("def @main(%x: float32) { nn.softmax(%x, axle=1) }", "no attribute 'axle'", "axis"),
        ("def @main(%x: float32) { add(%x) }", "takes 2 arguments", "lhs, rhs"),
        ("def @main(%x: float32) { %x", "unexpected token", "'}'"),
        ("def @main(%x: float32) { let %y = %x %y }", "a let ends with a semicolon", "';'"),
        ("def @main(%x: Tensor[(2) float32]) { %x }", "unexpected token", "','"),
        ("def @main(%x: Tensor[(2,), floaty]) { %x }", "unknown dtype", "dtype"),
        ("def @main(%x: Tensor[(1 - 2,), int8]) { %x }", "dimension is negative", ">= 0"),
        ("def @main() { const([1, 2], (3,), float32) }", "wrong number of elements", "(3,)"),
        ("def @main() { const([300], (1,), int8) }", "out of range of its dtype", "int8"),
        ('def @main() { const("AA", (4,), float32) }', "wrong number of bytes", "Tensor"),
        ("def @main() { 1zz }", "unknown suffix", "f64"),
        ("def @main() { meta[Constant][3] }", "unknown constant 3", "0 constants"),
        ("def @a() { 1f } def @a() { 2f }", "defined twice", None),
        ('#[version = "99"]\ndef @main() { 1f }', "unsupported language version", "1"),
        ("def @main() { 1f } 2f", "expected a definition", "'def'"),
        ("def @main() { match (1f) { Foo() => { 1f } } }", "expected a pattern", "constructor"),
        ('def @main(a="\\q") { 1f }', "escape", None),
        ("def @main() { 1f $ }", "unexpected character", None),
        ("def @main() { exp(1f) loc[1, 2] }", "invalid source location", "[source, line"),
    ],
)
def test_errors_name_the_problem(text, what, expected):
    error = error_of(text)
    assert what in error.what
    if expected is not None:
        assert expected in error.expected
    assert error.where.startswith("model.ir:")
    assert error.notes[1].endswith("^")


def test_damaged_metadata():
    assert "metadata section" in error_of("1f\n#[metadata]\n{nonsense").what
    text = '\nmeta[Constant][0]\n#[metadata]\n{"constants": [{"dtype": "float32"}]}'
    assert "corrupt" in error_of(text).what


def test_a_long_line_is_cut_around_the_place():
    error = error_of("def @main() { " + "add(1f, " * 400 + "oops" + ")" * 400 + " }")
    assert len(error.notes[0]) < 120
    caret = error.notes[1].index("^")
    assert error.notes[0][caret : caret + 4] == "oops"


def test_trailing_text_after_an_expression():
    with pytest.raises(ParseError, match="unexpected text after the expression"):
        parse_expr("1f 2f")


def test_attributes_nested_beyond_reason_are_refused():
    with pytest.raises(ParseError, match="nested too deeply"):
        parse("def @main(%x: float32) { sum(%x, axis=" + "[" * 100_000)


@given(st.integers(0, len(EVERYTHING) - 1), st.sampled_from(["", "(", "}", "%z", "\x00", "9"]))
@settings(max_examples=200, deadline=None)
def test_damaged_text_gives_an_error_of_weft_or_a_module(place, insert):
    text = EVERYTHING[:place] + insert + EVERYTHING[place + 1 :]
    with contextlib.suppress(WeftError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "what", "place"),
    [
        ("type A { X, }\ntype A { Y, }", "data type A is defined twice", "2:1"),
        ("type A { X, }\ntype B { X, }", "constructor X is defined twice", "2:10"),
        (
            "type P { Two(int8, int8), }\ndef @f(%p: P) { match (%p) { Two(%a, %a) => { %a }, } }",
            "binds a variable twice",
            "2:30",
        ),
        ("def @f(%x: int8) { %x }\ndef @f(%x: int8) { %x }", "@f is defined twice", "2:1"),
    ],
)
def test_names_are_given_once(text, what, place):
    error = error_of(text)
    assert what in error.what
    assert error.where == f"model.ir:{place}"


def test_infix_operators_bind_as_in_arithmetic():
    text = "free_var %a: float32; free_var %b: float32; "
    spelled = "less(subtract(add(%a, multiply(%b, %a)), divide(%b, 2f)), 1f)"
    left = parse_expr(text + "%a + %b * %a - %b / 2f < 1f")
    assert_structural_equal(left, parse_expr(text + spelled), map_free_vars=True)
    grouped = parse_expr(text + "(%a + %b) * (%a, %b).1 != -1f")
    spelled = "not_equal(multiply(add(%a, %b), (%a, %b).1), -1f)"
    assert_structural_equal(grouped, parse_expr(text + spelled), map_free_vars=True)


def test_a_minus_sign_before_an_expression_negates_it():
    text = "free_var %a: float32; free_var %b: (float32, float32); "
    spelled = "subtract(multiply(negative(%a), negative(%b.0)), negative(exp(add(%a, -1f))))"
    left = parse_expr(text + "-%a * -%b.0 - -exp(%a + -1f)")
    assert_structural_equal(left, parse_expr(text + spelled), map_free_vars=True)
    twice = parse_expr(text + "- -%a + -(%a, %a).1")
    spelled = "add(negative(negative(%a)), negative((%a, %a).1))"
    assert_structural_equal(twice, parse_expr(text + spelled), map_free_vars=True)
    with pytest.raises(ParseError, match="expected an expression"):
        parse_expr(text + "%a + -")


def test_expressions_know_where_they_end():
    text = "def @main(%x: float32) {\n  let %y = add(%x,\n    1f);\n  (%y * %x, exp(%y).0)\n}"
    main = parse(text, source="a.ir")["main"]
    found = {str(n.span): (n.span.end_line, n.span.end_column) for n in post_order(main.body)
             if n.span is not None and n.span.end_line is not None}
    assert found == {
        "a.ir:2:12": (3, 8), "a.ir:3:5": (3, 7), "a.ir:4:3": (4, 23),
        "a.ir:4:4": (4, 11), "a.ir:4:13": (4, 22),
    }
    excerpts = {str(n.span): n.span.excerpt()[1] for n in post_order(main.body) if n.span}
    assert excerpts["a.ir:4:3"] == "|   ^^^^^^^^^^^^^^^^^^^^"
    assert excerpts["a.ir:2:12"] == "|            ^^^^^^^"  # to the end of its first line
    placed = parse(as_text(parse(text, source="a.ir"), spans=True))["main"]
    again = {str(n.span): (n.span.end_line, n.span.end_column) for n in post_order(placed.body)
             if n.span is not None and n.span.source == "a.ir"}
    assert again["a.ir:2:12"] == (3, 8)


def test_types_are_read_alone():
    assert str(parse_type("fn(Tensor[(n,), int8]) -> (bool,)")) == (
        "fn(Tensor[(n,), int8]) -> (Tensor[(), bool],)"
    )
    with pytest.raises(ParseError, match="unexpected text after the type"):
        parse_type("int8 int8")
