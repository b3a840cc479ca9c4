"""Variables for wildcards of unknown size: their zero adjoints take the sizes of the value."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir.expr import (
    Clause,
    Expr,
    Function,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
    Var,
)
from weft.ir.types import TensorType, TupleType, Type, TypeCall, has_any
from weft.transform.analysis.graph import rewrite_function, type_of
from weft.transform.autodiff.reverse.adjoint_types import field_types


def with_named_wildcards(fn: Function, definitions: Mapping[str, TypeData]) -> Function:
    """``fn`` in which matches bind tensors of sizes that only run time knows to variables."""

    def step(original: Expr, node: Expr) -> Expr:
        if not isinstance(node, Match) or not isinstance(original, Match):
            return node
        type_ = type_of(original.data)
        patterns = [_named(c.lhs, type_, definitions) for c in node.clauses]
        if all(p is c.lhs for p, c in zip(patterns, node.clauses, strict=True)):
            return node
        clauses = tuple(Clause(p, c.rhs) for p, c in zip(patterns, node.clauses, strict=True))
        return node.replace(clauses=clauses)

    return rewrite_function(fn, step)


def _named(pattern: Pattern, type_: Type, definitions: Mapping[str, TypeData]) -> Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, PatternWildcard):
        return PatternVar(Var("unused", type_)) if _is_unknown(type_) else pattern
    if isinstance(pattern, PatternTuple) and isinstance(type_, TupleType):
        inner = [_named(p, t, definitions)
                 for p, t in zip(pattern.patterns, type_.fields, strict=True)]
        is_same = all(a is b for a, b in zip(inner, pattern.patterns, strict=True))
        return pattern if is_same else PatternTuple(tuple(inner))
    if isinstance(pattern, PatternConstructor) and isinstance(type_, TypeCall):
        data = definitions[pattern.constructor.belongs_to.name]
        types = field_types(pattern.constructor, type_, data)
        inner = [_named(p, t, definitions)
                 for p, t in zip(pattern.patterns, types, strict=True)]
        is_same = all(a is b for a, b in zip(inner, pattern.patterns, strict=True))
        return pattern if is_same else PatternConstructor(pattern.constructor, tuple(inner))
    return pattern


def _is_unknown(type_: Type) -> bool:
    """Whether zeros of ``type_`` need a value: a float tensor of unknown size, or a tuple of it."""
    if isinstance(type_, TupleType):
        return any(map(_is_unknown, type_.fields))
    return isinstance(type_, TensorType) and type_.dtype.is_float and has_any(type_.shape)
