"""docs/dynamic_shapes.md: its programs give what it says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.docs.coverage_page import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = ROOT / "docs" / "dynamic_shapes.md"


def run_blocks(*, torch: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the blocks, those with torch too if asked; the number of examples."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"),
                        re.MULTILINE | re.DOTALL)
    chosen = [block for block in blocks if torch or "torch" not in block]
    test = doctest.DocTestParser().get_doctest("\n".join(chosen), {}, PAGE.name, str(PAGE), 0)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)
    assert not failures, "".join(failures)
    return len(test.examples)


@pytest.mark.slow
def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    assert run_blocks(torch=False, folder=tmp_path, monkeypatch=monkeypatch) > 40


@pytest.mark.torch
@pytest.mark.slow
def test_programs_with_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    assert run_blocks(torch=True, folder=tmp_path, monkeypatch=monkeypatch) > 43
