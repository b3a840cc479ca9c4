"""Source locations: a line of text, a Python frame, or a node of an imported model."""

from __future__ import annotations

import linecache
import re
import sys
from dataclasses import field
from pathlib import Path

from weft.support.dataclass import dataclass

_WORD = re.compile(r"[%@]?[\w.]+")
# A line of base64 or a generated one-liner is cut to the surroundings of the location.
_SHOWN_BEFORE, _SHOWN = 60, 100
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True)
class Span:
    """A location in ``source`` (a file, ``<text>``, or a model); line and column count from 1.

    ``node`` names the node of an imported model (``Conv_3 (Conv)``). ``end_line`` and
    ``end_column``, if known, are one past the last character. ``text`` is the first line itself,
    for sources that cannot be read again.
    """

    source: str
    line: int | None = None
    column: int | None = None
    node: str | None = None
    end_line: int | None = None
    end_column: int | None = None
    text: str | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        text = self.source
        if self.line is not None:
            text += f":{self.line}"
            if self.column is not None:
                text += f":{self.column}"
        return f"{text} (node {self.node})" if self.node else text

    @property
    def tensor(self) -> str | None:
        """The name of a stored tensor of an imported model; ``None`` for lines and for nodes, whose
        labels end with the operator in parentheses.
        """
        node = self.node
        return None if self.line is not None or not node or node.endswith(")") else node

    def excerpt(self) -> tuple[str, ...]:
        """The first line, with carets below the location; empty without its text."""
        if self.line is None:
            return ()
        text = self.text if self.text is not None else linecache.getline(self.source, self.line)
        if not text.strip():
            return ()
        text = text.rstrip("\n")
        end = self.end_column if self.end_line == self.line else len(text) + 1
        return caret_lines(text, self.column, end if self.end_line is not None else None)

    def fields(self) -> list[str | int | None]:
        """Source, line, column and node, and the end if known: the form in files."""
        end = [] if self.end_line is None else [self.end_line, self.end_column]
        return [self.source, self.line, self.column, self.node, *end]

    @staticmethod
    def of_caller() -> Span | None:
        """The nearest Python frame outside the weft package."""
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller's line
        while frame is not None:
            filename = frame.f_code.co_filename
            if not filename.startswith(_PACKAGE_ROOT):
                return Span(filename, frame.f_lineno)
            frame = frame.f_back
        return None


def caret_lines(text: str, column: int | None, end: int | None = None) -> tuple[str, ...]:
    """``text``, and carets below the text from ``column`` (from 1), as lines to print.

    The carets end before the column ``end``, or span one word.
    """
    if column is None:
        return (f"| {text.strip()[:_SHOWN]}",)
    first = max(0, column - _SHOWN_BEFORE)
    room = first + _SHOWN - (column - 1)
    if end is None:
        word = _WORD.match(text, column - 1)
        end = word.end() + 1 if word else column + 1
    width = max(1, min(end - column, room))
    shown = text[first : first + _SHOWN].rstrip()
    return f"| {shown}", f"| {' ' * (column - 1 - first)}{'^' * width}"
