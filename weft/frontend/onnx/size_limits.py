"""Ranges of symbolic sizes that a model's own tables and slices imply.

A model with 512 positions slices its table to the length of the input, which gives min(512, n)
rows, and then adds them to n rows: it runs for n <= 512 alone. Differences of neighbours give
max(0, n - 1) elements, which fit nothing unless n is at least 1. Where a node cannot be converted
and sizes like these are among its inputs, the import starts again with the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir.shape import Dim, ExtremeAtom, KnownDim, SymDim
from weft.ir.symbol import SizeRange, common_range, name_of, range_of, symbol_text
from weft.ir.types import TensorType
from weft.support.errors import TypeInferenceError, WeftError

_MAX_ELEMENTS = 64


class SizeLimitNeeded(Exception):  # noqa: N818 - the import goes on
    """A node failed with ``error``; it may succeed if symbols have these ranges, by name.

    ``sums`` replace symbols, by name.
    """

    def __init__(self, error: WeftError, limits: Mapping[str, SizeRange],
                 sums: Mapping[str, Dim]) -> None:
        super().__init__(str(error))
        self.error = error
        self.limits = limits
        self.sums = sums


def limits_in(values: Iterable[Any]) -> dict[str, SizeRange]:
    """Ranges, by the symbol's name, at which the extremes in the sizes of ``values`` may vanish.

    Sizes of at least 1 come first, where min(1, symbol) or a maximum occurs: they exclude no size
    that matters. Otherwise, min(bound, symbol) is the symbol up to the bound.
    """
    extremes = [atom for value in values for dim in _dims_of(value) for atom in _extremes(dim)]
    lower = {name_of(symbol): SizeRange(1) for atom in extremes
             if atom.is_max or 1 in atom.operands for operand in atom.operands
             if isinstance(operand, SymDim) for symbol in operand.symbols()
             if range_of(symbol).low == 0}
    if lower:
        return lower
    limits: dict[str, SizeRange] = {}
    for bound, symbol in filter(None, map(_upper_bound, extremes)):
        name = name_of(symbol)
        known = limits.get(name)
        if known is None or known.high is None or bound < known.high:
            limits[name] = SizeRange(0, bound)
    return limits


def limited(symbol: str, limit: SizeRange) -> KnownDim:
    """``symbol`` with a smaller range, or the only size in it.

    Unchanged if no size is in both ranges; such bounds are found where sizes arrive.
    """
    try:
        sizes = common_range(name_of(symbol), range_of(symbol), limit)
    except TypeInferenceError:
        return SymDim.symbol(symbol)
    if sizes.low == sizes.high:
        return sizes.low
    return SymDim.symbol(symbol_text(name_of(symbol), sizes))


def _dims_of(value: Any) -> Iterator[Dim]:
    if isinstance(value, ShapeValue):
        if value.dims.size <= _MAX_ELEMENTS:
            yield from (d for d in value.dims.reshape(-1).tolist() if isinstance(d, SymDim))
    else:
        type_ = getattr(value, "checked_type", None)
        yield from type_.shape if isinstance(type_, TensorType) else ()


def _extremes(dim: Dim) -> Iterator[ExtremeAtom]:
    """The max and min terms of a dimension, those inside others included."""
    for monomial, _ in dim.terms if isinstance(dim, SymDim) else ():
        for atom in monomial:
            if isinstance(atom, ExtremeAtom):
                yield atom
                for operand in atom.operands:
                    yield from _extremes(operand)


def _upper_bound(atom: ExtremeAtom) -> tuple[int, str] | None:
    """The bound and the symbol of min(bound, symbol)."""
    if atom.is_max or len(atom.operands) != 2:
        return None
    bounds = [d for d in atom.operands if isinstance(d, int)]
    symbols = [t for d in atom.operands if isinstance(d, SymDim)
               for t in d.symbols() if d == SymDim.symbol(t)]
    return (bounds[0], symbols[0]) if bounds and symbols else None
