"""Symbolic sizes in computes: sizes from attributes, and what their ranges say."""

from __future__ import annotations

from collections.abc import Iterable

from weft import tir
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, as_prim, int_value
from weft.tir.size_text import bind_size


def as_size(dim: object) -> PrimExpr | int:
    """A size of an attribute as a compute receives it, where symbols are variables of the kernel.

    Raises ``LoweringError`` for a dimension that ``SizeVars.attrs`` has not converted.
    """
    if isinstance(dim, (int, PrimExpr)):
        return dim
    raise LoweringError("a symbolic size outside of a kernel with size parameters", got=str(dim))


def as_sizes(dims: Iterable[object]) -> tuple[PrimExpr | int, ...]:
    """Several sizes of an attribute; see ``as_size``."""
    return tuple(map(as_size, dims))


def fixed_size(size: PrimExpr, what: str) -> int:
    """A size that shapes the code; ``LoweringError`` if it is symbolic."""
    value = int_value(size)
    if value is None:
        raise LoweringError(f"{what} must have a fixed size", got=size,
                            help="give the dimension a number")
    return value


def size_bounds(size: PrimExpr | int) -> tuple[int | None, int | None]:
    """The least and the greatest value of an expression over sizes; ``None``: unbounded."""
    if isinstance(size, int):
        return size, size
    expr, analyzer = as_prim(size), tir.Analyzer()
    for var in sorted(tir.vars_of(expr), key=lambda v: v.name):
        bind_size(analyzer, var)
    return analyzer.int_bounds(expr)


def is_natural(size: PrimExpr | int) -> bool:
    """Whether an expression over sizes is known to be 0 or more."""
    low, _ = size_bounds(size)
    return low is not None and low >= 0
