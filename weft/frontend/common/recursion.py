"""Loops of imported models as tail-recursive functions of the IR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.frontend.common.typed import tensor_type
from weft.ir.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from weft.ir.span import Span
from weft.ir.types import TupleType
from weft.ir.visitor import children, post_order, replace_children


def with_parameters(
    span: Span, body: Sequence[Expr], known: Iterable[object]
) -> tuple[list[Expr], dict[Var, Expr]]:
    """``body`` with parameters for the results of other loops that it reads, and these results.

    ``known`` are the values from outside. A value is computed where it is used, so without a
    parameter each iteration of the second layer of an LSTM would run the loop of the first one.
    Calls evaluate their arguments once.
    """
    outside = {id(value) for value in known if isinstance(value, Call | TupleGetItem | If)}
    given: dict[Var, Expr] = {}
    made: dict[Expr, Expr] = {}
    for root in body:
        for expr in post_order(root, enter=lambda e: id(e) not in outside and e not in made):
            if expr in made:
                continue
            if id(expr) not in outside:
                made[expr] = replace_children(expr, [made[c] for c in children(expr)])
            elif any(isinstance(inner, Let) for inner in post_order(expr)):
                type_ = tensor_type(expr)
                made[expr] = Var(f"given{len(given)}", type_, span=span, checked_type=type_)
                given[made[expr]] = expr  # type: ignore[index]
            else:
                made[expr] = expr
    return [made[root] for root in body], given


def tail_recursion(
    span: Span, variables: tuple[Var, ...], goes_on: Expr, following: tuple[Expr, ...],
    first: tuple[Expr, ...],
) -> Expr:
    """Build the recursive function and its first call.

    It returns the tuple of ``variables`` when ``goes_on`` is false, else calls itself with
    ``following``.
    """
    types = tuple(v.annotation for v in variables)
    result = TupleType(types)  # type: ignore[arg-type]
    loop = Var("loop", span=span)
    again = Call(loop, following, span=span, checked_type=result)
    done = Tuple(variables, span=span, checked_type=result)
    choice = If(goes_on, again, done, span=span, checked_type=result)
    function = Function(variables, choice, result, span=span)
    start = Call(loop, first, span=span, checked_type=result)
    return Let(loop, function, start, span=span, checked_type=result)
