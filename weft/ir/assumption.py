"""Ranges of symbols under which two dimensions are equal.

Traced models slice constant tables by a length: ``min(512, seq)`` rows, which must be ``seq`` rows
where they are added to something. No dimension says that ``seq`` is at most 512, but sizes beyond
fail in every runtime. A model is therefore compiled again with the range that an error names
(``WeftError.assumption``).
"""

from __future__ import annotations

from typing import TypeAlias

from weft.ir.shape import Dim, ExtremeAtom, SymDim
from weft.ir.size_range import SizeRange, name_of

# The name of a symbol, and the sizes of it that are assumed.
Assumption: TypeAlias = "tuple[str, SizeRange]"


def equal_if(a: Dim, b: Dim) -> Assumption | None:
    """What makes ``a`` and ``b`` equal: a bound of a symbol; ``None`` if no single one does."""
    return _bound(a, b) or _bound(b, a)


def _bound(extreme: Dim, other: Dim) -> Assumption | None:
    """``min(c, n)`` is ``n`` for ``n <= c``, and ``max(c, n)`` is ``n`` for ``n >= c``."""
    atom = _single(extreme)
    if not isinstance(atom, ExtremeAtom) or len(atom.operands) != 2:
        return None
    numbers = [operand for operand in atom.operands if isinstance(operand, int)]
    symbols = [operand for operand in atom.operands if isinstance(_single(operand), str)]
    if len(numbers) != 1 or len(symbols) != 1 or other not in (numbers[0], symbols[0]):
        return None
    name, number = name_of(str(symbols[0])), numbers[0]
    is_upper = atom.is_max != (other == symbols[0])
    return name, SizeRange(0, number) if is_upper else SizeRange(max(number, 0))


def _single(dim: Dim) -> object:
    """The only atom of a dimension, without coefficient or offset; else ``None``."""
    if isinstance(dim, SymDim) and len(dim.terms) == 1:
        (monomial, coefficient), = dim.terms
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None
