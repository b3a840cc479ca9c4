"""Guards: the comparisons inside ``likely`` that loop partition eliminates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import Call, PrimExpr
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.interleave_tile import ANNOTATION as INTERLEAVE
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.tensorize_loop import ANNOTATION as TENSORIZE
from weft.tir.visitor import all_exprs, exprs_of, post_order, vars_of

# Kinds whose extent must be a constant.
STATIC = (ForKind.UNROLLED, ForKind.VECTORIZED)

def is_static(loop: s.For) -> bool:
    """Whether a later pass (unroll, vectorise, tensorize, interleave) needs a constant extent."""
    return loop.kind in STATIC or any(note in loop.annotations for note in (TENSORIZE, INTERLEAVE))


def comparisons_in(condition: PrimExpr, hinted: bool = False) -> Iterator[PrimExpr]:
    """The comparisons inside ``likely`` that ``condition`` is a conjunction of."""
    if type(condition) is x.And:
        yield from comparisons_in(condition.a, hinted)
        yield from comparisons_in(condition.b, hinted)
    elif type(condition) is Call and condition.name == "likely":
        yield from comparisons_in(condition.args[0], True)
    elif hinted and isinstance(condition, x.Compare):
        yield condition


def is_hint(e: PrimExpr) -> bool:
    return type(e) is Call and e.name == "likely"


class Guard:
    """A comparison inside a loop body.

    ``used`` are the variables that it uses, ``inner`` the loops around it inside the body whose
    variables it uses. ``is_select`` says that it selects between values (``if_then_else``), not
    between statements.
    """

    def __init__(self, predicate: PrimExpr, inner: tuple[s.For, ...], *, is_select: bool) -> None:
        self.predicate = predicate
        self.is_select = is_select
        self.used = vars_of(predicate)
        self.inner = tuple(loop for loop in inner if loop.loop_var in self.used)


# The comparisons in the if_then_else calls of an expression, memoised per function: the same
# expressions are scanned at every enclosing loop.
Selects: TypeAlias = "dict[PrimExpr, tuple[PrimExpr, ...]]"


def guards_in(node: Stmt, selects: Selects, inner: tuple[s.For, ...] = ()) -> Iterator[Guard]:
    """All guards in ``node``; ``inner`` are the loops around it."""
    if isinstance(node, s.IfThenElse):
        yield from (Guard(p, inner, is_select=False) for p in comparisons_in(node.condition))
    for root in exprs_of(node):
        predicates = selects.get(root)
        if predicates is None:
            predicates = selects[root] = tuple(_select_predicates(root))
        yield from (Guard(p, inner, is_select=True) for p in predicates)
    match node:
        case s.For():
            keeps_extent = is_static(node) or any(TENSORIZE in n.annotations for n in inner)
            kind = ForKind.UNROLLED if keeps_extent else node.kind
            yield from guards_in(node.body, selects, (*inner, node.replace(kind=kind)))
        case s.Allocate() | s.LetStmt() | s.AttrStmt():
            yield from guards_in(node.body, selects, inner)
        case s.IfThenElse():
            yield from guards_in(node.then_case, selects, inner)
            if node.else_case is not None:
                yield from guards_in(node.else_case, selects, inner)
        case s.SeqStmt():
            for stmt in node.stmts:
                yield from guards_in(stmt, selects, inner)


def _select_predicates(root: PrimExpr) -> Iterator[PrimExpr]:
    for e in post_order(root):
        if type(e) is Call and e.name == "if_then_else":
            yield from comparisons_in(e.args[0])


def has_masks(guard: Guard) -> bool:
    """Whether the vectors that the guard is about may be masked."""
    return any(loop.kind is ForKind.UNROLLED and MASKED_TAIL in loop.annotations
               for loop in guard.inner)


def is_for_a_row(guard: Guard) -> bool:
    """Whether the guard concerns masked vectors of a row, and a loop over these can be split."""
    return has_masks(guard) and any(loop.kind is ForKind.SERIAL for loop in guard.inner)


def selects_constants(body: Stmt) -> bool:
    """Whether each guarded element is a constant where its guard fails, as in padding."""
    return all(isinstance(e.args[2], x.FloatImm | x.IntImm)
               for e in all_exprs(body) if type(e) is Call and e.name == "if_then_else")
