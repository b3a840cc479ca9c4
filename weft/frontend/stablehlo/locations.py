"""Where operations come from: ``loc`` of MLIR as spans, ``jit(f)/mul`` at a line of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.frontend.stablehlo.lexer import Lines
from weft.frontend.stablehlo.syntax import HloModule, Operation
from weft.ir.span import Span

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:\((.*)\))?\s*\Z', re.DOTALL)
_CALL = re.compile(r"callsite\((.*?) at .*\)\s*\Z", re.DOTALL)
_FUSED = re.compile(r"fused(?:<[^>]*>)?\[(.*?)(?:,.*)?\]\s*\Z", re.DOTALL)
_MOST_STEPS = 64
_OWN_FILE = "weft/frontend/stablehlo/jax_program.py"  # which calls JAX for the user


def located(text: str, table: Mapping[str, str]) -> tuple[str, str, int | None]:
    """The name, the file and the line that a location says; empty where it says nothing."""
    name = ""
    for _ in range(_MOST_STEPS):
        text = text.strip()
        if text.startswith("#"):
            text = table.get(text, "")
            continue
        outer = _CALL.match(text) or _FUSED.match(text)
        if outer is not None:
            text = outer[1]
            continue
        place = _FILE.match(text)
        if place is not None:
            return name, place[1], int(place[2])
        named = _NAME.match(text)
        if named is None:
            break
        name, text = name or named[1], named[2] or ""
    return name, "", None


class Places:
    """The spans of operations in one module."""

    def __init__(self, module: HloModule, text: str, source: str) -> None:
        self._table = module.locations
        self._lines = Lines(text, source)
        self._found: dict[tuple[str, int], Span] = {}

    def span(self, operation: Operation) -> Span:
        """The line of Python that made the operation, or the line of the text."""
        key = operation.location, operation.offset if not operation.location else 0
        if key not in self._found:
            self._found[key] = self._span(operation)
        return self._found[key]

    def _span(self, operation: Operation) -> Span:
        name, file, line = located(operation.location, self._table)
        if line is None or file.endswith(_OWN_FILE):
            place = self._lines.span(operation.offset)
            return Span(place.source, place.line, place.column, node=name or operation.name)
        return Span(file, line, node=name or operation.name)

    def name(self, location: str) -> str:
        """The name that a location gives to a parameter; empty without one."""
        return located(location, self._table)[0]
