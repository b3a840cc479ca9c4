"""docs/tensors.md: its programs give what it says."""

from __future__ import annotations

import pytest

from tests.docs.page_programs import run_page


@pytest.mark.slow
def test_programs() -> None:
    assert run_page("tensors") > 30
