"""Where a node comes from: a line of text, a Python frame, or a node of an imported model."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True)
class Span:
    """A place in ``source`` (a file, ``<text>``, or a model); line and column count from 1.

    ``node`` names the node of an imported model (``Conv_3 (Conv)``).
    """

    source: str
    line: int | None = None
    column: int | None = None
    node: str | None = None

    def __str__(self) -> str:
        text = self.source
        if self.line is not None:
            text += f":{self.line}"
            if self.column is not None:
                text += f":{self.column}"
        return f"{text} (node {self.node})" if self.node else text

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
