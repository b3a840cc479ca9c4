"""Functions that run on the examples of a batch one by one.

Where examples take ways through a function that cannot be computed together (recursion of another
depth, another closure, references), the batch calls the function of one example for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Call, Dim, Expr, Function, GlobalVar, TensorType, TupleType, Type, Var
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.batching.batch_operator import MOST_COPIES, check_sizes, each_example
from weft.transform.autodiff.batching.batch_types import Flags, has_batch, spread, type_with_batch
from weft.transform.autodiff.batching.example_loop import example_loop
from weft.transform.normal_form.alpha import fresh_var


def can_run_one_by_one(fn: Function, flags: Sequence[Flags]) -> bool:
    """Whether what differs between the examples of a call are tensors and tuples of them."""
    given = [type_of(p) for p, f in zip(fn.params, flags, strict=True) if has_batch(f)]
    return not fn.type_params and all(map(_is_simple, (*given, type_of(fn.body))))


def _is_simple(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_is_simple, type_.fields))
    return isinstance(type_, TensorType)


def one_by_one(fn: Function, name: str, flags: Sequence[Flags], size: Dim, loop: str
               ) -> tuple[Function, dict[str, Function]]:
    """``fn`` for a batch, by calls of ``@name``, which is ``fn``; the results all have the batch.

    ``flags`` are those of the parameters. The second result has the loop over the examples of a
    large batch, to be called ``@loop``.
    """
    examples = tuple(map(fresh_var, fn.params))
    call = Call(GlobalVar(name), examples, span=fn.span, checked_type=type_of(fn.body))
    check_sizes(call, f"@{name}")
    params = tuple(Var(p.name, type_with_batch(type_of(p), f, size), span=p.span)
                   for p, f in zip(fn.params, flags, strict=True))
    is_batched = [has_batch(f) for f in flags]
    args: list[Expr] = [spread(p, e, f, True, size) if b else p for p, e, f, b
                        in zip(params, examples, flags, is_batched, strict=True)]
    further: dict[str, Function] = {}
    if isinstance(size, int) and size <= MOST_COPIES:
        body = each_example(call, args, is_batched, size)
    else:
        further[loop], body = example_loop(call, args, is_batched, size, loop)
    return Function(params, body, type_with_batch(type_of(fn.body), True, size),
                    span=fn.span), further
