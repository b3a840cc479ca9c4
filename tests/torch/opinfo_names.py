"""Which operators of torch's samples are excluded, and what is expected of the others."""

from __future__ import annotations

from pathlib import Path

# Element type, and whether gradients are recorded: the columns of ``OPERATORS``.
CONFIGURATIONS = (("float32", False), ("float32", True), ("int64", False), ("bool", False))
EXCLUSIONS = Path(__file__).with_name("opinfo_exclusions.txt")
OPERATORS = Path(__file__).with_name("opinfo_operators.txt")


def load_lines(path: Path) -> dict[str, str]:
    """``name: text`` a line; lines that begin with # are comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return dict(pairs)


def load_expected() -> dict[str, tuple[str, ...]]:
    """For each operator ``computed``, ``torch`` or ``-`` (no samples) by configuration."""
    return {name: tuple(text.split()) for name, text in load_lines(OPERATORS).items()}
