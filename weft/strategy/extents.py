"""Extents that symbols determine, as numbers: what they are at least, and what they usually are.

Schedules need two numbers. ``lowest_size`` is for everything that must hold for every size: what is
legal, and how many tasks there are. ``size_of`` is the typical size, for choices that only cost
time if the size is another one. Both follow from the ranges of the symbols, which are the names of
the size variables (``weft.ir.symbol``).
"""

from __future__ import annotations

import functools

from weft.ir.symbol import range_of
from weft.tir import Analyzer, PrimExpr, Var, const, floormod, int_value, substitute, vars_of
from weft.tir.size_text import bind_size


def is_fixed(extent: PrimExpr) -> bool:
    """Whether an extent is known when the kernel is compiled."""
    return int_value(extent) is not None


def size_of(extent: PrimExpr) -> int:
    """The extent as a number; the typical size of a symbolic one, which choices assume."""
    value = int_value(extent)
    return _typical(extent) if value is None else value


def lowest_size(extent: PrimExpr) -> int:
    """The extent as a number; the smallest one that the ranges of the symbols allow."""
    value = int_value(extent)
    return _lowest(extent) if value is None else value


def fewest_iterations(extent: PrimExpr) -> int:
    """The smallest number of iterations of a loop that runs: no symbol is 0 then."""
    value = int_value(extent)
    return max(1, _lowest_above_zero(extent) if value is None else value)


def highest_size(extent: PrimExpr) -> int | None:
    """The extent as a number; the largest one that the ranges allow, ``None`` without a limit."""
    value = int_value(extent)
    return _analyzer(extent).int_bounds(extent)[1] if value is None else value


def is_multiple(extent: PrimExpr, factor: int) -> bool:
    """Whether ``factor`` is known to divide the extent, whatever the symbols are."""
    value = int_value(extent)
    if value is not None:
        return value % factor == 0
    return _analyzer(extent).can_prove(floormod(extent, const(factor)).equal(0))


def are_equal(extent: PrimExpr, other: PrimExpr) -> bool:
    """Whether two extents are known to be equal, whatever the symbols are."""
    return extent is other or _analyzer(extent - other).can_prove(extent.equal(other))


@functools.lru_cache(maxsize=4096)
def _typical(extent: PrimExpr) -> int:
    sizes = {var: const(_typical_count(var)) for var in vars_of(extent)}
    return max(0, int_value(Analyzer().simplify(substitute(extent, sizes))) or 0)


@functools.lru_cache(maxsize=4096)
def _lowest(extent: PrimExpr) -> int:
    low, _ = _analyzer(extent).int_bounds(extent)
    return max(0, low or 0)


@functools.lru_cache(maxsize=4096)
def _lowest_above_zero(extent: PrimExpr) -> int:
    analyzer = _analyzer(extent)
    for var in vars_of(extent):
        if analyzer.int_bounds(var)[0] == 0:
            high = analyzer.int_bounds(var)[1]
            analyzer.bind(var, 1, high)  # ``high - 0`` iterations from 1 on
    return analyzer.int_bounds(extent)[0] or 0


def _analyzer(extent: PrimExpr) -> Analyzer:
    analyzer = Analyzer()
    for var in vars_of(extent):
        bind_size(analyzer, var)
    return analyzer


def _typical_count(var: Var) -> int:
    """The typical value of a size variable, which counts the multiples that its symbol allows."""
    sizes = range_of(var.name)
    return sizes.typical // sizes.multiple
