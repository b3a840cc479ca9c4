"""Writes the part of docs/frontends.md about the operators of TensorFlow Lite.

``python -m tests.unit.frontend.tflite.operator_table`` brings the page up to date.
"""

from __future__ import annotations

from pathlib import Path

from tflite.BuiltinOperator import BuiltinOperator

from weft.frontend.tflite import converters  # noqa: F401 - fills the table
from weft.frontend.tflite.refused import REFUSED
from weft.frontend.tflite.registry import CONVERTERS

PAGE = Path(__file__).parents[4] / "docs" / "frontends.md"
_BEGIN, _END = "<!-- tflite: begin -->\n", "\n<!-- tflite: end -->"


def operators() -> list[str]:
    """The names of the builtin operators."""
    return sorted(name for name, value in vars(BuiltinOperator).items()
                  if isinstance(value, int) and name[0] != "_")


def table() -> str:
    """How many are converted, and why the others are not."""
    names = operators()
    found = [n for n in names if CONVERTERS.find(n) is not None]
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name not in found:
            reasons.setdefault(REFUSED[name], []).append(f"`{name}`")
    rows = [f"| {', '.join(group)} | {reason} |" for reason, group in sorted(
        reasons.items(), key=lambda item: item[1])]
    builtin = len(names) - ("CUSTOM" in names)
    head = f"weft converts {len(found)} of the {builtin} builtin operators of the schema:"
    return "\n".join([head, "", "| not converted | because |", "|---|---|", *rows])


def updated(text: str) -> str:
    """The page with the table."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{table()}{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
