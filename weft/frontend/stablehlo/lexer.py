"""The tokens of MLIR text. Types and literals of tensors are one token each."""

from __future__ import annotations

import bisect
import re

from weft.ir.span import Span
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError

_SHOWN = 2000  # characters of a line
_TOKEN = re.compile(r"""
    (?P<space>(?:\s+|//[^\n]*)+)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<tensor>tensor<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)
  | (?P<literal>dense<"[^"]*">|(?:dense|array|dense_resource)<[^<>]*>)
  | (?P<value>%[\w$.-]+(?:\#\d+)?)
  | (?P<symbol>@(?:[\w$.-]+|"(?:[^"\\]|\\.)*"))
  | (?P<block>\^[\w$.-]+)
  | (?P<alias>\#[\w$.]+)
  | (?P<arrow>->)
  | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
  | (?P<word>!?[A-Za-z_][\w$.]*)
  | (?P<mark>[{}()\[\]<>,:=?*|+/-])
""", re.VERBOSE)


@dataclass(frozen=True, slots=True)
class Token:
    """A token; ``kind`` is ``end`` after the last one, and the text itself for marks."""

    kind: str
    text: str
    offset: int


def tokens_of(text: str, source: str) -> list[Token]:
    """The tokens of ``text``; ``InvalidModelError`` for characters that start none."""
    found: list[Token] = []
    position, end = 0, len(text)
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidModelError("unexpected character in the text of a StableHLO module",
                                    where=span_at(text, position, source),
                                    got=repr(text[position:position + 20]))
        kind = match.lastgroup or ""
        if kind != "space":
            word = match.group()
            found.append(Token(word if kind == "mark" else kind, word, position))
        position = match.end()
    found.append(Token("end", "", end))
    return found


class Lines:
    """The places in a text by position."""

    def __init__(self, text: str, source: str) -> None:
        self._text, self._source = text, source
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def span(self, offset: int) -> Span:
        """The line and column of a position, as ``span_at``."""
        line = bisect.bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        stop = self._starts[line] - 1 if line < len(self._starts) else len(self._text)
        return Span(self._source, line, offset - start + 1,
                    text=self._text[start:min(stop, start + _SHOWN)])


def span_at(text: str, offset: int, source: str) -> Span:
    """The line and column of one position."""
    start = text.rfind("\n", 0, offset) + 1
    stop = text.find("\n", offset)
    line = text[start:stop if stop >= 0 else len(text)]
    return Span(source, text.count("\n", 0, offset) + 1, offset - start + 1, text=line[:_SHOWN])
