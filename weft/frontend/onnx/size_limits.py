"""Bounds that a model's own tables put on symbolic sizes.

A model with 512 positions slices its table to the length of the input, which gives min(512, n)
rows, and then adds them to n rows: it runs for n <= 512 alone. Where a node cannot be converted
and sizes like this are among its inputs, the import starts again with the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir.shape import Dim, ExtremeAtom, SymDim
from weft.ir.symbol import SizeRange, common_range, name_of, range_of, symbol_text
from weft.ir.types import TensorType
from weft.support.errors import TypeInferenceError, WeftError

_MAX_ELEMENTS = 64


class SizeLimitNeeded(Exception):  # noqa: N818 - the import goes on
    """A node failed with ``error``; it may succeed if symbols have these upper bounds."""

    def __init__(self, error: WeftError, limits: Mapping[str, int]) -> None:
        super().__init__(str(error))
        self.error = error
        self.limits = limits


def limits_in(values: Iterable[Any]) -> dict[str, int]:
    """The upper bounds, by the symbol's name, at which min(bound, symbol) is the symbol."""
    limits: dict[str, int] = {}
    for value in values:
        for dim in _dims_of(value):
            for bound, symbol in _smallest(dim):
                name = name_of(symbol)
                limits[name] = min(bound, limits.get(name, bound))
    return limits


def limited(symbol: str, limit: int) -> SymDim:
    """``symbol`` with ``limit`` as an upper bound; unchanged if its range has smaller sizes only.

    Bounds that no size meets leave the symbol as it is: they are found where sizes arrive.
    """
    try:
        sizes = common_range(name_of(symbol), range_of(symbol), SizeRange(0, limit))
    except TypeInferenceError:
        return SymDim.symbol(symbol)
    return SymDim.symbol(symbol_text(name_of(symbol), sizes))


def _dims_of(value: Any) -> Iterator[Dim]:
    if isinstance(value, ShapeValue):
        if value.dims.size <= _MAX_ELEMENTS:
            yield from (d for d in value.dims.reshape(-1).tolist() if isinstance(d, SymDim))
    else:
        type_ = getattr(value, "checked_type", None)
        yield from type_.shape if isinstance(type_, TensorType) else ()


def _smallest(dim: Dim) -> Iterator[tuple[int, str]]:
    """The bounds and symbols of min(bound, symbol) in ``dim``."""
    for monomial, _ in dim.terms if isinstance(dim, SymDim) else ():
        for atom in monomial:
            if isinstance(atom, ExtremeAtom) and not atom.is_max and len(atom.operands) == 2:
                bounds = [d for d in atom.operands if isinstance(d, int)]
                symbols = [t for d in atom.operands if isinstance(d, SymDim)
                           for t in d.symbols() if d == SymDim.symbol(t)]
                if bounds and symbols:
                    yield bounds[0], symbols[0]
