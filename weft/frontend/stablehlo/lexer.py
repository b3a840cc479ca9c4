"""The tokens of MLIR text. Types and literals of tensors are one token each."""

from __future__ import annotations

import re

from weft.ir.span import Span
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError

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


def span_at(text: str, offset: int, source: str) -> Span:
    """The line and column of a position."""
    start = text.rfind("\n", 0, offset) + 1
    stop = text.find("\n", offset)
    line = text[start:stop if stop >= 0 else len(text)]
    return Span(source, text.count("\n", 0, offset) + 1, offset - start + 1, text=line[:2000])
