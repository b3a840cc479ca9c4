"""The symbolic sizes of a kernel: dimensions as tensor expressions over its scalar parameters."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from weft import te
from weft.ir import Attrs, Call, Expr, Function, TensorType, TupleType, Type, post_order, range_of
from weft.ir.shape import AnyDim, Atom, Dim, ExtremeAtom, FloorDivAtom, SymDim
from weft.runtime.sizes import Size
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, Var, const, maximum, minimum
from weft.tir.size_text import var_text


def symbols_of(function: Function) -> tuple[str, ...]:
    """The symbols in the types and attributes of a primitive function, in alphabetical order.

    They are the scalar parameters of its kernel, after the buffers.
    """
    found: set[str] = set()
    for node in (*function.params, *post_order(function.body)):
        found.update(s for d in _dims_of_type(_type_of(node)) for s in d.symbols())
        if isinstance(node, Call) and isinstance(node.attrs, Attrs):
            found.update(s for d in _dims_in(node.attrs) for s in d.symbols())
    return tuple(sorted(found))


class SizeVars:
    """A variable for each symbol of a kernel.

    The variable of a symbol whose values are multiples of ``m`` holds the value divided by ``m``.
    """

    def __init__(self, symbols: Iterable[str]) -> None:
        self._vars: dict[str, Var] = {symbol: te.var(symbol) for symbol in symbols}

    @property
    def params(self) -> tuple[Var, ...]:
        """The variables, in the order of the symbols."""
        return tuple(self._vars.values())

    @property
    def values(self) -> tuple[Size, ...]:
        """The values of ``params`` over the symbols of the program."""
        return tuple(map(var_text, self.params))

    def size(self, dim: Dim) -> PrimExpr:
        """A dimension as an expression; ``LoweringError`` for an unknown one."""
        if isinstance(dim, int):
            return const(dim)
        if isinstance(dim, AnyDim):
            raise LoweringError(
                f"the size {dim} is not known when the kernel is compiled",
                expected="a fixed size, or one that symbols determine",
                help="give the dimension a number or a name",
            )
        total: PrimExpr | None = None
        for monomial, coefficient in dim.terms:
            term: PrimExpr | None = None if coefficient == 1 and monomial else const(coefficient)
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else term * factor
            assert term is not None
            total = term if total is None else total + term
        return const(0) if total is None else total

    def _atom(self, atom: Atom) -> PrimExpr:
        if isinstance(atom, FloorDivAtom):
            return self.size(atom.numerator) // const(atom.denominator)
        if isinstance(atom, ExtremeAtom):
            return functools.reduce(maximum if atom.is_max else minimum,
                                    map(self.size, atom.operands))
        multiple = range_of(atom).multiple
        return self._vars[atom] if multiple == 1 else self._vars[atom] * const(multiple)

    def attrs(self, attrs: Any) -> Any:
        """An attribute record whose symbolic dimensions are expressions, as computes take it."""
        if not isinstance(attrs, Attrs) or not any(True for _ in _dims_in(attrs)):
            return attrs
        made = copy.copy(attrs)
        for field in dataclasses.fields(attrs):
            # Past the checks of the record, which holds dimensions everywhere else.
            object.__setattr__(made, field.name, self._converted(getattr(attrs, field.name)))
        return made

    def _converted(self, value: Any) -> Any:
        if isinstance(value, SymDim):
            return self.size(value)
        return tuple(map(self._converted, value)) if isinstance(value, tuple) else value


def _type_of(node: Expr) -> Type | None:
    return node.checked_type or getattr(node, "annotation", None)


def _dims_of_type(type_: Type | None) -> Iterator[SymDim]:
    if isinstance(type_, TensorType):
        yield from (d for d in type_.shape if isinstance(d, SymDim))
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _dims_of_type(field)


def _dims_in(value: Any) -> Iterator[SymDim]:
    if isinstance(value, SymDim):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _dims_in(item)
    elif isinstance(value, Attrs):
        for field in dataclasses.fields(value):
            yield from _dims_in(getattr(value, field.name))
