"""Transposes that cancel or move no element."""

from __future__ import annotations

from weft import op
from weft.ir import Call, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_
from weft.transform.analysis.graph import is_known_tensor, shape_of
from weft.transform.rules.reshape import reshaped_like

UNTYPED = NoMatch("the rank is unknown")


def axes_of(transpose: Call, ndim: int) -> tuple[int, ...]:
    """The permutation of a transpose, with axes counted from the front."""
    axes = transpose.attrs.axes  # type: ignore[attr-defined]
    return tuple(reversed(range(ndim))) if axes is None else tuple(a % ndim for a in axes)


@rule(op.transpose(op.transpose(any_("x")).named("inner")), group="simplify")
def transpose_of_transpose(x: Expr, inner: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 3, 4), float32]) { transpose(transpose(%x, axes=(1, 2, 0)), axes=(2, 1, 0)) }
    =>
    fn (%x: Tensor[(2, 3, 4), float32]) { transpose(%x, axes=(0, 2, 1)) }
    """
    if not is_known_tensor(call):
        return UNTYPED
    ndim = len(shape_of(call))
    first = axes_of(inner, ndim)
    axes = tuple(first[a] for a in axes_of(call, ndim))
    return x if axes == tuple(range(ndim)) else op.transpose(x, axes=axes)


@rule(op.transpose(any_("x")), group="simplify")
def transpose_of_unit_axes_is_a_reshape(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 1, 4), float32]) { transpose(%x, axes=(0, 2, 1)) }
    =>
    fn (%x: Tensor[(2, 1, 4), float32]) { reshape(%x, newshape=(2, 4, 1)) }
    """
    if not is_known_tensor(x):
        return UNTYPED
    shape = shape_of(x)
    moved = [a for a in axes_of(call, len(shape)) if shape[a] != 1]
    if moved != sorted(moved):
        return NoMatch("axes of size greater than 1 are permuted")
    return reshaped_like(x, call)


RULES = RuleSet(transpose_of_transpose, transpose_of_unit_axes_is_a_reshape)
