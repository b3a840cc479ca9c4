"""Sentences are short, on pages, in docstrings of public names and in the texts of errors."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.docs.coverage_page import ROOT
from tests.docs.sentences import is_list, sentences
from tools.site.reference_pages import generated_pages

MOST_WORDS = 42


def long_sentences(pages: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {len(sentence.split())} words: {sentence[:80]}..."
            for name, text in pages for sentence in sentences(text)
            if len(sentence.split()) > MOST_WORDS and not is_list(sentence)]


def test_long_sentences_are_found() -> None:
    long, names = "It is " + "very " * 50 + "long.", "`a`, " * 60
    assert long_sentences([("page", f"Short. {long}\n\n```\n{long}\n```\n| {long} |\n\n{names}")]) \
        == [f"page: 53 words: {long[:80]}..."]


def test_sentences_of_pages_are_short() -> None:
    paths = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md"),
             *(ROOT / "docs" / "tutorials").glob("*.md"), ROOT / "README.md",
             ROOT / "CONTRIBUTING.md", *(ROOT / "weft" / "cli" / "error_pages").glob("*.md")]
    assert long_sentences((path.name, path.read_text("utf-8")) for path in paths) == []


@pytest.mark.torch  # some public names belong to its front end
def test_sentences_of_the_reference_are_short() -> None:
    assert long_sentences(generated_pages().items()) == []
