"""Helpers for the batching rules of operators, from which ``vmap`` is made.

A batching rule takes the typed call on one example, the arguments with the batch as axis 0 of those
that are batched, which ones these are, and the size of the batch. It returns the results of all
examples, with the batch as axis 0, or ``None`` where it has none for these arguments: then the call
is expanded (``Op.expansion``, ``Op.decomposition``), or repeated for each example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import op
from weft.ir import BatchingRule, Call, Dim, Expr, Routine, Tuple, TupleGetItem, run_routine
from weft.ir.types import TensorType, TupleType, Type, has_any
from weft.op.gradients import field_of, known_shape, tensor_type
from weft.support.errors import PassError


def batched_type(type_: TensorType, size: Dim) -> TensorType:
    """The type of ``size`` examples of a tensor type."""
    return TensorType((size, *type_.shape), type_.dtype)


def aligned(x: Expr, example: Expr, rank: int) -> Expr:
    """Batched ``x`` with axes of size 1 after the batch, so that examples have rank ``rank``.

    ``example`` is the tensor of one example; tensors of one rank broadcast as the examples do.
    """
    missing = rank - tensor_type(example).ndim
    return op.expand_dims(x, axis=1, num_newaxis=missing) if missing > 0 else x


def repeated(x: Expr, example: Expr, *, is_batched: bool, size: Dim) -> Expr:
    """``x`` with the batch as axis 0 of each tensor in it; repeated for each example if need be."""
    if is_batched:
        return x
    return run_routine(_repeated(x, example, size))


def _repeated(x: Expr, example: Expr, size: Dim) -> Routine[Expr]:
    type_ = example.checked_type
    if isinstance(type_, TupleType):
        fields = []
        for index in range(len(type_.fields)):
            field_ = yield _repeated(field_of(x, index), field_of(example, index), size)
            fields.append(field_)
        return Tuple(tuple(fields), span=x.span)
    shape = (size, *tensor_type(example).shape)
    if has_any(shape):
        raise PassError("vmap cannot repeat a tensor of a size that only run time knows",
                        where=example.span, got=type_, help="give its sizes symbols or numbers")
    return op.broadcast_to(x, shape=shape).with_type(batched_type(tensor_type(example), size))


def all_repeated(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> list[Expr]:
    """All arguments with the batch as axis 0."""
    return [repeated(a, e, is_batched=b, size=size)
            for a, e, b in zip(args, call.args, is_batched, strict=True)]


def with_attrs(call: Call, args: Sequence[Expr], **changes: Any) -> Call:
    """The operator of ``call`` on other arguments, with changed attributes."""
    attrs = call.attrs.replace(**changes) if changes else call.attrs
    return call.replace(args=tuple(args), attrs=attrs, checked_type=None)


def leading(call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim) -> Expr:
    """The rule of operators that take any leading axes: the same call on the batch."""
    return with_attrs(call, all_repeated(call, args, is_batched, size))


def broadcasting(call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim) -> Expr:
    """The rule of operators under NumPy's broadcasting: arguments of equal rank on examples."""
    del size
    rank = max(tensor_type(a).ndim for a in call.args)
    return with_attrs(call, [aligned(a, e, rank) if b else a
                             for a, e, b in zip(args, call.args, is_batched, strict=True)])


def shifted(axis: int, ndim: int) -> int:
    """An axis of an example of rank ``ndim`` as an axis of the batch."""
    return axis % ndim + 1 if ndim else axis


def shifted_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """``shifted``, of several axes."""
    return tuple(shifted(a, ndim) for a in axes)


def along(*fields: str) -> BatchingRule:
    """The rule of operators whose attributes ``fields`` are axes of the first argument."""

    def rule(call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim) -> Expr:
        ndim = tensor_type(call.args[0]).ndim
        changes: dict[str, Any] = {}
        for name in fields:
            axis = getattr(call.attrs, name)
            changes[name] = shifted(axis, ndim) if isinstance(axis, int) else (
                shifted_axes(axis, ndim))
        return with_attrs(call, all_repeated(call, args, is_batched, size), **changes)

    return rule


def along_with_parameters(*fields: str) -> BatchingRule:
    """As ``along``, for batched data alone: parameters such as scales must not be batched."""

    def rule(
        call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
    ) -> Expr | None:
        if any(is_batched[1:]):
            return None
        ndim = tensor_type(call.args[0]).ndim
        changes = {name: shifted(getattr(call.attrs, name), ndim) for name in fields}
        return with_attrs(call, args, **changes)

    return rule


