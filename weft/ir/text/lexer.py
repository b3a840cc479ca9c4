"""The lexer of the text form, and errors that point at a token."""

from __future__ import annotations

import bisect
import re
from dataclasses import replace
from typing import NoReturn

from weft.ir.span import Span, caret_lines
from weft.support.errors import ParseError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<local>%[A-Za-z0-9_]+)
  | (?P<global>@(?:[A-Za-z_]\w*|"(?:[^"\\]|\\.)*"))
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<field>\.\d+)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[a-z]\w*)?)
  | (?P<sized>(?u:[^\W\d]\w*)\{\d+\.\.\d*(?:%\d+)?\})
  | (?P<name>(?u:[^\W\d]\w*)(?:\.[A-Za-z_]\w*)*)
  | (?P<mark>->|=>|\#\[|[=!<>]=|[()\[\]{}:;,=*+?<>/-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
END = "end of text"


class Tokens:
    """The tokens of a text and a read position; ``kind`` and ``text`` describe the next token."""

    def __init__(self, source_text: str, source: str) -> None:
        self.source_text = source_text
        self.source = source
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", source_text))]
        self._lines: dict[int, str] = {}  # each line once, shared by all spans on it
        self._kinds: list[str] = []
        self._texts: list[str] = []
        self._offsets: list[int] = []
        self._scan()
        self.position = 0

    def _scan(self) -> None:
        offset, size = 0, len(self.source_text)
        while offset < size:
            match = _TOKEN.match(self.source_text, offset)
            if match is None:
                self.fail("unexpected character", offset=offset)
            kind = str(match.lastgroup)
            if kind != "space":
                self._kinds.append(kind)
                self._texts.append(match.group())
                self._offsets.append(offset)
            offset = match.end()
        self._kinds.append("end")
        self._texts.append(END)
        self._offsets.append(size)

    @property
    def kind(self) -> str:
        return self._kinds[self.position]

    @property
    def text(self) -> str:
        return self._texts[self.position]

    @property
    def offset(self) -> int:
        return self._offsets[self.position]

    def following(self, distance: int = 1) -> str:
        """The text of the token ``distance`` tokens ahead."""
        return self._texts[min(self.position + distance, len(self._texts) - 1)]

    def next(self) -> str:
        """Consume one token and return its text."""
        text = self._texts[self.position]
        if self.position < len(self._texts) - 1:
            self.position += 1
        return text

    def at(self, text: str) -> bool:
        """Whether the next token is the mark or word ``text``."""
        return self._texts[self.position] == text and self.kind != "string"

    def accept(self, text: str) -> bool:
        """Consume ``text`` if it is the next token."""
        if self.at(text):
            self.next()
            return True
        return False

    def expect(self, text: str, why: str = "") -> None:
        """Consume ``text``; raises ``ParseError`` for any other token."""
        if not self.accept(text):
            self.fail(why or "unexpected token", expected=repr(text))

    def expect_kind(self, kind: str, expected: str) -> str:
        """Consume a token of ``kind``, which ``expected`` describes in words."""
        if self.kind != kind:
            self.fail("unexpected token", expected=expected)
        return self.next()

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Line and column, counted from 1."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def span(self) -> Span:
        """The span of the next token."""
        line, column = self.line_and_column(self.offset)
        return Span(self.source, line, column, text=self._line(line))

    def since(self, start: Span) -> Span:
        """The span from ``start`` to the end of the last consumed token."""
        last = self.position - 1
        line, column = self.line_and_column(self._offsets[last] + len(self._texts[last]))
        return replace(start, end_line=line, end_column=column)

    def _line(self, number: int) -> str:
        if number not in self._lines:
            start = self._line_starts[number - 1]
            end = self.source_text.find("\n", start)
            self._lines[number] = self.source_text[start : end if end >= 0 else None]
        return self._lines[number]

    def offset_of(self, span: Span) -> int:
        """The inverse of ``span``."""
        return self._line_starts[(span.line or 1) - 1] + (span.column or 1) - 1

    def fail(self, what: str, *, expected: object = None, got: object = None,
             offset: int | None = None, help: str | None = None) -> NoReturn:
        """Raise ``ParseError`` that shows the line with a caret below the token."""
        at = self.offset if offset is None else offset
        line, column = self.line_and_column(at)
        if got is None and offset is None:
            got = self.text if self.kind == "end" else repr(self.text)
        raise ParseError(what, where=f"{self.source}:{line}:{column}", expected=expected, got=got,
                         notes=caret_lines(self._line(line), column), help=help)
