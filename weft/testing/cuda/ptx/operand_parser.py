"""A reader of tokens, and the grammar of operands."""

from __future__ import annotations

import re
from typing import NoReturn

from weft.support.dataclass import dataclass
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.ptx.module import (
    Address,
    Immediate,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
)

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


class TokenReader:
    """A position in the tokens of a text, with the errors of a parser."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.position = 0
        self.token = tokens[0]

    def advance(self) -> None:
        if self.token.kind == "end":
            self.fail("unexpected end of the PTX text")
        self.position += 1
        self.token = self.tokens[self.position]

    def peek(self) -> Token:
        return self.tokens[min(self.position + 1, len(self.tokens) - 1)]

    def accept(self, text: str) -> bool:
        if self.token.text != text:
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}")

    def expect_word(self) -> str:
        if self.token.kind != "word":
            self.fail("expected a name")
        word = self.token.text
        self.advance()
        return word

    def expect_int(self) -> int:
        sign = -1 if self.accept("-") else 1
        if self.token.kind != "number":
            self.fail("expected an integer")
        text = self.token.text.rstrip("U")
        self.advance()
        prefixed = len(text) > 1 and text[1] in "xXbB"
        return sign * int(text, 0 if prefixed else 10)

    def fail(self, what: str) -> NoReturn:
        """Raise at the current token."""
        self.fail_at(self.token.line, f"{what}, at {self.token.text!r}")

    def fail_at(self, line: int, what: str) -> NoReturn:
        lines = self.text.splitlines()
        got = lines[line - 1].strip() if line <= len(lines) else "end of text"
        raise CudaEmulationError(f"PTX does not parse: {what}", where=f"PTX line {line}", got=got)

    # operands

    def operand(self) -> Operand:
        """One operand: a register, constant, name, address, vector, pair or negated predicate."""
        if self.accept("!"):
            return Register(self.expect_word(), negated=True)
        if self.token.text == "{":
            return self._vector()
        if self.token.text == "(":
            return self._list()
        if self.token.text == "[":
            return self._address()
        first = self._simple()
        if self.accept("|"):
            return Pair(first, self._simple())
        if self.token.text == "+":  # symbol+offset as a value
            self.advance()
            assert isinstance(first, Symbol)
            return Address(first, self.expect_int())
        return first

    def _simple(self) -> Operand:
        token = self.token
        if token.kind == "number" or token.text == "-":
            return Immediate(self.expect_int())
        if token.kind == "float":
            self.advance()
            return Immediate(int("0x" + token.text[2:], 0), 32 if token.text[1] in "fF" else 64)
        if token.text == "_":
            self.advance()
            return Sink()
        word = self.expect_word()
        if word.startswith("%"):
            return Register(word)
        return Symbol(word)

    def _vector(self) -> Vector:
        self.expect("{")
        elements: list[Operand] = []
        while not self.accept("}"):
            elements.append(self._simple())
            self.accept(",")
        return Vector(tuple(elements))

    def _list(self) -> Vector:
        """The parenthesised results or arguments of a call."""
        self.expect("(")
        elements: list[Operand] = []
        while not self.accept(")"):
            elements.append(self._simple())
            self.accept(",")
        return Vector(tuple(elements))

    def _address(self) -> Address:
        self.expect("[")
        base = self._simple()
        assert isinstance(base, Register | Symbol | Immediate)
        offset = 0
        coordinates: tuple[Operand, ...] = ()
        if self.token.text in {"+", "-"}:
            self.accept("+")
            offset = self.expect_int()
        if self.accept(","):
            vector = self._vector()
            coordinates = vector.elements
        self.expect("]")
        return Address(base, offset, coordinates)
