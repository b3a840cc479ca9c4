"""Which changes of public names break programs, and how ``tools/api_record.py`` says it."""

from __future__ import annotations

import pytest

from tools.api_record import RECORD, broken

BEFORE = ["def weft.f(a, b=, *, c=)", "class weft.A(self, x)", "value weft.e"]


@pytest.mark.parametrize("after", [
    "def weft.f(a, b=, *, c=)", "def weft.f(a, b=, d=, *, c=)", "def weft.f(a, b=, *, c=, d=)",
    "def weft.f(a, b=, *, c=, **options)", "def weft.f(a=, b=, *, c=)"])
def test_what_programs_do_not_notice(after):
    assert broken(BEFORE, [after, *BEFORE[1:], "def weft.new()"]) == []


def test_options_by_name_may_become_parameters_by_keyword():
    assert broken(["def weft.f(a, **options)"], ["def weft.f(a, *, b=, **options)"]) == []
    assert broken(["def weft.f(a, *rest)"], ["def weft.f(a, b=, *rest)"]) != []


@pytest.mark.parametrize(("after", "message"), [
    ("def weft.g(a)", "weft.f is gone"), ("class weft.f(a)", "was a function and is a class"),
    ("def weft.f(a, b=)", "took"), ("def weft.f(a, b, *, c=)", "took"),
    ("def weft.f(a, b=, *, c=, d)", "took"), ("def weft.f(d=, a, b=, *, c=)", "took"),
    ("def weft.f(b=, a, *, c=)", "took"), ("def weft.f(a, *, b=, c=)", "took")])
def test_what_breaks_programs(after, message):
    found, = broken(BEFORE, [after, *BEFORE[1:]])
    assert message in found


def test_the_record_names_what_the_first_page_uses():
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines)
    assert {line.partition("(")[0] for line in lines} >= {
        "def weft.compile", "def weft.load", "class weft.Executable", "def weft.Executable.export",
        "class weft.nn.Linear", "def weft.serving.serve"}
