"""Operators with data-dependent result sizes: argwhere, unique."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import ANY, ZERO_GRADIENT, Attrs, Bounds, RelationContext, attr, dim_product, int64
from weft.ir.expr import Call, Expr, TupleGetItem
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.types import TensorType, TupleType, Type
from weft.op.gradients import typed_zeros
from weft.op.relations import tensor_of
from weft.support.dataclass import dataclass
from weft.topi import search as topi


def _argwhere_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.output(TensorType((ANY, source.ndim), int64))
    return True


@define_op("argwhere", relation=_argwhere_relation, pattern=OpPattern.OPAQUE, level=10,
           inputs=("x",), traits=ZERO_GRADIENT)
def argwhere(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """The indices of all nonzero (or true) elements, one per row, in row-major order."""
    return topi.argwhere(x)


@argwhere.bounds
def _argwhere_bounds(_attrs: Attrs, types: Sequence[Type]) -> Bounds:
    source = tensor_of(types[0])
    return Bounds((TensorType((dim_product(source.shape), source.ndim), int64),), ((0, 0, 0),))


argwhere.no_gradient("positions are integers")
argwhere.spec(
    lambda x: np.ascontiguousarray(np.argwhere(x)).astype(np.int64),
    op_case((3, 4), dtypes="bool"), op_case((2, 3, 2), dtypes="int32", low=0, high=1),
    op_case((5,)),
    op_case((), dtypes="bool"), op_case((0, 3)), op_case((4, 2), dtypes="bool"),
)


@dataclass(frozen=True, kw_only=True)
class UniqueAttrs(Attrs):
    is_sorted: bool = attr(True, "values in ascending order, not in order of first occurrence")


def _unique_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_rank(0, source, 1)
    ctx.expect_number(0, source)
    found = TensorType((ANY,), int64)
    inverse = TensorType(source.shape, int64)
    ctx.output(TupleType((TensorType((ANY,), source.dtype), found, inverse, found)))
    return True


@define_op("unique", attrs=UniqueAttrs, relation=_unique_relation, pattern=OpPattern.OPAQUE,
           level=3, results=4)
def unique(x: te.Tensor, attrs: UniqueAttrs) -> tuple[te.Tensor, ...]:
    """The distinct values of x, their first indices, the inverse indices, and their counts.

    All NaNs are one value, which sorts last.
    """
    return topi.unique(x, is_sorted=attrs.is_sorted)


@unique.bounds
def _unique_bounds(_attrs: Attrs, types: Sequence[Type]) -> Bounds:
    source = tensor_of(types[0])
    positions = TensorType(source.shape, int64)
    return Bounds((source, positions, positions, positions), ((0, 0, 0), (1, 0, 0), (3, 0, 0)))


@unique.gradient
def _unique_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """A value has the gradient of its first occurrence."""
    x = call.args[0]
    return [op.scatter_elements(typed_zeros(x), TupleGetItem(y, 1), TupleGetItem(dy, 0),
                                reduction="add")]


def _unique_reference(x: np.ndarray, is_sorted: bool = True) -> tuple[np.ndarray, ...]:
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first)
        values, first, counts = values[order], first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))


_REPEATED = np.array([2, 1, 2, 2, -1, 1, 7], np.int32)
unique.spec(_unique_reference, op_case(_REPEATED), op_case(_REPEATED, is_sorted=False),
            op_case(np.array([1.5, np.nan, -np.inf, np.nan, 1.5], np.float32)), op_case((0,)),
            op_case((1,)),
            op_case((40,), dtypes="int64", low=0, high=9, is_sorted=False))
