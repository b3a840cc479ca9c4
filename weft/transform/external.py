"""Bring your own code generator: what other compilers can take over.

A code generator says which calls it supports, and which patterns of calls it knows as one
composite operation. ``merge_composite`` marks the patterns, ``partition_graph`` cuts the regions
that a generator supports out of the program, as functions with the attribute ``compiler``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.ir.expr import Call, Expr
from weft.ir.pattern import Term
from weft.support.registry import Registry


@dataclass(frozen=True, slots=True, eq=False)
class CompositePattern:
    """``name`` for what ``pattern`` matches, where ``check`` holds of the matched expression."""

    name: str
    pattern: Term
    check: Callable[[Expr], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ExternalCodegen:
    """A code generator for parts of programs.

    ``supports`` is asked of every operator call; calls of its composites are always taken.
    """

    name: str
    supports: Callable[[Call], bool]
    patterns: tuple[CompositePattern, ...] = ()


EXTERNAL_CODEGENS: Registry[ExternalCodegen] = Registry("external code generator")


def register_external_codegen(
    name: str,
    *,
    supports: Callable[[Call], bool] | Sequence[str] = (),
    patterns: Sequence[CompositePattern] = (),
) -> ExternalCodegen:
    """Make a code generator known by ``name``; ``supports`` may be a list of operator names."""
    if callable(supports):
        accepts = supports
    else:
        names = frozenset(supports)

        def accepts(call: Call) -> bool:
            return getattr(call.op, "name", None) in names

    codegen = ExternalCodegen(name, accepts, tuple(patterns))
    return EXTERNAL_CODEGENS.register(name, codegen)
