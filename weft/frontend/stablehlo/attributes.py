"""Parsing of types and attributes of MLIR text."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from weft.frontend.stablehlo.lexer import Token, span_at, tokens_of
from weft.frontend.stablehlo.syntax import HloType, Literal
from weft.support.errors import InvalidModelError

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)([^,{]+?)\s*(?:,.*|\{.*)?>", re.DOTALL)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_MAX_DEPTH = 200


class AttributeParser:
    """A position in the tokens of a text, and what is read from there."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.tokens = tokens_of(text, source)
        self.index = 0
        self.depth = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.index]

    def ahead(self, count: int = 1) -> Token:
        """A later token, or the last one."""
        return self.tokens[min(self.index + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """The current token; the position moves behind it."""
        token = self.tokens[self.index]
        if token.kind != "end":
            self.index += 1
        return token

    def accept(self, kind: str, text: str | None = None) -> bool:
        """Whether the current token is this one, which is then taken."""
        token = self.tokens[self.index]
        if token.kind == kind and (text is None or token.text == text):
            self.index += 1
            return True
        return False

    def expect(self, kind: str, text: str | None = None) -> Token:
        """The current token, which has to be of ``kind``."""
        token = self.tokens[self.index]
        if token.kind != kind or (text is not None and token.text != text):
            self.fail(text or kind)
        return self.take()

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        """Raise ``InvalidModelError`` at a token."""
        at = token or self.now
        raise InvalidModelError(
            "the text of a StableHLO module cannot be read", expected=expected,
            where=span_at(self.text, at.offset, self.source),
            got=repr(at.text[:80]) if at.text else "the end of the text")

    def deeper(self) -> None:
        """Count one more level of nesting, which hostile text may have without end."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"at most {_MAX_DEPTH} levels of nesting")

    # Types

    def type(self) -> HloType:
        """A type; what is no tensor keeps its text."""
        token = self.now
        if token.kind == "tensor":
            return self.tensor_type(self.take())
        if token.kind != "word":
            self.fail("a type")
        self.take()
        if self.now.kind == "<":
            self.skip_group()
        return HloType((), self.text[token.offset:self.tokens[self.index - 1].offset + len(
            self.tokens[self.index - 1].text)])

    def tensor_type(self, token: Token) -> HloType:
        """The type that a token ``tensor<...>`` writes."""
        match = _TENSOR.fullmatch(token.text)
        if match is None:
            self.fail("the type of a ranked tensor", token)
        sizes = match[1].split("x")[:-1]
        return HloType(tuple(None if n == "?" else int(n) for n in sizes), match[2].strip())

    def types(self) -> tuple[HloType, ...]:
        """One type, or several in parentheses."""
        if not self.accept("("):
            return (self.type(),)
        found: list[HloType] = []
        while not self.accept(")"):
            found.append(self.type())
            if self.now.kind == "{":  # attributes of a result
                self.skip_group()
            self.accept(",")
        return tuple(found)

    # Attributes

    def dictionary(self) -> dict[str, Any]:
        """``{name = value, ...}``; a name alone is true."""
        return self._pairs("{", "}")

    def _pairs(self, opening: str, closing: str) -> dict[str, Any]:
        self.deeper()
        self.expect(opening)
        found: dict[str, Any] = {}
        while not self.accept(closing):
            token = self.take()
            if token.kind not in ("word", "string"):
                self.fail("the name of an attribute", token)
            found[token.text.strip('"')] = self.attribute() if self.accept("=") else True
            self.accept(",")
        self.depth -= 1
        return found

    def attribute(self) -> Any:
        """A value: a number, text, list, dictionary, ``Literal``, type or the name of a case."""
        token = self.now
        if token.kind in ("string", "symbol"):
            return self._text_or_symbol()
        if token.kind == "number":
            value = number_of(self.take().text)
            if self.accept(":"):
                self.type()
            return value
        if token.kind == "[":
            return self.list_attribute()
        if token.kind == "{":
            return self.dictionary()
        if token.kind == "literal":
            return self.literal()
        if token.kind == "alias":
            return self._dialect_attribute()
        if token.kind == "tensor":
            return self.type()
        if token.kind == "(":
            inputs = self.types()
            self.expect("arrow")
            return inputs, self.types()
        if token.kind == "word":
            return self._word()
        if token.kind != "<":
            self.fail("an attribute")
        return self._angled()

    def _text_or_symbol(self) -> str:
        text = self.take().text
        while self.now.kind == ":" and self.ahead().kind == ":":  # a path of symbols
            self.index += 2
            text += "::" + self.expect("symbol").text
        if self.now.kind == ":" and self.ahead().kind in ("word", "tensor"):
            self.take()
            self.type()
        return text.strip('"').replace('@"', "@")

    def _word(self) -> Any:
        token = self.take()
        if token.text in ("true", "false"):
            return token.text == "true"
        if self.now.kind == "<":
            self.skip_group()
        return token.text

    def list_attribute(self) -> list[Any]:
        """``[value, ...]``; a range ``0:4:2`` is a tuple."""
        self.deeper()
        self.expect("[")
        found: list[Any] = []
        while not self.accept("]"):
            value = self._range() if self.now.kind == "number" else self.attribute()
            found.append(value)
            self.accept(",")
        self.depth -= 1
        return found

    def _range(self) -> Any:
        values = [number_of(self.take().text)]
        while self.now.kind == ":" and self.ahead().kind == "number":
            self.take()
            values.append(number_of(self.take().text))
        if self.now.kind == ":":  # a type
            self.take()
            self.type()
        return tuple(values) if len(values) > 1 else values[0]

    def literal(self) -> Any:
        """A ``Literal``, or the numbers of ``array<i64: 1, 2>``."""
        token = self.take()
        if token.text.startswith("array<"):
            _, _, items = token.text[6:-1].partition(":")
            return [number_of(item) for item in items.replace(",", " ").split()]
        self.expect(":")
        return Literal(token.text, self.type())

    def _dialect_attribute(self) -> Any:
        self.take()
        return self._angled() if self.now.kind == "<" else None

    def _angled(self) -> Any:
        """``<name = value, ...>``, ``<kind CASE>``, or anything else, of which nothing is kept."""
        first, second = self.ahead(1), self.ahead(2)
        if first.kind == "word" and second.kind in ("=", ">", "word"):
            if second.kind == "word" and self.ahead(3).kind == ">":
                self.index += 4
                return second.text
            if second.kind == "=":
                return self._pairs("<", ">")
            if second.kind == ">":
                self.index += 3
                return first.text
        if first.kind == "[":
            self.take()
            dims = self.convolution_axes()
            self.expect(">")
            return dims
        self.skip_group()
        return None

    def convolution_axes(self) -> list[list[str]]:
        """``[b, 0, f]x[0, i, o]->[b, 0, f]``: the axes of the image, the kernel and the result."""
        found = [self._letters()]
        self.expect("word", "x")
        found.append(self._letters())
        self.expect("arrow")
        return [*found, self._letters()]

    def _letters(self) -> list[str]:
        self.expect("[")
        letters: list[str] = []
        while not self.accept("]"):
            letters.append(self.take().text)
            if letters[-1] == "":
                self.fail("]")
            self.accept(",")
        return letters

    def skip_group(self) -> None:
        """Move behind a bracket and what it encloses."""
        stack = [_CLOSING[self.take().text]]
        while stack:
            token = self.take()
            if token.kind == "end":
                self.fail(stack[-1], token)
            if token.kind in _CLOSING:
                stack.append(_CLOSING[token.kind])
            elif token.kind == stack[-1]:
                stack.pop()

    def location(self) -> str:
        """The text in ``loc(...)``, if it comes here."""
        if self.now.text != "loc" or self.ahead().kind != "(":
            return ""
        self.take()
        start = self.now.offset + 1
        self.skip_group()
        return self.text[start:self.tokens[self.index - 1].offset]


def number_of(text: str) -> int | float | bool | str:
    """The value of a number; other words stay."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
