"""Tokens of a PTX text."""

from __future__ import annotations

import re

from weft.support.dataclass import dataclass
from weft.testing.cuda.errors import CudaEmulationError

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f]+)
  | (?P<newline>\n)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<float>0[fF][0-9a-fA-F]{8}(?![0-9a-fA-F])|0[dD][0-9a-fA-F]{16})
  | (?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+\.[0-9]+|[0-9]+U?)
  | (?P<word>[.%$A-Za-z_](?:[\w$.%]|::)*)
  | (?P<string>"[^"\n]*")
  | (?P<mark>[{}()\[\],;:@!|<>=+\-*])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its kind (a group name of the pattern), text and line."""

    kind: str
    text: str
    line: int


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text`` without blanks and comments; the last one is an ``end`` token.

    Raises CudaEmulationError for a character that no token starts with.
    """
    tokens: list[Token] = []
    append = tokens.append
    line, position, end = 1, 0, len(text)
    match = _TOKEN.match
    while position < end:
        found = match(text, position)
        if found is None:
            raise CudaEmulationError(
                f"unexpected character in PTX: {text[position]!r}", where=f"PTX line {line}",
                got=text.splitlines()[line - 1].strip())
        kind = found.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += found.group().count("\n")
        elif kind != "space":
            append(Token(kind, found.group(), line))
        position = found.end()
    append(Token("end", "", line))
    return tokens
