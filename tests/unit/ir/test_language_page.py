"""The page about the language: every program in it is run."""

from __future__ import annotations

import doctest
import itertools
import re
from pathlib import Path

import pytest

from weft import op
from weft.ir import assert_structural_equal, infer_type, parse, verify_module
from weft.support.errors import WeftError

PAGE = Path(__file__).parents[3] / "docs" / "language.md"
BLOCKS = re.findall(r"^```([\w-]+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


@pytest.mark.parametrize("text", blocks("weft"), ids=lambda t: t.split("\n")[0])
def test_programs(text):
    assert op.add.inputs == ("lhs", "rhs")  # the catalogue of operators is imported
    mod = infer_type(parse(text))
    verify_module(mod)
    assert_structural_equal(parse(str(mod)), mod)


@pytest.mark.parametrize(
    ("text", "message"),
    [(b[1], after[1]) for b, after in itertools.pairwise(BLOCKS) if b[0] == "weft-wrong"],
)
def test_wrong_programs(text, message):
    with pytest.raises(WeftError) as caught:
        infer_type(parse(text))
    assert caught.value.render() == message.rstrip("\n")


def test_sessions(tmp_path, monkeypatch):
    (module,) = blocks("python-file")
    (tmp_path / "docs_example.py").write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    session = "\n".join(blocks("python"))
    test = doctest.DocTestParser().get_doctest(session, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 30
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=failures.append)
    assert not failures, "".join(failures)
