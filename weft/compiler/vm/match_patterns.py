"""Patterns of match clauses as tests and bindings."""

from __future__ import annotations

from weft.compiler.vm.blocks import Block
from weft.compiler.vm.function_builder import FunctionBuilder
from weft.ir.expr import (
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
)
from weft.runtime.vm import bytecode as bc


def lower_clause(builder: FunctionBuilder, pattern: Pattern, data: int, other: Block,
                 registers: dict[Var, int]) -> bool:
    """Test ``data`` against a pattern, left to right, and bind its variables in ``registers``.

    The builder's block is then where the value fits; where it does not, control is in ``other``.
    Returns whether every value fits.
    """
    always = True
    pending = [(pattern, data)]
    while pending:
        current, register = pending.pop()
        if isinstance(current, PatternVar):
            registers[current.var] = register
        elif isinstance(current, PatternConstructor):
            always = False
            _test_tag(builder, register, current.constructor.tag, other)
            pending.extend(_parts(builder, current, register, bc.GetField))
        elif isinstance(current, PatternTuple):
            pending.extend(_parts(builder, current, register, bc.GetItem))
    return always


def _test_tag(builder: FunctionBuilder, register: int, tag: int, other: Block) -> None:
    following = builder.new_block()
    builder.emit(bc.JumpUnlessTag(register, tag, other.number))
    builder.block.next = following.number
    builder.block = following


def _parts(builder: FunctionBuilder, pattern: PatternConstructor | PatternTuple, register: int,
           load: type[bc.GetField | bc.GetItem]) -> list[tuple[Pattern, int]]:
    parts: list[tuple[Pattern, int]] = []
    for index, part in enumerate(pattern.patterns):
        if not isinstance(part, PatternWildcard):
            field = builder.new_register()
            builder.emit(load(field, register, index))
            parts.append((part, field))
    return parts[::-1]
