"""docs/machine_model.md: its programs give what it says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.docs.coverage_page import ROOT

PAGE = ROOT / "docs" / "machine_model.md"


def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"),
                        re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=failures.append)
    assert not failures, "".join(failures)
    assert len(test.examples) > 10
