"""Gradients of operators that do not carry one in their record.

A rule is ``(call, y, dy) -> one gradient per argument``, as ``Op.gradient`` takes it; the record
of the operator comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.expr import Call, Expr
from weft.ir.op import Op
from weft.transform.autodiff.gradient_rules import (
    arithmetic,
    convolution,
    linear,
    moving,
    pooling,
    reduce,
    shape,
    writing,
)

GradientRule = Callable[[Call, Expr, Expr], Sequence[Expr]]

RULES: dict[str, GradientRule] = {
    **arithmetic.RULES,
    **convolution.RULES,
    **linear.RULES,
    **moving.RULES,
    **pooling.RULES,
    **reduce.RULES,
    **shape.RULES,
    **writing.RULES,
}

# Steps, whose slope is zero wherever there is one, and what is to be taken for a constant.
ZERO_GRADIENT = frozenset({
    "annotation.stop_gradient", "arange", "argmax", "argmin", "argsort", "argwhere", "ceil",
    "dyn.arange", "dyn.ones", "dyn.zeros", "floor", "floor_divide", "ndarray_size", "ones",
    "round", "searchsorted", "shape_of", "sign", "trunc", "trunc_divide", "zeros",
})  # fmt: skip


def rule_of(operator: Op) -> GradientRule | None:
    """The gradient of ``operator``, ``None`` if there is none."""
    return operator.hook("gradient") or RULES.get(operator.name)
