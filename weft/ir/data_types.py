"""Data types whose fields get other types: new constructors replace the old ones everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from weft.ir import expr
from weft.ir.types import Type


def changed_constructors(
    definitions: Mapping[str, expr.TypeData], change: Callable[[Type], Type]
) -> dict[str, expr.Constructor]:
    """The constructors whose field types ``change`` changes, by name."""
    found: dict[str, expr.Constructor] = {}
    for data in definitions.values():
        for constructor in data.constructors:
            inputs = tuple(map(change, constructor.inputs))
            if inputs != constructor.inputs:
                found[constructor.name] = dataclasses.replace(constructor, inputs=inputs,
                                                              checked_type=None)
    return found


def with_new_constructors(
    definitions: Mapping[str, expr.TypeData], new: Mapping[str, expr.Constructor]
) -> dict[str, expr.TypeData]:
    """``definitions`` with the constructors ``new``."""
    return {name: dataclasses.replace(data, constructors=tuple(new.get(c.name, c)
                                                               for c in data.constructors))
            for name, data in definitions.items()}


def over_new_constructors(node: expr.Expr, new: Mapping[str, expr.Constructor]) -> expr.Expr:
    """``node`` (a constructor, or a match with patterns) with the constructors ``new``."""
    if isinstance(node, expr.Constructor):
        return new.get(node.name, node)
    if not isinstance(node, expr.Match) or not new:
        return node
    clauses = tuple(expr.Clause(_pattern(c.lhs, new), c.rhs) for c in node.clauses)
    return node.replace(clauses=clauses)


def _pattern(pattern: expr.Pattern, new: Mapping[str, expr.Constructor]) -> expr.Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, expr.PatternTuple):
        return expr.PatternTuple(tuple(_pattern(p, new) for p in pattern.patterns))
    if isinstance(pattern, expr.PatternConstructor):
        constructor = new.get(pattern.constructor.name, pattern.constructor)
        return expr.PatternConstructor(constructor,
                                       tuple(_pattern(p, new) for p in pattern.patterns))
    return pattern
