"""Kernels for a part of the sizes, beside the general ones of a program.

A variant is the primitive function of a general kernel with a symbol replaced by a number or by a
symbol of a smaller range. The weights and the layouts of the general program are part of the
function, so all variants read the same packed weights. ``weft_main`` compares the sizes of a call
with the ranges.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.program.program import KernelVariant, Program
from weft.ir.expr import Function
from weft.ir.shape import SymDim
from weft.ir.substitution import substitute_symbols
from weft.ir.symbol import SizeRange, name_of, range_of, symbol_text
from weft.strategy.size_vars import symbols_of
from weft.strategy.variants import intersection, ranges_that_pay
from weft.support.errors import OptionError
from weft.target import Target

# Ranges that the user wants kernels for, by the name of the symbol.
Specialize = Mapping[str, Sequence[SizeRange]]

# Of one kernel; each costs as long to compile as the general one.
MAX_VARIANTS = 12


def add_variants(program: Program, target: Target, wanted: Specialize) -> Program:
    """The program with the variants that the user wants, and those that pay by the cost model.

    Raises ``OptionError`` for a symbol that the program lacks.
    """
    if not program.is_symbolic:
        return program
    _check_names(program, wanted)
    kernels = KernelSet.of(program.kernels)
    variants: dict[int, tuple[KernelVariant, ...]] = {}
    for number, source in enumerate(program.kernels):
        found = tuple(
            KernelVariant(kernels.number_of(_at(source.function, symbol, sizes)), symbol, sizes)
            for symbol, sizes in _ranges(source.function, target, wanted))
        if found:
            variants[number] = found[:MAX_VARIANTS]
    return dataclasses.replace(program, kernels=tuple(kernels.sources), variants=variants)


def _ranges(function: Function, target: Target, wanted: Specialize
            ) -> Iterator[tuple[str, SizeRange]]:
    seen: set[tuple[str, SizeRange]] = set()
    for symbol in symbols_of(function):
        for sizes in wanted.get(name_of(symbol), ()):
            part = intersection(range_of(symbol), sizes)
            if part is not None and (symbol, part) not in seen:
                seen.add((symbol, part))
                yield symbol, part
    for one in ranges_that_pay(function, target):
        if one not in seen:
            yield one


def _at(function: Function, symbol: str, sizes: SizeRange) -> Function:
    """The function for the sizes of a range alone."""
    is_number = sizes.low == sizes.high
    changed = sizes.low if is_number else SymDim.symbol(symbol_text(name_of(symbol), sizes))
    return substitute_symbols(function, {name_of(symbol): changed})


def _check_names(program: Program, wanted: Specialize) -> None:
    known = {name_of(symbol) for port in program.inputs for dim in port.type.shape
             if isinstance(dim, SymDim) for symbol in dim.symbols()}
    for name in wanted:
        if name not in known:
            raise OptionError(f"specialize names the unknown size {name!r}",
                              expected=f"one of {', '.join(sorted(known))}")
