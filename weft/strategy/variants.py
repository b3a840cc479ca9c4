"""Which ranges of a symbolic size deserve a kernel of their own.

A kernel with symbolic sizes runs all sizes. For some of them another schedule is faster than the
general one by more than the compile time of a kernel is worth (20 to 50 ms): one row of a matmul,
one query of an attention. The family of an operator names these ranges for a general call; the
program then holds the same primitive function a second time, with the symbol replaced by one of
the smaller range (by a number, if the range has one size), and compares sizes at run time. What
the graph has fixed on the general call (packed weights, blocked layouts) is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from weft.ir.expr import Call, Function
from weft.ir.op import Op
from weft.ir.symbol import SizeRange, range_of
from weft.strategy.build_tensors import anchor_of
from weft.strategy.checks import check_operator
from weft.strategy.size_vars import symbols_of
from weft.support.errors import InternalError
from weft.support.registry import Registry
from weft.target import Target

# A symbol of the general function, and the sizes of it that a variant runs.
SymbolRange: TypeAlias = "tuple[str, SizeRange]"
# (general call with typed arguments, target of the registered kind) -> ranges, the first of several
# that contain a size runs it. Ranges need not lie inside those of the symbols.
VariantsHook: TypeAlias = Callable[[Call, Any], Iterable[SymbolRange]]

VARIANTS: Registry[VariantsHook] = Registry("hook for variants")  # by target kind and operator


def variants_for(op_name: str, *, target: str) -> Callable[[VariantsHook], VariantsHook]:
    """Register ``(call, target) -> [(symbol, range), ...]`` for kernels with this anchor.

    It is called for calls with symbolic sizes only, and derives the ranges from the cost model.
    Raises ``RegistryError`` for an unknown operator or target kind.
    """
    check_operator(op_name, target)

    def wrap(function: VariantsHook) -> VariantsHook:
        return VARIANTS.register(f"{target}:{op_name}", function)

    return wrap


def ranges_that_pay(function: Function, target: Target) -> tuple[SymbolRange, ...]:
    """The variants of a primitive function with symbolic sizes, in the order of test at run time.

    Each is a symbol's text as it occurs in ``function`` and a part of the symbol's range; the
    general kernel runs all sizes that no variant takes. Empty for a function without symbols or
    whose family names none.
    """
    symbols = symbols_of(function)
    anchor = anchor_of(function) if symbols else None
    if anchor is None or not isinstance(anchor.op, Op):
        return ()
    hook = VARIANTS.find(f"{target.kind}:{anchor.op.name}")
    found: dict[SymbolRange, None] = {}
    for symbol, sizes in () if hook is None else hook(anchor, target):
        if symbol not in symbols:
            raise InternalError(f"a variant of {anchor.op.name} names an unknown symbol",
                                expected=", ".join(symbols), got=symbol)
        own = range_of(symbol)
        part = intersection(own, sizes)
        if part is not None and part != own:
            found[symbol, part] = None
    return tuple(found)


def intersection(a: SizeRange, b: SizeRange) -> SizeRange | None:
    """The sizes in both ranges, with ends that are among them; ``None`` if there are none."""
    multiple = math.lcm(a.multiple, b.multiple)
    low = -(-max(a.low, b.low) // multiple) * multiple
    ends = [end for end in (a.high, b.high) if end is not None]
    if not ends:
        return SizeRange(low, None, multiple)
    high = min(ends) // multiple * multiple
    return SizeRange(low, high, multiple) if low <= high else None
