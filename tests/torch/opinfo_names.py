"""Which operators of torch's samples are excluded, and what is expected of the others."""

from __future__ import annotations

from pathlib import Path

EXCLUSIONS = Path(__file__).with_name("opinfo_exclusions.txt")
OPERATORS = Path(__file__).with_name("opinfo_operators.txt")


def load_lines(path: Path) -> dict[str, str]:
    """``name: text`` a line; lines that begin with # are comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return dict(pairs)
