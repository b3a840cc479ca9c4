"""A loop over the examples of a batch, for operators without a batching rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft import op
from weft.ir import Dim, TensorType, TupleType, Type, int64
from weft.ir.expr import Call, Expr, Function, GlobalVar, If, Tuple, TupleGetItem, Var, const
from weft.op.batching import batched_type
from weft.op.gradients import field_of, known_dim, size_value
from weft.transform.autodiff.batching.batch_operator import known_type, tensor_leaves
from weft.transform.autodiff.batching.batch_types import type_with_batch


def example_loop(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim, name: str
) -> tuple[Function, Expr]:
    """A function that loops over the examples, to be defined as ``@name``, and the call of it.

    Its parameters are the number of the example, the arguments of ``call``, and the results so far,
    each of shape (size, ..). ``args`` are the arguments with the batch as axis 0 where
    ``is_batched``.
    """
    number = Var("i", TensorType((), int64))
    params = [Var(f"x{i}", type_with_batch(known_type(e), b, size))
              for i, (e, b) in enumerate(zip(call.args, is_batched, strict=True))]
    result = known_type(call)
    made = [Var(f"y{i}", batched_type(t, size)) for i, t in enumerate(tensor_leaves(result))]
    one = [_example(p, e.checked_type, number) if b else p
           for p, e, b in zip(params, call.args, is_batched, strict=True)]
    fields = _parts(call.replace(args=tuple(one)), result)
    next_params = [_written(v, f, number, size) for v, f in zip(made, fields, strict=True)]
    again = Call(GlobalVar(name), (op.add(number, const(1, int64)), *params, *next_params))
    last = size_value(known_dim(size, call), int64)
    body = If(op.less(number, last), again, _whole(result, iter(made)), span=call.span)
    ret_type = type_with_batch(result, True, size)
    start = [op.zeros(shape=t.shape, dtype=t.dtype) for t in tensor_leaves(ret_type)]
    return (Function((number, *params, *made), body, ret_type, span=call.span),
            Call(GlobalVar(name), (const(0, int64), *args, *start), span=call.span))


def _parts(value: Expr, type_: Type) -> list[Expr]:
    """The tensors of a value, in the structure of its type."""
    if not isinstance(type_, TupleType):
        return [value]
    return [part for i, field in enumerate(type_.fields)
            for part in _parts(TupleGetItem(value, i), field)]


def _whole(type_: Type, tensors: Iterator[Expr]) -> Expr:
    if isinstance(type_, TupleType):
        return Tuple(tuple(_whole(field, tensors) for field in type_.fields))
    return next(tensors)


def _example(x: Expr, type_: Type | None, number: Expr) -> Expr:
    if isinstance(type_, TupleType):
        return Tuple(tuple(_example(field_of(x, i), t, number)
                           for i, t in enumerate(type_.fields)))
    return op.take(x, number, axis=0)


def _written(whole: Var, row: Expr, number: Expr, size: Dim) -> Expr:
    """``whole`` with ``row`` at position ``number``."""
    type_ = whole.annotation
    here = op.equal(op.arange(start=0, stop=size, dtype=int64), number)
    rank = type_.ndim - 1 if isinstance(type_, TensorType) else 0
    mask = op.expand_dims(here, axis=1, num_newaxis=rank) if rank else here
    return op.where(mask, op.expand_dims(row, axis=0), whole)
