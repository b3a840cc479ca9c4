"""docs/codegen.md: its programs give what it says."""

from __future__ import annotations

import doctest
import re

import pytest

from tests.docs.coverage_page import ROOT
from weft.transform.external.codegen import EXTERNAL_CODEGENS

PAGE = ROOT / "docs" / "codegen.md"


@pytest.fixture
def generators():
    """Forget the generators that the page registers."""
    before = set(EXTERNAL_CODEGENS)
    yield
    for name in set(EXTERNAL_CODEGENS) - before:
        EXTERNAL_CODEGENS.remove(name)


@pytest.mark.usefixtures("generators")
def test_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"),
                        re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 15
    failures: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    doctest.DocTestRunner(optionflags=flags).run(test, out=failures.append)
    assert not failures, "".join(failures)
