"""Which tensors of a value are mapped, that is, have the batch as an axis, and the types of values.

A ``Mapped`` describes a value: ``True`` if the batch is axis 0 of every tensor in it, ``False`` if
no tensor has the batch, or a tuple with the ``Mapped`` of each field. By convention all tensors in
values of data types are mapped, and so are arguments and results of functions that are values.
Their types stand at many positions of a program, which could otherwise disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft import op
from weft.ir import Dim, Expr, FuncType, TensorType, Tuple, TupleType, Type, TypeCall, TypeVar
from weft.ir.visitor import Routine, run_routine
from weft.op.batching import batched_type, repeated
from weft.op.gradients import field_of
from weft.support.errors import PassError

Mapped: TypeAlias = "bool | tuple[Mapped, ...]"


class NotVectorisedError(PassError):
    """Examples cannot be computed together; the enclosing function runs one by one."""


def field_mapped(mapped: Mapped, index: int) -> Mapped:
    """Which tensors of a field of a tuple are mapped."""
    return mapped if isinstance(mapped, bool) else mapped[index]


def tuple_of(fields: Sequence[Mapped]) -> Mapped:
    """The ``Mapped`` of a tuple, in its shortest form."""
    if all(f is True for f in fields) and fields:
        return True
    return False if all(f is False for f in fields) else tuple(fields)


def join(a: Mapped, b: Mapped) -> Mapped:
    """The ``Mapped`` of a value that is one of two values."""
    return run_routine(_join(a, b, {}))


def _join(a: Mapped, b: Mapped, made: dict[tuple[int, int], Mapped]) -> Routine[Mapped]:
    """``made`` memoizes joins by their operands, because a ``Mapped`` shares parts as types do."""
    if isinstance(a, bool) or isinstance(b, bool):
        return True if True in (a, b) else b if a is False else a
    key = id(a), id(b)
    if key not in made:
        fields = []
        for x, y in zip(a, b, strict=True):
            field_ = yield _join(x, y, made)
            fields.append(field_)
        made[key] = tuple_of(fields)
    return made[key]


def has_batch(mapped: Mapped) -> bool:
    """Whether any tensor of the value has a batch."""
    pending, seen = [mapped], set[int]()
    while pending:
        current = pending.pop()
        if current is True:
            return True
        if isinstance(current, tuple) and id(current) not in seen:
            seen.add(id(current))
            pending.extend(current)
    return False


def least_mapped(type_: Type | None) -> Mapped:
    """The ``Mapped`` of a value that does not depend on the batch: what the convention maps."""
    return run_routine(_least(type_, {}))


def _least(type_: Type | None, made: dict[int, Mapped]) -> Routine[Mapped]:
    if isinstance(type_, TupleType):
        if id(type_) not in made:
            fields = []
            for field in type_.fields:
                field_ = yield _least(field, made)
                fields.append(field_)
            made[id(type_)] = tuple_of(fields)
        return made[id(type_)]
    return isinstance(type_, (TypeCall, TypeVar))


def type_with_batch(type_: Type, mapped: Mapped, size: Dim) -> Type:
    """The type of a value of ``type_`` for ``size`` examples."""
    return run_routine(_type_with_batch(type_, mapped, size, {}))


def _type_with_batch(
    type_: Type, mapped: Mapped, size: Dim, made: dict[tuple[int, int], Type]
) -> Routine[Type]:
    if isinstance(type_, TensorType):
        return batched_type(type_, size) if mapped is True else type_
    by_convention = isinstance(type_, (FuncType, TypeCall))
    if not by_convention and (mapped is False or not isinstance(type_, TupleType)):
        return type_
    key = id(type_), id(mapped)  # the caller keeps both alive, in its types and values
    if key not in made:
        parts = []
        for index, part in enumerate(type_.components()):
            inner = True if by_convention else field_mapped(mapped, index)
            part_ = yield _type_with_batch(part, inner, size, made)
            parts.append(part_)
        made[key] = type_.with_components(tuple(parts))
    return made[key]


def add_batch(x: Expr, example: Expr, have: Mapped, want: Mapped, size: Dim) -> Expr:
    """``x``, whose tensors ``have`` are mapped, with the tensors ``want`` mapped as well.

    ``example`` is the typed value of one example.
    """
    return run_routine(_add_batch(x, example, have, want, size, {}))


def _add_batch(x: Expr, example: Expr, have: Mapped, want: Mapped, size: Dim,
               made: dict[tuple[int, int, int], tuple[Expr, Expr, Expr]]) -> Routine[Expr]:
    """``made`` memoizes results by value and ``Mapped``, and keeps its keys alive."""
    type_ = example.checked_type
    if have is want or not has_batch(want):
        return x
    if isinstance(type_, TupleType):
        key = id(x), id(have), id(want)
        if key in made:
            return made[key][0]
        fields = []
        for i in range(len(type_.fields)):
            field_ = yield _add_batch(field_of(x, i), field_of(example, i), field_mapped(have, i),
                                   field_mapped(want, i), size, made)
            fields.append(field_)
        made[key] = Tuple(tuple(fields), span=x.span), x, example
        return made[key][0]
    if isinstance(type_, TensorType):
        if have == want:
            return x
        return repeated(x, example, is_batched=has_batch(have), size=size)
    return x


def select(condition: Expr, x: Expr, y: Expr, example: Expr, size: Dim) -> Expr:
    """Per example ``x`` where ``condition`` (of shape (size,)) holds, else ``y``.

    Both have the batch everywhere. Raises ``PassError`` for values other than tensors and tuples.
    """
    return run_routine(_select(condition, x, y, example, size))


def _select(condition: Expr, x: Expr, y: Expr, example: Expr, size: Dim) -> Routine[Expr]:
    type_ = example.checked_type
    if isinstance(type_, TupleType):
        fields = []
        for i in range(len(type_.fields)):
            field_ = yield _select(condition, field_of(x, i), field_of(y, i),
                                   field_of(example, i), size)
            fields.append(field_)
        return Tuple(tuple(fields), span=example.span)
    if not isinstance(type_, TensorType):
        raise NotVectorisedError(
            "vmap cannot choose between values of this type per example",
            where=example.span, got=type_, expected="tensors, or tuples of them",
            help="move the condition inside, to the tensors that depend on it")
    mask = op.expand_dims(condition, axis=1, num_newaxis=type_.ndim) if type_.ndim else condition
    return op.where(mask, x, y, span=example.span).with_type(batched_type(type_, size))
