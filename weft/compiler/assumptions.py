"""Compiling a model for all sizes under assumptions about its symbols.

The symbols of an imported model stand for sizes of at least 1, and errors may narrow them further:
a position table of 512 rows implies that the sequence has at most 512. Sizes outside of the
assumptions are compiled on their own, so they lose no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weft.compiler.options import CompileOptions
from weft.ir.assumption import Assumption
from weft.ir.module import IRModule
from weft.ir.shape import Dim, SymDim, as_dim, substitute_dim
from weft.ir.substitution import substitute_symbols
from weft.ir.symbol import SizeRange, name_of, range_of, symbol_text
from weft.ir.types import TensorType, TupleType, Type
from weft.runtime.manifest import Manifest
from weft.strategy.variants import intersection
from weft.support.errors import WeftError
from weft.transform.analysis.graph import type_of

# Each costs an import of the model.
MAX_ASSUMPTIONS = 8


def at_least_one(mod: IRModule) -> IRModule:
    """The program with symbols that stand for sizes of at least 1."""
    wider = {name_of(symbol): symbol_text(name_of(symbol), narrowed)
             for param in mod["main"].params for symbol in _symbols_of(type_of(param))
             if (narrowed := intersection(range_of(symbol), SizeRange(1))) is not None
             and narrowed != range_of(symbol)}
    return substitute_symbols(mod, wider) if wider else mod


def _symbols_of(type_: Type) -> Iterator[str]:
    if isinstance(type_, TensorType):
        for dim in type_.shape:
            yield from sorted(dim.symbols()) if isinstance(dim, SymDim) else ()
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _symbols_of(field)


class Assumptions:
    """The ranges of symbols that a compilation assumes, by name."""

    def __init__(self) -> None:
        self.ranges: dict[str, SizeRange] = {}
        self._is_first = True

    def add(self, error: WeftError) -> bool:
        """Assume what would have avoided the error; whether that is new."""
        found = next((one for one in _assumptions_in(error)), None)
        if len(self.ranges) >= MAX_ASSUMPTIONS:
            return False
        if found is None:  # sizes of at least 1 may be enough
            is_first, self._is_first = self._is_first, False
            return is_first
        self._is_first = False
        name, sizes = found
        known = self.ranges.get(name, SizeRange(1))
        narrower = intersection(known, sizes)
        if narrower is None or narrower == self.ranges.get(name):
            return False
        self.ranges[name] = narrower
        return True

    def applied(self, options: CompileOptions, signature: Manifest) -> CompileOptions:
        """The options with the assumptions in the shapes of the inputs that have symbols."""
        shapes: dict[str, tuple[Dim, ...]] = {}
        given = options.input_shapes or {}
        for spec in signature.inputs:
            dims = [as_dim(size) for size in given.get(spec.name, spec.shape)]
            narrowed = tuple(substitute_dim(dim, self._symbols(dim)) for dim in dims)
            if any(isinstance(dim, SymDim) for dim in narrowed):
                shapes[spec.name] = narrowed
        return options.at(shapes)

    def _symbols(self, dim: Dim) -> Mapping[str, Dim]:
        if not isinstance(dim, SymDim):
            return {}
        found: dict[str, Dim] = {}
        for symbol in dim.symbols():
            name = name_of(symbol)
            sizes = intersection(range_of(symbol), self.ranges.get(name, SizeRange(1)))
            if sizes is not None:
                found[name] = SymDim.symbol(symbol_text(name, sizes))
        return found


def _assumptions_in(error: WeftError) -> Iterator[Assumption]:
    if error.assumption is not None:
        yield error.assumption
    for inner in getattr(error, "errors", ()):
        yield from _assumptions_in(inner)
