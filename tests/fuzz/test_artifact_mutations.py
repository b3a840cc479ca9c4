"""Damaged and edited artifacts: none crashes, hangs, or computes something else unnoticed."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.artifact_mutations import run


def test_mutations_of_every_kind(tmp_path: Path) -> None:
    """A sample; ``python -m tests.fuzz.artifact_mutations 10000`` runs more."""
    found = run(160, 1 << 20, tmp_path)
    assert found["refused"] > 80
    assert found["harmless"] + found["loaded"] > 0
