"""Kernels for a part of the sizes, beside the general ones of a program.

A variant is the primitive function of a general kernel with a symbol replaced by a number or by a
symbol of a smaller range. The weights and the layouts of the general program are part of the
function, so all variants read the same packed weights. ``weft_main`` tests the sizes of a call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.program.program import KernelVariant, Program
from weft.ir import Function, SizeRange, SymDim, name_of
from weft.ir.size_syntax import parse_size
from weft.strategy.size_vars import symbols_of
from weft.strategy.specialize import rounds_alike, specialize
from weft.strategy.variants import (
    SizeCondition,
    Variant,
    cut,
    factors_of,
    product_of,
    variants_that_pay,
)
from weft.support.errors import OptionError, TypeInferenceError
from weft.target import Target

# Kernels that the user wants: for each the names of symbols (or products of them) and their ranges.
Specialize: TypeAlias = "Sequence[Sequence[tuple[str, SizeRange]]]"

# Of one kernel; each costs as long to compile as the general one.
MAX_VARIANTS = 12


def add_variants(program: Program, target: Target, wanted: Specialize,
                 frequent: Specialize = ()) -> Program:
    """The program with the variants that the user wants, and those that pay by the cost model.

    Kernels that give the same bits at any sizes have variants for the ``frequent`` ones too.
    Raises ``OptionError`` for a symbol that the program lacks.
    """
    sizes, often = _sizes_of(program, wanted), _sizes_of(program, frequent)
    kernels = KernelSet.of(program.kernels)
    variants: dict[int, tuple[KernelVariant, ...]] = {}
    for number, source in enumerate(program.kernels):
        found = []
        own = [*sizes, *often] if often and rounds_alike(source.function) else sizes
        for conditions in _conditions(source.function, target, own):
            made = specialize(source.function, conditions)
            if made is not None and len(found) < MAX_VARIANTS:
                found.append(KernelVariant(kernels.number_of(made.function), conditions,
                                           made.sizes))
        if found:
            variants[number] = tuple(found)
    return dataclasses.replace(program, kernels=tuple(kernels.sources), variants=variants)


def _conditions(function: Function, target: Target,
                wanted: Sequence[Sequence[tuple[tuple[str, ...], SizeRange]]]) -> Iterator[Variant]:
    """The variants of a function in the order of test, each once: first those of the user."""
    symbols = {name_of(symbol): symbol for symbol in symbols_of(function)}
    seen: set[Variant] = set()
    for one in wanted:
        # A condition on a size that the function does not have leaves it as it is.
        conditions = [SizeCondition(product_of(symbols[n] for n in names), sizes)
                      for names, sizes in one if all(n in symbols for n in names)]
        part = cut(conditions)
        if part and part not in seen:
            seen.add(part)
            yield part
    for part in variants_that_pay(function, target):
        if part not in seen:
            yield part


def _sizes_of(program: Program, wanted: Specialize
              ) -> list[list[tuple[tuple[str, ...], SizeRange]]]:
    """The names of the symbols in each size that the user gave."""
    known = {name_of(symbol) for port in program.inputs for dim in port.type.shape
             if isinstance(dim, SymDim) for symbol in dim.symbols()}
    return [[(_names_in(text, known), sizes) for text, sizes in one] for one in wanted]


def _names_in(text: str, known: set[str]) -> tuple[str, ...]:
    try:
        names = tuple(map(name_of, factors_of(parse_size(text, SymDim.symbol))))
    except TypeInferenceError:
        names = ()
    if not names:
        raise OptionError(f"specialize cannot bound the size {text!r}",
                          expected="a symbol such as batch, or a product such as batch*seq")
    for name in names:
        if name not in known:
            raise OptionError(f"specialize names the unknown size {name!r}",
                              expected=f"one of {', '.join(sorted(known))}")
    return names
