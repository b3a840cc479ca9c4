"""The sizes that symbols stand for in one call of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.ir import Call, Dim, Function, IRModule, SymDim, TensorType, TupleType, Type, post_order
from weft.ir.substitution import has_symbols, substitute_symbols
from weft.ir.symbol import name_of
from weft.transform.analysis.graph import known_type


def at_sizes_of(module: IRModule, entry: str, inputs: Sequence[Any]) -> IRModule:
    """``module`` with numbers for the symbols in its attributes, read from the shapes of inputs.

    Raises ``TypeInferenceError`` for shapes that the program does not accept.
    """
    if not any(isinstance(node, Call) and has_symbols(node.attrs)
               for fn in module.functions.values() for node in post_order(fn)):
        return module
    return substitute_symbols(module, symbol_sizes(module[entry], inputs))


def symbol_sizes(function: Function, inputs: Sequence[Any]) -> dict[str, int]:
    """The sizes of symbols by name, as far as a dimension of an input is a multiple of one."""
    sizes: dict[str, int] = {}
    for param, value in zip(function.params, inputs, strict=True):
        for dim, size in _dims(known_type(param), value):
            if isinstance(dim, SymDim) and len(dim.terms) == 1:
                (monomial, factor), = dim.terms
                if len(monomial) == 1 and isinstance(monomial[0], str):
                    sizes.setdefault(name_of(monomial[0]), size // factor)
    return sizes


def _dims(type_: Type | None, value: Any) -> Iterator[tuple[Dim, int]]:
    if isinstance(type_, TupleType):
        for field, part in zip(type_.fields, value, strict=True):
            yield from _dims(field, part)
    elif isinstance(type_, TensorType):
        yield from zip(type_.shape, np.shape(value), strict=False)
