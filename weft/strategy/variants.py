"""Variants of a kernel of symbolic sizes: ranges of sizes that get a kernel of their own.

For some sizes another schedule is so much faster than the general one that it is worth the compile
time of a kernel (20 to 50 ms): one row of a matmul, one query of an attention. The family of an
operator names these sizes as ranges of symbols and of products of symbols (``batch*seq`` rows). The
program then contains the same primitive function a second time, for these sizes alone
(``weft.strategy.specialize``), and compares sizes at run time. All variants share the packed
weights and blocked layouts of the general call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from weft.ir import Call, Dim, Family, Function, Op, SizeRange, SymDim, bounds_of, range_of
from weft.strategy.build_tensors import anchor_of
from weft.strategy.size_vars import symbols_of
from weft.strategy.strategy_registry import StrategyRegistry, check_operator, key_of
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.target import Target


@dataclass(frozen=True, slots=True)
class SizeCondition:
    """A symbol of the general function, or a product of them, is in a range."""

    size: SymDim
    sizes: SizeRange

    def __str__(self) -> str:
        return f"{self.size} in {self.sizes}"


# A kernel for the sizes that meet all conditions.
Variant: TypeAlias = "tuple[SizeCondition, ...]"
# (general call with typed arguments, target of the registered kind) -> variants, the first of
# several that take a size runs it. Ranges need not lie inside those of the symbols.
VariantsHook: TypeAlias = Callable[[Call, Any], Iterable[Variant]]

# By target kind and operator.
VARIANTS: StrategyRegistry[VariantsHook] = StrategyRegistry("hook for variants")


def variants_for(what: str | Family, *, target: str) -> Callable[[VariantsHook], VariantsHook]:
    """Register ``(call, target) -> [variant, ...]`` for kernels with this anchor.

    ``what`` is the name of an operator, or a family. The function
    is called for calls with symbolic sizes only, and derives the ranges from the cost model.
    Raises ``RegistryError`` for an unknown operator or target kind.
    """
    check_operator(what, target)

    def wrap(function: VariantsHook) -> VariantsHook:
        return VARIANTS.register(key_of(what, target), function)

    return wrap


def variants_that_pay(function: Function, target: Target) -> tuple[Variant, ...]:
    """The variants of a primitive function with symbolic sizes, in the order of test at run time.

    Conditions are cut to the ranges of the symbols; the general kernel runs all sizes that no
    variant takes. Empty for a function without symbols or whose family names none.
    """
    symbols = symbols_of(function)
    anchor = anchor_of(function) if symbols else None
    if anchor is None or not isinstance(anchor.op, Op):
        return ()
    hook = VARIANTS.of_operator(anchor.op.name, target.kind)
    found: dict[Variant, None] = {}
    for variant in () if hook is None else hook(anchor, target):
        unknown = {s for each in variant for s in each.size.symbols()} - set(symbols)
        if unknown:
            raise InternalError(f"a variant of {anchor.op.name} names an unknown symbol",
                                expected=", ".join(symbols), got=", ".join(sorted(unknown)))
        if part := cut(variant):
            found[part] = None
    return tuple(found)


def cut(conditions: Sequence[SizeCondition]) -> Variant | None:
    """The conditions within the ranges of the symbols, those that always hold left out.

    ``None`` if no size meets them.
    """
    kept = []
    for each in conditions:
        own = range_of_size(each.size)
        part = intersection(own, each.sizes)
        if part is None:
            return None
        if part != own:
            kept.append(SizeCondition(each.size, part))
    return tuple(kept)


def factors_of(size: Dim) -> tuple[str, ...]:
    """The symbols of a size that is a product of symbols, in the order of its text; else empty."""
    if not isinstance(size, SymDim) or len(size.terms) != 1:
        return ()
    (monomial, coefficient), = size.terms
    symbols = tuple(atom for atom in monomial if isinstance(atom, str))
    return symbols if coefficient == 1 and len(symbols) == len(set(monomial)) else ()


def product_of(symbols: Iterable[str]) -> SymDim:
    """The product of distinct symbols."""
    return SymDim(((tuple(sorted(symbols)), 1),))


def range_of_size(size: SymDim) -> SizeRange:
    """The range of a symbol, or of a product of symbols."""
    factors = factors_of(size)
    if len(factors) == 1:
        return range_of(factors[0])
    low, high = bounds_of(size)
    return SizeRange(low or 0, high, math.prod(range_of(s).multiple for s in factors))


def intersection(a: SizeRange, b: SizeRange) -> SizeRange | None:
    """The sizes in both ranges, with ends that are among them; ``None`` if there are none."""
    multiple = math.lcm(a.multiple, b.multiple)
    low = -(-max(a.low, b.low) // multiple) * multiple
    ends = [end for end in (a.high, b.high) if end is not None]
    if not ends:
        return SizeRange(low, None, multiple)
    high = min(ends) // multiple * multiple
    return SizeRange(low, high, multiple) if low <= high else None