def to_example_shape(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """The rule of reshapes of the first argument: the shape of the result, after the batch."""
    if any(is_batched[1:]):
        return None
    shape = known_shape(call, call)
    return op.reshape(args[0], newshape=(size, *shape), allowzero=True)


def merged(x: Expr, example: Expr, size: Dim) -> Expr:
    """Batched ``x`` with the batch merged into axis 0 of the examples."""
    first, *rest = known_shape(example, example)  # type: ignore[arg-type]
    return op.reshape(x, newshape=(size * first, *rest), allowzero=True)


def merged_at(x: Expr, example: Expr, size: Dim, axis: int) -> Expr:
    """Batched ``x`` with the batch merged into ``axis`` of the examples."""
    shape = known_shape(example, example)  # type: ignore[arg-type]
    apart = moved(x, 0, axis, len(shape) + 1)
    whole = (*shape[:axis], size * shape[axis], *shape[axis + 1:])
    return op.reshape(apart, newshape=whole, allowzero=True)


def unmerged_at(x: Expr, type_: Type | None, size: Dim, axis: int) -> Expr:
    """The reverse of ``merged_at``, for results of type ``type_`` per example."""
    if not isinstance(type_, TensorType):
        raise PassError("vmap expects a tensor here", where=x.span, got=type_)
    shape = (*type_.shape[:axis], size, *type_.shape[axis:])
    return moved(op.reshape(x, newshape=shape, allowzero=True), axis, 0, type_.ndim + 1)


def sequences_at(field: Callable[[Any], int]) -> BatchingRule:
    """The rule of operators on sequences with a length each: ``field(attrs)`` is their axis."""

    def rule(call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim) -> Expr:
        x, lengths = all_repeated(call, args, is_batched, size)
        axis = field(call.attrs) % tensor_type(call.args[0]).ndim
        new = (merged_at(x, call.args[0], size, axis), merged(lengths, call.args[1], size))
        return unmerged_at(with_attrs(call, new), call.checked_type, size, axis)

    return rule


def unmerged(x: Expr, type_: Type | None, size: Dim) -> Expr:
    """The reverse of ``merged``: ``x``, a tensor or a tuple, with the batch as axis 0.

    ``type_`` is the type of one example's result.
    """
    if isinstance(type_, TupleType):
        return Tuple(tuple(unmerged(TupleGetItem(x, i), t, size)
                           for i, t in enumerate(type_.fields)))
    if not isinstance(type_, TensorType):
        raise PassError("vmap expects a tensor here", where=x.span, got=type_)
    return op.reshape(x, newshape=(size, *type_.shape), allowzero=True)


def merging(*operands: int, layout: str | None = None) -> BatchingRule:
    """The rule of operators on stacks of images: the batch is merged into the axis N.

    ``operands`` are the arguments that have this axis, in front; all must have it unless
    ``layout`` names the attribute with the layout. Other arguments must not be batched.
    """
    wanted = operands or (0,)

    def rule(
        call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
    ) -> Expr | None:
        others = [b for i, b in enumerate(is_batched) if i not in wanted]
        if any(others) or (layout is not None and getattr(call.attrs, layout)[0] != "N"):
            return None
        new = [merged(repeated(a, e, is_batched=b, size=size), e, size) if i in wanted else a
               for i, (a, e, b) in enumerate(zip(args, call.args, is_batched, strict=True))]
        return unmerged(with_attrs(call, new), call.checked_type, size)

    return rule


def moved(x: Expr, source: int, target: int, ndim: int) -> Expr:
    """``x`` of rank ``ndim`` with axis ``source`` moved to position ``target``."""
    order = [a for a in range(ndim) if a != source]
    order.insert(target, source)
    return x if order == list(range(ndim)) else op.transpose(x, axes=tuple(order))


def batch_numbers(size: Dim, ndim: int, dtype: Any) -> Expr:
    """The numbers of the examples, of shape (size, 1, ..) with ``ndim`` axes in all."""
    line = op.arange(start=0, stop=size, dtype=dtype)
    return op.expand_dims(line, axis=1, num_newaxis=ndim - 1) if ndim > 1 else line
