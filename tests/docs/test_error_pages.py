"""Every error code has one class and one page, whose program raises what the page shows."""

from __future__ import annotations

import ast
import doctest
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.docs.coverage_page import ROOT
from tests.docs.error_programs import message_of, program_of
from weft.cli.explain import error_pages, summary_of

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# Errors without a code of their own that never reach a user, and where they are caught.
INTERNAL = {"ComplexOperandError": "weft/eager/record.py"}


def without_code(tree: ast.Module) -> list[str]:
    """The classes of a module that derive from ``WeftError`` itself and have no code."""
    coded = {name for _, name in codes_in(tree)}
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id == "WeftError" for base in node.bases)
            and node.name not in coded | INTERNAL.keys()]


def codes_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The classes of a module with a ``code`` of their own."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Error"):
            continue
        for part in node.body:
            target = part.targets[0] if isinstance(part, ast.Assign) else \
                part.target if isinstance(part, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and target.id == "code" \
                    and isinstance(part.value, ast.Constant):
                yield str(part.value.value), node.name


@pytest.fixture(scope="module")
def classes() -> dict[str, list[str]]:
    """The classes by their codes; those without one are under the empty code."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "weft").rglob("*.py")):
        text = path.read_text("utf-8")
        if "Error):" in text or "Exception):" in text or "MemoryError):" in text:
            tree = ast.parse(text)
            for code, name in (*codes_in(tree), *(("", name) for name in without_code(tree))):
                found.setdefault(code, []).append(name)
    return found


def test_codes_have_one_class_and_one_page(classes: dict[str, list[str]]) -> None:
    assert classes.get("", []) == [], "errors without a code of their own"
    pages = {code: [summary_of(page)[0]] for code, page in error_pages().items()}
    assert pages == classes, "a page for each: weft/cli/error_pages/CODE.md"


def test_an_error_without_a_code_is_found() -> None:
    tree = ast.parse("class NewError(WeftError): ...\nclass OldError(WeftError): code = 'E0001'")
    assert without_code(tree) == ["NewError"]


def test_pages_have_a_program_or_say_why_not() -> None:
    for code, page in error_pages().items():
        assert ("## A program that raises it" in page) == (program_of(page) is not None), code
        assert program_of(page) or "No program here raises it: " in page, code
        assert "## What to do" in page, code


def test_programs_raise_what_the_pages_show() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "tests.docs.error_programs"],
                          capture_output=True, text=True, check=True, cwd=ROOT)
    raised = json.loads(done.stdout)
    checker = doctest.OutputChecker()
    for code, page in error_pages().items():
        if program_of(page) is None:
            continue
        assert raised[code] is not None, f"{code}: nothing is raised\n{done.stderr}"
        name, number, message = raised[code]
        assert (name, number) == (summary_of(page)[0], code)
        assert checker.check_output(message_of(page), f"{message}\n", FLAGS), message
