"""Functions that run on the examples of a batch one by one.

Some computations differ between examples in ways that cannot be vectorised: recursion of different
depth, different closures, references. The batch then calls the function of one example for each
example.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Call, Dim, Expr, Function, GlobalVar, TensorType, TupleType, Type, Var
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.batching.batch_operator import MOST_COPIES, check_sizes, each_example
from weft.transform.autodiff.batching.batch_types import (
    Mapped,
    add_batch,
    has_batch,
    type_with_batch,
)
from weft.transform.autodiff.batching.example_loop import example_loop
from weft.transform.normal_form.alpha import fresh_var


def can_run_one_by_one(fn: Function, mapped: Sequence[Mapped]) -> bool:
    """Whether the arguments and results that differ between examples are (tuples of) tensors."""
    given = [type_of(p) for p, f in zip(fn.params, mapped, strict=True) if has_batch(f)]
    return not fn.type_params and all(map(_is_simple, (*given, type_of(fn.body))))


def _is_simple(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_is_simple, type_.fields))
    return isinstance(type_, TensorType)


def one_by_one(fn: Function, name: str, mapped: Sequence[Mapped], size: Dim, loop: str
               ) -> tuple[Function, dict[str, Function]]:
    """``fn`` for a batch, by calls of ``@name``, which is ``fn``; all results are mapped.

    ``mapped`` are those of the parameters. The second result has the loop over the examples of a
    large batch, to be called ``@loop``.
    """
    examples = tuple(map(fresh_var, fn.params))
    call = Call(GlobalVar(name), examples, span=fn.span, checked_type=type_of(fn.body))
    check_sizes(call, f"@{name}")
    params = tuple(Var(p.name, type_with_batch(type_of(p), f, size), span=p.span)
                   for p, f in zip(fn.params, mapped, strict=True))
    is_batched = [has_batch(f) for f in mapped]
    args: list[Expr] = [add_batch(p, e, f, True, size) if b else p for p, e, f, b
                        in zip(params, examples, mapped, is_batched, strict=True)]
    further: dict[str, Function] = {}
    if isinstance(size, int) and size <= MOST_COPIES:
        body = each_example(call, args, is_batched, size)
    else:
        further[loop], body = example_loop(call, args, is_batched, size, loop)
    return Function(params, body, type_with_batch(type_of(fn.body), True, size),
                    span=fn.span), further
