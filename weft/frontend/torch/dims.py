"""Conversion of torch's symbolic sizes, and of conditions on them, to weft dimensions.

torch assumes that a traced size is 2 or more, and answers ``x.shape[0] == 1`` with no, without a
guard. The trace is then wrong for size 1; ``noted_questions`` records such comparisons.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import (
    CleanDiv,
    FloorDiv,
    FloorToInt,
    Max,
    Min,
    Mod,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from weft.ir.shape import (
    ANY,
    AnyDim,
    Dim,
    KnownDim,
    Shape,
    SymDim,
    dim_add,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_mul,
    dim_sub,
)

_QUOTIENTS = (FloorDiv, CleanDiv)
_REMAINDERS = (Mod, PythonMod)
# Of sizes, which are 0 or more.
_ROUNDED_DOWN = (FloorToInt, TruncToInt)
# The largest denominator of a float, a power of 2, whose products with sizes are exact.
MOST_PARTS = 1 << 10


def shape_of(sizes: Sequence[Any], values: Mapping[str, Dim]) -> Shape:
    """The shape of a traced tensor, with ``values`` for torch's symbols."""
    return tuple(dim_of(size, values) for size in sizes)


def dim_of(size: Any, values: Mapping[str, Dim]) -> Dim:
    """The dimension of a traced size; ``ANY`` for an expression that weft does not support."""
    return convert_size(expression_of(size), values)


def symbol_of(size: Any) -> str | None:
    """The name of a size that is a single symbol, else ``None``."""
    expr = expression_of(size)
    return str(expr) if expr.is_Symbol else None


def expression_of(size: Any) -> sympy.Expr:
    """A traced size as an expression over torch's symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def symbols_in(expr: sympy.Basic) -> set[str]:
    """The names of the symbols in an expression."""
    return {str(symbol) for symbol in expr.free_symbols}


def value_at(expr: sympy.Basic, sizes: Mapping[str, int]) -> Any:
    """The expression with numbers for symbols; one without further symbols is a number."""
    return expr.subs({symbol: sizes[str(symbol)] for symbol in expr.free_symbols
                      if str(symbol) in sizes})


def symbol_value(expr: sympy.Expr, size: Dim) -> tuple[str, Dim] | None:
    """The symbol that ``expr == size`` determines, and its value: of ``a * s + b`` with a > 0."""
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    scale = expr.coeff(symbol, 1)
    offset = expr - scale * symbol
    if not scale.is_Integer or scale < 1 or not offset.is_Integer:
        return None
    return str(symbol), dim_floordiv(dim_sub(size, int(offset)), int(scale))


def conditions_of(guard: sympy.Basic, values: Mapping[str, Dim]) -> list[KnownDim] | None:
    """Sizes that are all 0 or more where ``guard`` holds; ``None`` if there are no such sizes."""
    if isinstance(guard, sympy.And):
        parts = [conditions_of(part, values) for part in guard.args]
        return None if None in parts else [dim for part in parts for dim in part or ()]
    if guard is sympy.true:
        return []
    if not isinstance(guard, sympy.core.relational.Relational):
        return None
    difference = dim_sub(convert_size(guard.lhs, values), convert_size(guard.rhs, values))
    if isinstance(difference, AnyDim):
        return None
    found: dict[type, list[Dim]] = {
        sympy.Eq: [difference, dim_mul(difference, -1)],
        sympy.Ne: [dim_sub(dim_mul(difference, difference), 1)],
        sympy.Ge: [difference], sympy.Gt: [dim_sub(difference, 1)],
        sympy.Le: [dim_mul(difference, -1)], sympy.Lt: [dim_sub(dim_mul(difference, -1), 1)],
    }
    sizes = found.get(type(guard))
    return None if sizes is None else [d for d in sizes if not isinstance(d, AnyDim)]


def convert_size(expr: Any, values: Mapping[str, Dim]) -> Dim:
    """An expression over torch's symbols as a dimension, with ``values`` for them."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return values.get(str(expr), SymDim.symbol(str(expr)))
    if isinstance(expr, _ROUNDED_DOWN):
        return _product_rounded_down(expr.args[0], values)
    parts = [convert_size(part, values) for part in expr.args]
    if expr.is_Add:
        return reduce(dim_add, parts)
    if expr.is_Mul:
        return reduce(dim_mul, parts)
    if expr.is_Pow and isinstance(parts[1], int) and parts[1] >= 0:
        return reduce(dim_mul, [parts[0]] * parts[1], 1)
    if isinstance(expr, _QUOTIENTS):
        return dim_floordiv(parts[0], parts[1])
    if isinstance(expr, _REMAINDERS):
        return dim_sub(parts[0], dim_mul(parts[1], dim_floordiv(parts[0], parts[1])))
    if isinstance(expr, Max):
        return reduce(dim_max, parts)
    return reduce(dim_min, parts) if isinstance(expr, Min) else ANY


def scaled_size(size: Dim, factor: float) -> Dim:
    """floor(size * factor); ``ANY`` for a symbolic size if floats may round the product."""
    if isinstance(size, int):
        return int(size * factor)
    exact = Fraction(factor)
    if exact.denominator > MOST_PARTS:
        return ANY
    return dim_floordiv(dim_mul(size, exact.numerator), exact.denominator)


def _product_rounded_down(expr: Any, values: Mapping[str, Dim]) -> Dim:
    """A size times a float."""
    factor, size = expr.as_coeff_Mul()
    if not isinstance(size, ToFloat):
        return ANY
    return scaled_size(convert_size(size.args[0], values), float(factor))


_TORCH = Path(torch.__file__).parent
# torch's modules are code of the model; the rest of torch compares sizes for strides and layouts.
_LAYERS = str(_TORCH / "nn")


@contextmanager
def noted_questions() -> Iterator[list[sympy.Basic]]:
    """Within the context, the conditions on sizes that Python code outside of torch branches on.

    They are added to the list that the context gives.
    """
    found: list[sympy.Basic] = []
    before = torch.SymBool.__bool__

    def noted(self: torch.SymBool) -> bool:
        caller = inspect.currentframe().f_back  # type: ignore[union-attr]
        if caller is not None and _is_of_model(caller.f_code.co_filename):
            found.append(self.node.expr)
        return before(self)

    torch.SymBool.__bool__ = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        torch.SymBool.__bool__ = before  # type: ignore[method-assign]


def _is_of_model(file: str) -> bool:
    return not file.startswith(str(_TORCH)) or file.startswith(_LAYERS)


def differs(question: sympy.Basic, sizes: Mapping[str, int], usual: Mapping[str, int]) -> bool:
    """Whether the answer at ``sizes`` may be another than at ``usual`` sizes."""
    return value_at(question, sizes) != value_at(question, usual)
