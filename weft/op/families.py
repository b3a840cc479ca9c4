"""Families of operators: definitions that members of a family share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Case, GradientRule, Op, OpPattern, OpTraits, Relation, define_op, op_case
from weft.ir.traits import NO_TRAITS
from weft.ir.typing.relations import (
    broadcast_binary,
    broadcast_compare,
    broadcast_logical,
    float_unary,
    identity_relation,
)
from weft.op.layout_inference import join_layouts, keep_layout
from weft.op.relations import checked, expect_bool, expect_float, expect_number
from weft.topi import broadcast, elementwise

UNARY_CASES = (op_case((3, 5)), op_case(()), op_case((0, 4)), op_case((2, 3, 1, 7)))
BINARY_CASES = (
    op_case((3, 5), (3, 5)),
    op_case((3, 5), (5,)),
    op_case((2, 1, 4), (3, 1)),
    op_case((), (2, 3)),
    op_case((0, 4), (1, 4)),
)


def unary(
    name: str,
    reference: Callable[..., Any],
    *,
    doc: str,
    compute: Callable[[te.Tensor], te.Tensor] | None = None,
    relation: Relation = float_unary,
    grad: GradientRule | None = None,
    cases: Sequence[Case] = UNARY_CASES,
    traits: OpTraits = NO_TRAITS,
) -> Op:
    """An elementwise function of one tensor; ``compute`` defaults to the intrinsic ``name``."""
    intrinsic = name.rpartition(".")[2]

    def run(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
        return compute(x) if compute is not None else elementwise.intrinsic(x, intrinsic)

    run.__doc__ = doc
    op = define_op(name, relation=relation, pattern=OpPattern.ELEMWISE, level=1, inputs=("x",),
                   traits=traits)(run)
    op.spec(reference, *cases)
    op.layout(keep_layout)
    if grad is not None:
        op.gradient(grad)
    return op


def binary(
    name: str,
    reference: Callable[..., Any],
    compute: broadcast.Elementwise,
    *,
    doc: str,
    relation: Relation | None = None,
    grad: GradientRule | None = None,
    cases: Sequence[Case] = BINARY_CASES,
    traits: OpTraits = NO_TRAITS,
) -> Op:
    """An elementwise function of two tensors of one dtype under NumPy broadcasting."""
    short = name.rpartition(".")[2]

    def run(lhs: te.Tensor, rhs: te.Tensor, _attrs: Attrs) -> te.Tensor:
        return broadcast.apply((lhs, rhs), compute, short)

    run.__doc__ = doc
    op = define_op(name, relation=relation or arithmetic, pattern=OpPattern.BROADCAST, level=1,
                   inputs=("lhs", "rhs"), traits=traits)(run)
    op.spec(reference, *cases)
    op.layout(join_layouts)
    if grad is not None:
        op.gradient(grad)
    return op


arithmetic: Relation = checked(expect_number, broadcast_binary(), args=2)
float_arithmetic: Relation = checked(expect_float, broadcast_binary(), args=2)
comparison: Relation = broadcast_compare
logical: Relation = broadcast_logical
numeric: Relation = checked(expect_number, identity_relation)
boolean: Relation = checked(expect_bool, identity_relation)


def in_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a reference return the dtype of its first argument."""

    def run(x: np.ndarray, *rest: Any, **attrs: Any) -> np.ndarray:
        return np.asarray(function(x, *rest, **attrs)).astype(np.asarray(x).dtype, copy=False)

    return run
