"""Symbols of dimensions: a name, and the range of sizes that it stands for.

The range is a part of the symbol's text, so that dimensions stay values that print and parse:
``n`` is any size, ``n{1..16}`` a size from 1 to 16, ``n{8..%8}`` a multiple of 8 from 8 on. Two
symbols of one name in one program have one range. A kernel for a part of the sizes is the same
function with the symbol replaced by one of a smaller range.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from weft.ir.shape import Atom, Dim, FloorDivAtom, SymDim
from weft.runtime.sizes import Size
from weft.support.errors import TypeInferenceError

_TEXT = re.compile(r"(?P<name>\w+)(?:\{(?P<low>\d+)\.\.(?P<high>\d*)(?:%(?P<multiple>\d+))?\})?")

# What a symbol without a narrower range counts as where a decision needs a number.
TYPICAL_SIZE = 64


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes from ``low`` to ``high`` (``None``: without end) that are multiples of ``multiple``."""

    low: int = 0
    high: int | None = None
    multiple: int = 1

    def __contains__(self, size: int) -> bool:
        return (self.low <= size and (self.high is None or size <= self.high)
                and size % self.multiple == 0)

    @property
    def typical(self) -> int:
        """The size in the range that decisions assume."""
        return self.nearest(TYPICAL_SIZE)

    def nearest(self, size: int) -> int:
        """``size`` if the range contains it, else the size of the range next to it or below."""
        if self.high is not None:
            size = min(size, self.high)
        low = -(-self.low // self.multiple) * self.multiple
        return max(size // self.multiple * self.multiple, low)

    def __str__(self) -> str:
        end = "" if self.high is None else self.high
        return f"{self.low}..{end}" + (f"%{self.multiple}" if self.multiple > 1 else "")


ANY_SIZE = SizeRange()


def symbol_text(name: str, sizes: SizeRange = ANY_SIZE) -> str:
    """The text of a symbol, which ``SymDim.symbol`` takes."""
    return name if sizes == ANY_SIZE else f"{name}{{{sizes}}}"


def name_of(symbol: str) -> str:
    """The name in a symbol's text."""
    return symbol.partition("{")[0]


def is_symbol(text: str) -> bool:
    """Whether a text is a name, or a name with a range, as ``range_of`` takes it."""
    return _TEXT.fullmatch(text) is not None


def range_of(symbol: str) -> SizeRange:
    """The range in a symbol's text; ``TypeInferenceError`` for a malformed or empty one."""
    found = _TEXT.fullmatch(symbol)
    if found is None:
        raise TypeInferenceError("not a symbol of a dimension", got=symbol,
                                 expected="a name such as n, or with a range such as n{1..16}")
    if found["low"] is None:
        return ANY_SIZE
    sizes = SizeRange(int(found["low"]), int(found["high"]) if found["high"] else None,
                      int(found["multiple"] or 1))
    if sizes.multiple < 1 or (sizes.high is not None and sizes.high < sizes.low):
        raise TypeInferenceError("an empty range of sizes", got=symbol)
    return sizes


def typical_size(dim: Dim) -> int:
    """The size that decisions assume for a dimension; ``TYPICAL_SIZE`` where nothing is known."""
    if isinstance(dim, int):
        return dim
    if not isinstance(dim, SymDim):
        return TYPICAL_SIZE
    total = sum(coefficient * math.prod(map(_typical_atom, monomial))
                for monomial, coefficient in dim.terms)
    return max(total, 0)


def _typical_atom(atom: Atom) -> int:
    if isinstance(atom, FloorDivAtom):
        return typical_size(atom.numerator) // atom.denominator
    return range_of(atom).typical


def size_of_dim(dim: Dim) -> Size:
    """A dimension as a size of ``weft.runtime.sizes``, over names without ranges.

    Raises ``TypeInferenceError`` for an unknown dimension.
    """
    if isinstance(dim, int):
        return dim
    if not isinstance(dim, SymDim):
        raise TypeInferenceError("a size that only run time determines", got=str(dim))
    terms = []
    for monomial, coefficient in dim.terms:
        factors = [f"floordiv({size_of_dim(atom.numerator)}, {atom.denominator})"
                   if isinstance(atom, FloorDivAtom) else name_of(atom) for atom in monomial]
        terms.append("*".join([*([] if coefficient == 1 and factors else [str(coefficient)]),
                               *factors]))
    return " + ".join(terms).replace("+ -", "- ")
