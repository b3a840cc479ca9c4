"""Lowers the patterns of match clauses to tests and bindings."""

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
    """Emit the test of ``data`` against a pattern, and bind its variables in ``registers``.

    The builder continues in the block where the pattern matches; if it does not match, control goes
    to ``other``. Returns whether the pattern matches every value.
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
            pending.extend(_fields(builder, current, register, bc.GetField))
        elif isinstance(current, PatternTuple):
            pending.extend(_fields(builder, current, register, bc.GetItem))
    return always


def _test_tag(builder: FunctionBuilder, register: int, tag: int, other: Block) -> None:
    following = builder.new_block()
    builder.emit(bc.JumpUnlessTag(register, tag, other.number))
    builder.block.next = following.number
    builder.block = following


def _fields(builder: FunctionBuilder, pattern: PatternConstructor | PatternTuple, register: int,
           load: type[bc.GetField | bc.GetItem]) -> list[tuple[Pattern, int]]:
    """Load the fields that have sub-patterns; (sub-pattern, register) of each, last first."""
    fields: list[tuple[Pattern, int]] = []
    for index, inner in enumerate(pattern.patterns):
        if not isinstance(inner, PatternWildcard):
            field = builder.new_register()
            builder.emit(load(field, register, index))
            fields.append((inner, field))
    return fields[::-1]
