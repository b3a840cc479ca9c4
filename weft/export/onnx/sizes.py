"""Symbolic sizes as values: read off the shapes of tensors, and computed from those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.ir import Dim, SymDim, TensorType
from weft.ir.shape import Atom, ExtremeAtom, FloorDivAtom, Monomial
from weft.support.errors import UnsupportedModelError

if TYPE_CHECKING:
    from weft.export.onnx.graph import GraphWriter


class Sizes:
    """The sizes of a program as int64 tensors of one element."""

    def __init__(self, graph: GraphWriter) -> None:
        self._graph = graph
        self._sources: dict[str, tuple[str, int]] = {}
        self._values: dict[object, str] = {}

    def define(self, name: str, type_: TensorType) -> None:
        """Let symbols be read off the shape of a tensor of the outermost graph."""
        for axis, dim in enumerate(type_.shape):
            symbol = _symbol(dim)
            if symbol is not None:
                self._sources.setdefault(symbol, (name, axis))

    def shape(self, dims: Sequence[Dim], *, scalar: bool = False) -> str:
        """The name of an int64 vector with the sizes ``dims`` (or of the only one)."""
        if scalar:
            return self._emit("Squeeze", self.shape(dims), self._ints(0))
        if all(isinstance(d, int) for d in dims):
            return self._ints(*dims)  # type: ignore[arg-type]
        with self._graph.outermost():
            parts = [self._value(d) for d in dims]
            return parts[0] if len(parts) == 1 else self._emit("Concat", *parts, axis=0)

    def _value(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return self._ints(dim)
        if not isinstance(dim, SymDim):
            raise UnsupportedModelError("no name for a data-dependent size",
                                        got=str(dim))
        if dim not in self._values:
            self._values[dim] = self._sum(dim)
        return self._values[dim]

    def _sum(self, dim: SymDim) -> str:
        total = ""
        for monomial, coefficient in dim.terms:
            term = self._product(monomial, coefficient)
            total = self._emit("Add", total, term) if total else term
        return total

    def _product(self, monomial: Monomial, coefficient: int) -> str:
        factors = [self._atom(atom) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.append(self._ints(coefficient))
        first, *rest = factors
        for factor in rest:
            first = self._emit("Mul", first, factor)
        return first

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, FloorDivAtom):
            return self._floor_div(self._value(atom.numerator), atom.denominator)
        if isinstance(atom, ExtremeAtom):
            return self._emit("Max" if atom.is_max else "Min", *map(self._value, atom.operands))
        if atom not in self._values:
            self._values[atom] = self._read(atom)
        return self._values[atom]

    def _floor_div(self, numerator: str, denominator: int) -> str:
        """``Div`` truncates, so the remainder is subtracted first: ``Mod`` has its sign."""
        divisor = self._ints(denominator)
        rest = self._emit("Mod", numerator, divisor)
        return self._emit("Div", self._emit("Sub", numerator, rest), divisor)

    def _read(self, symbol: str) -> str:
        if symbol not in self._sources:
            raise UnsupportedModelError("no tensor has this size as an axis", got=symbol)
        name, axis = self._sources[symbol]
        return self._emit("Shape", name, start=axis, end=axis + 1)

    def _ints(self, *values: int) -> str:
        return self._graph.constant(np.array(values, np.int64))

    def _emit(self, op: str, *inputs: str, **attributes: int) -> str:
        return self._graph.emit(op, inputs, 1, "size", attributes)[0]


def _symbol(dim: Dim) -> str | None:
    """The symbol that is the whole of ``dim``."""
    if not isinstance(dim, SymDim) or len(dim.terms) != 1:
        return None
    (monomial, coefficient), = dim.terms
    only = monomial[0] if len(monomial) == 1 and coefficient == 1 else None
    return only if isinstance(only, str) else None
