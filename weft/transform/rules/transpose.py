"""Transpositions that undo each other or move nothing."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir.expr import Call, Expr
from weft.ir.types import TensorType
from weft.transform.graph import known_type, op_name
from weft.transform.rules.reshape import reshaped_like
from weft.transform.rules.rule import LocalRules, local_rule

RULES = LocalRules()


def axes_of(call: Call) -> tuple[int, ...] | None:
    """The permutation of a transpose, counted from the start; ``None`` before it is typed."""
    type_ = known_type(call)
    if not isinstance(type_, TensorType):
        return None
    attrs: Any = call.attrs
    if attrs.axes is None:
        return tuple(reversed(range(type_.ndim)))
    return tuple(a % type_.ndim for a in attrs.axes)


@local_rule(RULES, "transpose")
def transpose_of_transpose(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(2, 3, 4), float32]) { transpose(transpose(%x, axes=(1, 2, 0)), axes=(2, 1, 0)) }
    =>
    fn (%x: Tensor[(2, 3, 4), float32]) { transpose(%x, axes=(0, 2, 1)) }
    """
    inner = call.args[0]
    if not isinstance(inner, Call) or op_name(inner) != "transpose":
        return None
    outer_axes, inner_axes = axes_of(call), axes_of(inner)
    if outer_axes is None or inner_axes is None:
        return None
    axes = tuple(inner_axes[a] for a in outer_axes)
    if axes == tuple(range(len(axes))):
        return inner.args[0]
    return op.transpose(inner.args[0], axes=axes, span=call.span)


@local_rule(RULES, "transpose")
def transpose_of_unit_axes_is_a_reshape(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(2, 1, 4), float32]) { transpose(%x, axes=(0, 2, 1)) }
    =>
    fn (%x: Tensor[(2, 1, 4), float32]) { reshape(%x, newshape=(2, 4, 1)) }
    """
    source, axes = known_type(call.args[0]), axes_of(call)
    if not isinstance(source, TensorType) or axes is None:
        return None
    moved = [a for a in axes if source.shape[a] != 1]
    return reshaped_like(call.args[0], call) if moved == sorted(moved) else None
