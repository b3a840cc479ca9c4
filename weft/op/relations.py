"""Helpers for the type relations of operators.

The combinators for whole families are in ``weft.ir.typing.relations``. These helpers check single
facts for operator-specific relations; each takes the relation context first, and fails (raises)
if the fact does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.shape import (
    ANY,
    Dim,
    Shape,
    SymDim,
    dim_floordiv,
    dim_mul,
    dims_equal,
    may_be_equal,
    may_be_multiple,
)
from weft.ir.types import TensorType, Type
from weft.ir.typing.relation import Relation, RelationContext
from weft.support.errors import AttrsError, InternalError
from weft.topi.layout import Layout, convert_shape

A = TypeVar("A", bound=Attrs)


def attrs_as(ctx: RelationContext, kind: type[A]) -> A:
    """The attributes, as the record type that the operator declares."""
    if not isinstance(ctx.attrs, kind):
        raise InternalError(f"{ctx.op_name} has attributes of another operator",
                            expected=kind.__name__, got=type(ctx.attrs).__name__)
    return ctx.attrs


def tensors_known(ctx: RelationContext, count: int) -> list[TensorType] | None:
    """The first ``count`` arguments as tensor types, ``None`` while one of them is unknown."""
    found = [ctx.tensor(i) for i in range(count)]
    known = [t for t in found if t is not None]
    return known if len(known) == count else None


def tensor_of(type_: Type) -> TensorType:
    """The type of a tensor argument outside a relation (in a ``bounds`` hook)."""
    if not isinstance(type_, TensorType):
        raise InternalError("expected a tensor argument", got=str(type_))
    return type_


def expect_rank(ctx: RelationContext, arg: int, type_: TensorType, *ranks: int) -> None:
    if type_.ndim not in ranks:
        ctx.fail(
            "wrong number of dimensions",
            arg=arg,
            expected=f"rank {' or '.join(map(str, ranks))}",
            got=f"{type_} (rank {type_.ndim})",
        )


def expect_min_rank(ctx: RelationContext, arg: int, type_: TensorType, rank: int) -> None:
    if type_.ndim < rank:
        ctx.fail("too few dimensions", arg=arg, expected=f"rank {rank} or more",
                 got=f"{type_} (rank {type_.ndim})")


def expect_same_dtype(ctx: RelationContext, arg: int, type_: TensorType, dtype: DType) -> None:
    if type_.dtype != dtype:
        ctx.fail("the arguments have different dtypes", arg=arg, expected=dtype, got=type_.dtype,
                 help="convert one of them with cast(x, dtype=...)")


def expect_factor(
    ctx: RelationContext, right: TensorType, left: TensorType, out_dtype: DType | None
) -> None:
    """Check the dtype of the right operand of a contraction: that of the left one; signed and
    unsigned bytes may be mixed if ``out_dtype`` is wider.
    """
    bytes_ = all(t.dtype.is_int and t.dtype.bits == 8 for t in (left, right))
    if not (bytes_ and out_dtype is not None and out_dtype.bits > 8):
        expect_same_dtype(ctx, 1, right, left.dtype)


def expect_float(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if not type_.dtype.is_float:
        ctx.fail("defined for floating point only", arg=arg, expected="a float dtype",
                 got=type_.dtype, help='convert the argument with cast(x, dtype="float32")')


def expect_int(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if not type_.dtype.is_int:
        ctx.fail("defined for integers only", arg=arg, expected="an integer dtype",
                 got=type_.dtype)


def expect_bool(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if not type_.dtype.is_bool:
        ctx.fail("defined for booleans only", arg=arg, expected="bool", got=type_.dtype,
                 help="compare with zero first, as in not_equal(x, 0)")


def expect_number(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if type_.dtype.is_bool:
        ctx.fail("not defined for booleans", arg=arg, expected="a float or integer dtype",
                 got=type_.dtype)


Check = Callable[[RelationContext, int, TensorType], None]


def checked(check: Check, relation: Relation, *, args: int = 1) -> Relation:
    """``relation`` after ``check`` of each known argument among the first ``args``."""

    def relate(ctx: RelationContext) -> bool:
        for i in range(args):
            type_ = ctx.tensor(i)
            if type_ is not None:
                check(ctx, i, type_)
        return relation(ctx)

    return relate


def symbols_help(a: Dim, b: Dim) -> str | None:
    """What to do about two dimensions that only some sizes make equal."""
    if dims_equal(a, b) is False:
        return None
    return f"if {a} and {b} are always equal, give both the same size or symbol"


def expect_dim(
    ctx: RelationContext, arg: int, axis: int, got: Dim, expected: Dim, message: str,
    *, why: str = "", help: str | None = None,
) -> Dim:
    """Fail unless the dimensions are equal, or one is unknown; return the better known."""
    if not may_be_equal(got, expected):
        ctx.fail(message, arg=arg, axis=axis, expected=f"{expected}{why}", got=got,
                 help=help or symbols_help(got, expected))
    return expected if got is ANY else got


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
    if sorted(src.primal_axes) != sorted(dst.primal_axes):
        ctx.fail(f"cannot convert layout {src} to {dst}", arg=arg,
                 expected="two layouts of the same axes", got=f"{src} and {dst}")
    if len(shape) != src.ndim:
        ctx.fail(f"the argument is not of layout {src}", arg=arg,
                 expected=f"rank {src.ndim}", got=f"rank {len(shape)}")
    _check_blocks(ctx, src, shape, arg)
    converted = convert_shape(src, dst, shape, mul=dim_mul, div=dim_floordiv)
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
            expect_dim(ctx, arg, position, shape[position], axis.factor,
                       f"the argument is not of layout {layout}")


def output_dtype(attrs: Attrs, default: DType) -> DType:
    """The ``out_dtype`` attribute; if unset, the dtype of the data."""
    return getattr(attrs, "out_dtype", None) or default
