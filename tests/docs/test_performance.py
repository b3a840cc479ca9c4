"""docs/performance.md: its programs give what it says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.docs.page_programs import run_page


@pytest.mark.slow
def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    assert run_page("performance", flags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE) > 10
