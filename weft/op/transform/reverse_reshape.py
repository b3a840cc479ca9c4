"""Reshaping with sizes that are read from the right: reverse_reshape."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, linear
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, Shape, dim_floordiv, dim_product, may_be_equal, may_be_multiple
from weft.op.batching import to_example_shape
from weft.support.dataclass import dataclass
from weft.topi import transform


@dataclass(frozen=True, kw_only=True)
class ReverseReshapeAttrs(Attrs):
    newshape: tuple[int, ...] = attr(
        doc="sizes of the result; 0 copies that size of the argument, counted from the last, "
            "-1 stands for the rest",
        check=lambda s: all(d >= -1 for d in s) and s.count(-1) <= 1,
        expected="sizes >= 0, 0 to copy, and at most one -1",
    )


def _copied(newshape: tuple[int, ...], source: Shape) -> list[Dim]:
    """``newshape`` with its zeros replaced, from the right."""
    lead = len(newshape) - len(source)
    return [source[axis - lead] if size == 0 else size for axis, size in enumerate(newshape)]


def _relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    newshape = ctx.attrs_as(ReverseReshapeAttrs).newshape
    lead = len(newshape) - source.ndim
    if any(size == 0 and axis < lead for axis, size in enumerate(newshape)):
        ctx.fail("newshape copies an axis that the argument lacks", arg=0,
                 expected=f"0 only among the last {source.ndim} sizes", got=newshape)
    shape = _copied(newshape, source.shape)
    total = dim_product(source.shape)
    if -1 in newshape:
        hole = newshape.index(-1)
        shape[hole] = 1
        known = dim_product(tuple(shape))
        if known == 0 or (isinstance(known, int) and not may_be_multiple(total, known)):
            ctx.fail("the elements do not fit newshape", arg=0,
                     expected=f"a number of elements divisible by {known}", got=total)
        shape[hole] = dim_floordiv(total, known)
    elif not may_be_equal(total, dim_product(tuple(shape))):
        ctx.fail("the number of elements changes", arg=0, expected=f"{total} elements",
                 got=f"newshape {newshape}")
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


@define_op("reverse_reshape", attrs=ReverseReshapeAttrs, relation=_relation,
           pattern=OpPattern.INJECTIVE, level=10, traits=linear())
def reverse_reshape(x: te.Tensor, attrs: ReverseReshapeAttrs) -> te.Tensor:
    """The elements of x in row-major order in another shape, whose sizes align at the last axis."""
    shape = tuple(reversed(transform.resolve_shape(tuple(reversed(x.shape)),
                                                   tuple(reversed(attrs.newshape)))))
    return transform.reshape(x, shape)


def _reference(x: np.ndarray, newshape: tuple[int, ...]) -> np.ndarray:
    lead = len(newshape) - x.ndim
    return x.reshape([x.shape[a - lead] if d == 0 else d for a, d in enumerate(newshape)])


reverse_reshape.spec(_reference, op_case((10, 5, 4), newshape=(-1, 0)),
                     op_case((2, 3, 4), newshape=(6, 4)),
                     op_case((2, 3, 4), newshape=(1, -1, 0, 0)),
                     op_case((), newshape=(1,)), op_case((0, 3), newshape=(-1, 3)))


@reverse_reshape.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [get_op("reshape_like")(dy, call.args[0])]
reverse_reshape.batching(to_example_shape)
