"""Helpers for the type relations of operators.

The combinators for whole families are in ``weft.ir.typing.relations``; the context of a relation
has the checks of single facts (``ctx.expect_rank``). Here are those that know layouts.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import Attrs, DType, Relation, RelationContext, TensorType, Type
from weft.ir.shape import (
    ANY,
    Dim,
    Shape,
    SymDim,
    dim_floordiv,
    dim_mul,
    may_be_multiple,
)
from weft.support.errors import AttrsError, InternalError
from weft.topi.layout import Layout, convert_shape

Check = Callable[[RelationContext, int, TensorType], None]
# The checks that ``checked`` takes.
expect_bool: Check = RelationContext.expect_bool
expect_float: Check = RelationContext.expect_float
expect_int: Check = RelationContext.expect_int
expect_number: Check = RelationContext.expect_number


def tensor_of(type_: Type) -> TensorType:
    """The type of a tensor argument outside a relation (in a ``bounds`` hook)."""
    if not isinstance(type_, TensorType):
        raise InternalError("expected a tensor argument", got=str(type_))
    return type_


def checked(check: Check, relation: Relation, *, args: int = 1) -> Relation:
    """``relation`` after ``check`` of each known argument among the first ``args``."""

    def relate(ctx: RelationContext) -> bool:
        for i in range(args):
            type_ = ctx.tensor(i)
            if type_ is not None:
                check(ctx, i, type_)
        return relation(ctx)

    return relate


def multiples_help(size: Dim, factor: int) -> str | None:
    """How to declare that a symbolic size is a multiple."""
    if not isinstance(size, SymDim):
        return None
    return f"give its symbol a range of multiples, such as n{{{factor}..%{factor}}}"


def range_help(size: Dim, least: Dim) -> str | None:
    """How to declare the least value of a symbolic size."""
    if not isinstance(size, SymDim):
        return None
    return f"give its symbol a range, such as n{{{least}..}}" if isinstance(least, int) else \
        f"use sizes that show that {size} is never less than {least}"


def layout_attr(ctx: RelationContext, name: str) -> Layout:
    """The layout in attribute ``name``; fails with the name of the attribute."""
    try:
        return Layout.parse(getattr(ctx.attrs, name))
    except AttrsError as error:
        ctx.fail(f"{name}: {error.what}", expected=error.expected, help=error.help)
        raise


def to_layout(ctx: RelationContext, src: Layout, dst: Layout, shape: Shape, *, arg: int) -> Shape:
    """``shape`` in another layout; fails if a block does not divide its axis."""
    if src.primal_axes != dst.primal_axes and sorted(src.primal_axes) != sorted(dst.primal_axes):
        ctx.fail(f"cannot convert layout {src} to {dst}", arg=arg,
                 expected="two layouts of the same axes", got=f"{src} and {dst}")
    if len(shape) != src.ndim:
        ctx.fail(f"the argument is not of layout {src}", arg=arg,
                 expected=f"rank {src.ndim}", got=f"rank {len(shape)}")
    _check_blocks(ctx, src, shape, arg)
    converted = convert_shape(src, dst, shape, mul=dim_mul, div=dim_floordiv)
    if dst.is_primal:
        return converted
    whole = convert_shape(src, dst.primal, shape, mul=dim_mul, div=dim_floordiv)
    for position, axis in enumerate(dst.primal.axes):
        factor = dst.factor_of(axis.letter)
        size = whole[position]
        if factor > 1 and (size is ANY or not may_be_multiple(size, factor)):
            ctx.fail(f"layout {dst} does not fit", arg=arg,
                     expected=f"axis {axis.letter} divisible by {factor}", got=size,
                     help=multiples_help(size, factor))
    return converted


def _check_blocks(ctx: RelationContext, layout: Layout, shape: Shape, arg: int) -> None:
    for position, axis in enumerate(layout.axes):
        if axis.factor is not None:
            ctx.expect_dim(arg, position, shape[position], axis.factor,
                           f"the argument is not of layout {layout}")


def output_dtype(attrs: Attrs, default: DType) -> DType:
    """The ``out_dtype`` attribute; if unset, the dtype of the data."""
    return getattr(attrs, "out_dtype", None) or default
