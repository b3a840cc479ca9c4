"""docs/dynamic_shapes.md: its programs give what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page_programs import run_page

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.slow
def test_programs() -> None:
    pytest.importorskip("onnx")
    assert run_page("dynamic_shapes", chosen=lambda block: "torch" not in block) > 40


@pytest.mark.torch
@pytest.mark.slow
def test_programs_with_torch() -> None:
    pytest.importorskip("torch")
    assert run_page("dynamic_shapes") > 43
