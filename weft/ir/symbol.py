"""Symbols of dimensions: a name, and the range of sizes that it stands for.

The range is a part of the symbol's text, so that dimensions stay values that print and parse: ``n``
is any size, ``n{1..16}`` a size from 1 to 16, ``n{8..%8}`` a multiple of 8 from 8 on. Symbols of
the same name in a program have the same range. A kernel for a part of the sizes is the same
function with the symbol replaced by one of a smaller range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.ir.shape import Atom, Dim, ExtremeAtom, FloorDivAtom, Shape, SymDim
from weft.ir.size_range import (
    ANY_SIZE,
    TYPICAL_SIZE,
    SizeRange,
    is_symbol,
    name_of,
    range_of,
    symbol_text,
)
from weft.ir.size_syntax import common_range
from weft.runtime.sizes import Size
from weft.support.errors import TypeInferenceError

__all__ = ["ANY_SIZE", "TYPICAL_SIZE", "SizeRange", "common_symbols", "is_symbol", "name_of",
           "range_of", "size_of_dim", "symbol_text", "typical_size"]


def common_symbols(shapes: Sequence[Shape]) -> dict[str, Dim]:
    """The symbols of ``shapes`` by name, each with the intersection of its ranges.

    A bound that one input declares thus holds wherever its name occurs; ``substitute_dim`` takes
    the result. Raises ``TypeInferenceError`` for bounds that contradict each other.
    """
    ranges: dict[str, SizeRange] = {}
    texts = {t for shape in shapes for dim in shape if isinstance(dim, SymDim)
             for t in dim.symbols()}
    for text in sorted(texts):
        name = name_of(text)
        ranges[name] = common_range(name, ranges.get(name, ANY_SIZE), range_of(text))
    return {n: SymDim.symbol(symbol_text(n, r)) for n, r in ranges.items()}


def typical_size(dim: Dim) -> int:
    """The size that decisions assume for a dimension; ``TYPICAL_SIZE`` where nothing is known."""
    if isinstance(dim, int):
        return dim
    if not isinstance(dim, SymDim):
        return TYPICAL_SIZE
    return max(_typical_value(dim), 0)


def _typical_value(dim: int | SymDim) -> int:
    if isinstance(dim, int):
        return dim
    return sum(coefficient * math.prod(map(_typical_atom, monomial))
               for monomial, coefficient in dim.terms)


def _typical_atom(atom: Atom) -> int:
    if isinstance(atom, FloorDivAtom):
        return typical_size(atom.numerator) // atom.denominator
    if isinstance(atom, ExtremeAtom):
        choose = max if atom.is_max else min
        return choose(map(_typical_value, atom.operands))
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
        factors = list(map(_atom_text, monomial))
        terms.append("*".join([*([] if coefficient == 1 and factors else [str(coefficient)]),
                               *factors]))
    return " + ".join(terms).replace("+ -", "- ")


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, FloorDivAtom):
        return f"floordiv({size_of_dim(atom.numerator)}, {atom.denominator})"
    if isinstance(atom, ExtremeAtom):
        operands = ", ".join(str(size_of_dim(d)) for d in atom.operands)
        return f"{atom.function}({operands})"
    return name_of(atom)
