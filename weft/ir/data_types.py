"""Data types with other field types: new constructors replace the old ones everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from weft.ir.expr import (
    Clause,
    Constructor,
    Expr,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    TypeData,
)
from weft.ir.types import Type


def changed_constructors(
    definitions: Mapping[str, TypeData], change: Callable[[Type], Type]
) -> dict[str, Constructor]:
    """The constructors whose field types ``change`` changes, by name."""
    found: dict[str, Constructor] = {}
    for data in definitions.values():
        for constructor in data.constructors:
            inputs = tuple(map(change, constructor.inputs))
            if inputs != constructor.inputs:
                found[constructor.name] = dataclasses.replace(constructor, inputs=inputs,
                                                              checked_type=None)
    return found


def with_new_constructors(
    definitions: Mapping[str, TypeData], new: Mapping[str, Constructor]
) -> dict[str, TypeData]:
    """``definitions`` with the constructors ``new``."""
    return {name: dataclasses.replace(data, constructors=tuple(new.get(c.name, c)
                                                               for c in data.constructors))
            for name, data in definitions.items()}


def over_new_constructors(node: Expr, new: Mapping[str, Constructor]) -> Expr:
    """``node`` itself with the constructors ``new``: a constructor, or the patterns of a match."""
    if isinstance(node, Constructor):
        return new.get(node.name, node)
    if not isinstance(node, Match) or not new:
        return node
    clauses = tuple(Clause(_pattern(c.lhs, new), c.rhs) for c in node.clauses)
    return node.replace(clauses=clauses)


def _pattern(pattern: Pattern, new: Mapping[str, Constructor]) -> Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, PatternTuple):
        return PatternTuple(tuple(_pattern(p, new) for p in pattern.patterns))
    if isinstance(pattern, PatternConstructor):
        constructor = new.get(pattern.constructor.name, pattern.constructor)
        return PatternConstructor(constructor, tuple(_pattern(p, new) for p in pattern.patterns))
    return pattern
