"""docs/tensors.md: its programs give what it says."""

from __future__ import annotations

import doctest
import re

import pytest

from tests.docs.coverage_page import ROOT

PAGE = ROOT / "docs" / "tensors.md"


@pytest.mark.slow
def test_programs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"),
                        re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)
    assert not failures, "".join(failures)
    assert len(test.examples) > 30
