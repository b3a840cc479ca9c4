"""docs/grammar.md names every word and mark of the parser, and defines what it uses."""

from __future__ import annotations

import re

from tests.docs.coverage_page import ROOT
from tests.docs.page_programs import run_page
from weft.ir.text import parse_expr, parse_types
from weft.ir.text.values import SCALAR_SUFFIXES

PAGE = (ROOT / "docs" / "grammar.md").read_text("utf-8")
RULES = "".join(re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TOKENS = {"local", "global", "name", "field", "number", "integer", "string", "dtype"}


def quoted() -> set[str]:
    return set(re.findall(r'"([^"]+)"', RULES))


def test_rules_are_defined_and_used() -> None:
    defined = re.findall(r"^(\w+) +=", RULES, re.MULTILINE)
    used = set(re.findall(r"\w+", re.sub(r'"[^"]+"|^\w+ +=', " ", RULES, flags=re.MULTILINE)))
    assert len(set(defined)) == len(defined)
    assert used - {"list"} == {*defined, *TOKENS} - {"module"}
    assert {name for name in TOKENS if f"`{name}`" in PAGE} == TOKENS


def test_all_words_of_the_parser_are_there() -> None:
    words = {*parse_expr.ExpressionParser._special, *parse_expr._INFIX}
    words |= {*parse_types._WORDS, *parse_types._EXTREMES, *filter(None, SCALAR_SUFFIXES.values())}
    source = (ROOT / "weft" / "ir" / "text").glob("pars*.py")
    text = "".join(path.read_text("utf-8") for path in source)
    words |= set(re.findall(r'(?:accept|expect|at)\("([^"\\]+)"', text)) - {"end", "free_var"}
    assert words - quoted() == set()


def test_the_example_has_every_construct() -> None:
    assert run_page("grammar") > 4
