"""The state of a parse besides its tokens: names in scope, and the metadata section."""

from __future__ import annotations

import json
from typing import Any

from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr
from weft.ir.text.lexer import Tokens
from weft.ir.text.parse_types import decode_array
from weft.support.errors import ParseError, WeftError

_METADATA = "#[metadata]"


class Scope:
    """Names and their expressions, with an undo log, so leaving a block costs what it bound."""

    def __init__(self) -> None:
        self.names: dict[str, Expr] = {}
        self._log: list[tuple[str, Expr | None]] = []

    def bind(self, name: str, value: Expr) -> None:
        self._log.append((name, self.names.get(name)))
        self.names[name] = value

    def mark(self) -> int:
        """The current state, for ``leave``."""
        return len(self._log)

    def leave(self, mark: int) -> None:
        """Remove the names bound since ``mark``."""
        while len(self._log) > mark:
            name, shadowed = self._log.pop()
            if shadowed is None:
                del self.names[name]
            else:
                self.names[name] = shadowed


def split_metadata(text: str) -> tuple[str, str]:
    """The program, and the content of its metadata section, which may be empty."""
    head, mark, tail = text.rpartition(f"\n{_METADATA}\n")
    return (head + "\n", tail) if mark else (text, "")


class Metadata:
    """The constants of the metadata section, decoded on first use."""

    def __init__(self, text: str, source: str) -> None:
        self._records: list[Any] = []
        self._constants: dict[int, Constant] = {}
        try:
            if text:
                self._records = list(json.loads(text)["constants"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ParseError("invalid metadata section", where=source,
                             expected='{"constants": [..]}', got=error) from None

    def constant(self, index: int, tokens: Tokens, offset: int) -> Constant:
        """Constant ``index``, the same node each time; raises ``ParseError`` at ``offset``."""
        if index not in self._constants:
            self._constants[index] = self._decode(index, tokens, offset)
        return self._constants[index]

    def _decode(self, index: int, tokens: Tokens, offset: int) -> Constant:
        if index >= len(self._records):
            tokens.fail(f"unknown constant {index} in the metadata",
                        expected=f"{len(self._records)} constants", offset=offset,
                        help="the text was printed without its metadata, or is truncated")
        record = self._records[index]
        try:
            dtype, shape = DType.parse(record["dtype"]), tuple(int(d) for d in record["shape"])
            text = str(record["data"])
        except (KeyError, TypeError, ValueError, WeftError):
            tokens.fail(f"corrupt constant {index} in the metadata", offset=offset)
        return Constant(decode_array(tokens, text, shape, dtype, offset))
