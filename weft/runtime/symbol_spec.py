"""A symbolic size of a program, as the manifest describes it."""

from __future__ import annotations

from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """A symbolic size of a program, its range, and the input axis that determines it.

    The axis has ``scale * symbol + offset`` elements. The symbol is a multiple of ``multiple``.
    """

    name: str
    input: int
    axis: int
    low: int = 0
    high: int | None = None
    multiple: int = 1
    scale: int = 1
    offset: int = 0
