"""Variables for wildcards of unknown size, whose zero adjoints take the sizes of the value."""

from __future__ import annotations

from collections.abc import Mapping

from weft import ir
from weft.transform.analysis.graph import rewrite_function, type_of
from weft.transform.autodiff.reverse.adjoint_types import field_types


def with_named_wildcards(fn: ir.Function, definitions: Mapping[str, ir.TypeData]) -> ir.Function:
    """``fn`` in which matches bind variables to tensors whose sizes only run time determines."""

    def step(original: ir.Expr, node: ir.Expr) -> ir.Expr:
        if not isinstance(node, ir.Match) or not isinstance(original, ir.Match):
            return node
        type_ = type_of(original.data)
        patterns = [_named(c.lhs, type_, definitions) for c in node.clauses]
        if all(p is c.lhs for p, c in zip(patterns, node.clauses, strict=True)):
            return node
        clauses = tuple(ir.Clause(p, c.rhs) for p, c in zip(patterns, node.clauses, strict=True))
        return node.replace(clauses=clauses)

    return rewrite_function(fn, step)


def _named(pattern: ir.Pattern, type_: ir.Type,
           definitions: Mapping[str, ir.TypeData]) -> ir.Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, ir.PatternWildcard):
        return ir.PatternVar(ir.Var("unused", type_)) if _is_unknown(type_) else pattern
    if isinstance(pattern, ir.PatternTuple) and isinstance(type_, ir.TupleType):
        inner = [_named(p, t, definitions)
                 for p, t in zip(pattern.patterns, type_.fields, strict=True)]
        is_same = all(a is b for a, b in zip(inner, pattern.patterns, strict=True))
        return pattern if is_same else ir.PatternTuple(tuple(inner))
    if isinstance(pattern, ir.PatternConstructor) and isinstance(type_, ir.TypeCall):
        data = definitions[pattern.constructor.belongs_to.name]
        types = field_types(pattern.constructor, type_, data)
        inner = [_named(p, t, definitions)
                 for p, t in zip(pattern.patterns, types, strict=True)]
        is_same = all(a is b for a, b in zip(inner, pattern.patterns, strict=True))
        return pattern if is_same else ir.PatternConstructor(pattern.constructor, tuple(inner))
    return pattern


def _is_unknown(type_: ir.Type) -> bool:
    """Whether zeros of ``type_`` need a value: a float tensor of unknown size, or a tuple of it."""
    if isinstance(type_, ir.TupleType):
        return any(map(_is_unknown, type_.fields))
    return isinstance(type_, ir.TensorType) and type_.dtype.is_float and ir.has_any(type_.shape)
