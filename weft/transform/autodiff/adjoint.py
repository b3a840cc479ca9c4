"""Adjoints of values of any type; a zero adjoint is represented by ``None`` and costs nothing.

The adjoint of a tuple is an expression of its type, or a Python tuple with one adjoint for each
field.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import op
from weft.ir.expr import Expr, Tuple
from weft.ir.trampoline import Routine, run
from weft.ir.types import TensorType, TupleType, Type, holds_float, is_static
from weft.op.gradients import field_of, typed_zeros

Adjoint: TypeAlias = "Expr | tuple[Adjoint, ...] | None"


def is_differentiable(type_: Type | None) -> bool:
    """Whether a value of that type contains floating-point tensors."""
    return type_ is not None and holds_float(type_)


def field_adjoint(adjoint: Adjoint, index: int) -> Adjoint:
    """The adjoint of one field, from that of the tuple."""
    if isinstance(adjoint, tuple):
        return adjoint[index]
    return None if adjoint is None else field_of(adjoint, index)


def one_field(adjoint: Adjoint, index: int, count: int) -> Adjoint:
    """The adjoint of a tuple of ``count`` fields of which only field ``index`` is used."""
    return tuple(adjoint if i == index else None for i in range(count))


def sum_of(a: Adjoint, b: Adjoint) -> Adjoint:
    """The sum of the adjoints of two uses of a value."""
    return run(_sum(a, b, {}))


def _sum(
    a: Adjoint, b: Adjoint, made: dict[tuple[int, int], tuple[Adjoint, Adjoint, Adjoint]]
) -> Routine[Adjoint]:
    """``made`` memoizes sums by their operands and keeps these alive, because adjoints share."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Expr) and isinstance(a.checked_type, TensorType) and isinstance(b, Expr):
        return op.add(a, b, span=a.span).with_type(a.checked_type)
    known = made.get((id(a), id(b)))
    if known is None:
        count = _field_count(a) or _field_count(b) or 0
        fields = []
        for i in range(count):
            field = yield _sum(field_adjoint(a, i), field_adjoint(b, i), made)
            fields.append(field)
        known = made[id(a), id(b)] = (a, b, tuple(fields))
    return known[2]


def _field_count(adjoint: Adjoint) -> int | None:
    if isinstance(adjoint, tuple):
        return len(adjoint)
    type_ = adjoint.checked_type if adjoint is not None else None
    return len(type_.fields) if isinstance(type_, TupleType) else None


def as_gradient(adjoint: Adjoint, value: Expr) -> Expr:
    """The adjoint of ``value`` as an expression of its type, with explicit zeros."""
    return run(_written(adjoint, value, {}))


def _written(
    adjoint: Adjoint, value: Expr, made: dict[tuple[int, Type | None], Expr]
) -> Routine[Expr]:
    if isinstance(adjoint, Expr):
        return adjoint
    if adjoint is None:
        return typed_zeros(value)
    type_ = value.checked_type
    # With symbolic shapes a tensor of zeros depends on the value, not on its type alone.
    key = (id(adjoint), type_ if type_ is not None and is_static(type_) else None)
    known = made.get(key) if key[1] is not None else None
    if known is None:
        fields = []
        for i, part in enumerate(adjoint):
            fields.append((yield _written(part, field_of(value, i), made)))
        known = made[key] = Tuple(tuple(fields), span=value.span, checked_type=type_)
    return known
