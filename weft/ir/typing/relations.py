"""Combinators for type relations, with which most operators are declared.

Every relation here states only what follows from known types, in either direction. Its errors
name the operator, the argument, the axis, the expected and the actual type. Relations of single
operators stand beside their definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.attrs import Attrs
from weft.ir.dtype import DType, bool_
from weft.ir.shape import AnyDim, Dim, Shape
from weft.ir.types import TensorType
from weft.ir.typing.relation import AxesOf, Relation, RelationContext

TypeOf = Callable[[TensorType, Attrs], TensorType]


def same_type_as(index: int) -> Relation:
    """The result and argument ``index`` have the same type; either may determine the other."""

    def relation(ctx: RelationContext) -> bool:
        """The result has the type of one argument."""
        source = ctx.tensor(index)
        if source is not None:
            ctx.output(source)
            return True
        if isinstance(ctx.out, TensorType):
            ctx.unify_arg(index, ctx.out)
            return True
        return False

    return relation


identity_relation: Relation = same_type_as(0)


def float_unary(ctx: RelationContext) -> bool:
    """Like ``identity_relation``, for functions of floating-point tensors."""
    source = ctx.tensor(0)
    if source is not None and not source.dtype.is_float:
        ctx.fail("the operand must be a floating-point tensor", arg=0,
                 expected="float16, bfloat16, float32 or float64", got=source.dtype,
                 help="cast the operand first")
    return identity_relation(ctx)


def unary(result: TypeOf) -> Relation:
    """The result type is a function of the one argument's type and the attributes."""

    def relation(ctx: RelationContext) -> bool:
        source = ctx.tensor(0)
        if source is None:
            return False
        ctx.output(result(source, ctx.attrs))
        return True

    return relation


def broadcast_binary(out_dtype: DType | str | None = None) -> Relation:
    """NumPy's broadcasting of two tensors of one dtype.

    ``out_dtype`` is the dtype of the result if it differs from the operands'.
    """
    fixed = None if out_dtype is None else DType.of(out_dtype)

    def relation(ctx: RelationContext) -> bool:
        left, right = ctx.tensor(0), ctx.tensor(1)
        if left is None or right is None:
            return False
        if left.dtype != right.dtype:
            ctx.fail("the operands have different dtypes", arg=1, expected=left.dtype,
                     got=right.dtype, help="cast one of them; weft converts nothing silently")
        shape = broadcast_shapes(ctx, left.shape, right.shape)
        ctx.output(TensorType(shape, fixed or left.dtype))
        return True

    return relation


broadcast_compare: Relation = broadcast_binary(bool_)


def broadcast_logical(ctx: RelationContext) -> bool:
    """Broadcasting of two boolean tensors."""
    for index in (0, 1):
        operand = ctx.tensor(index)
        if operand is not None and not operand.dtype.is_bool:
            ctx.fail("the operand must be boolean", arg=index, expected="bool", got=operand.dtype)
    return broadcast_compare(ctx)


def broadcast_shapes(ctx: RelationContext, left: Shape, right: Shape) -> Shape:
    """The shape that both broadcast to; fails naming the axis of the second argument."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in (left, right)]
    dims = []
    for axis, (a, b) in enumerate(zip(*padded, strict=True)):
        dim = broadcast_dims(a, b)
        if dim is None:
            ctx.fail("the shapes do not broadcast", arg=1, axis=axis - (rank - len(right)),
                     expected=f"{a} or 1" if a != 1 else "1", got=b, help=_broadcast_help(a, b))
        else:
            dims.append(dim)
    return tuple(dims)


def _broadcast_help(a: Dim, b: Dim) -> str:
    if isinstance(a, int) and isinstance(b, int):
        return "axes are aligned from the last; sizes must be equal, or one of them 1"
    return "give both dimensions the same symbol if they are always equal"


def broadcast_dims(a: Dim, b: Dim) -> Dim | None:
    """The dimension that ``a`` and ``b`` broadcast to, ``None`` if they do not.

    ``?`` against a size above 1 must be that size or 1; against anything else it stays unknown.
    """
    if b in (a, 1):
        return a
    if a == 1:
        return b
    if isinstance(a, AnyDim):
        return b if isinstance(b, int) else a
    if isinstance(b, AnyDim):
        return a if isinstance(a, int) else b
    return None


def normalize_axis(
    ctx: RelationContext, axis: int, ndim: int, *, name: str = "axis", arg: int = 0
) -> int:
    """``axis`` counted from the front; fails if it is out of range."""
    if not -ndim <= axis < ndim:
        ctx.fail(
            f"{name} {axis} is out of range",
            arg=arg,
            expected=f"{-ndim} <= {name} < {ndim}" if ndim else "an argument of rank 1 or more",
            got=axis,
        )
    return axis % ndim


def normalize_axes(
    ctx: RelationContext, axes: Sequence[int], ndim: int, *, name: str = "axis", arg: int = 0
) -> tuple[int, ...]:
    """Several axes counted from the front, in the given order; fails for a repeated one."""
    result = tuple(normalize_axis(ctx, a, ndim, name=name, arg=arg) for a in axes)
    if len(set(result)) != len(result):
        ctx.fail(f"{name} names an axis twice", arg=arg, expected="distinct axes", got=tuple(axes))
    return result


def reduced_shape(shape: Shape, axes: Sequence[int], *, keepdims: bool) -> Shape:
    """``shape`` after reduction over ``axes`` (counted from the front)."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def reduce_along(axes_of: AxesOf | None = None, *, out_dtype: DType | str | None = None,
                 needs_element: bool = False) -> Relation:
    """Reduction over the axes that ``axes_of(attrs)`` returns (``None``: all).

    The default reads the attributes ``axis`` (an int, a tuple, or ``None``) and ``exclude``;
    ``keepdims`` is read if the operator declares it. ``needs_element`` rejects the reduction of an
    axis of size 0, which has no maximum.
    """
    fixed = None if out_dtype is None else DType.of(out_dtype)

    def relation(ctx: RelationContext) -> bool:
        source = ctx.tensor(0)
        if source is None:
            return False
        axes = _axes_reduced(ctx, axes_of, source.ndim)
        for axis in axes:
            if needs_element and source.shape[axis] == 0:
                ctx.fail("cannot reduce an empty axis", arg=0, axis=axis,
                         expected="a size of 1 or more", got=0)
        keepdims = bool(getattr(ctx.attrs, "keepdims", False))
        shape = reduced_shape(source.shape, axes, keepdims=keepdims)
        ctx.output(TensorType(shape, fixed or source.dtype))
        return True

    return relation


def _axes_reduced(ctx: RelationContext, axes_of: AxesOf | None, ndim: int) -> tuple[int, ...]:
    named = axes_of(ctx.attrs) if axes_of is not None else getattr(ctx.attrs, "axis", None)
    if named is None:
        return tuple(range(ndim))
    axes = normalize_axes(ctx, (named,) if isinstance(named, int) else tuple(named), ndim)
    if getattr(ctx.attrs, "exclude", False):
        return tuple(i for i in range(ndim) if i not in axes)
    return axes
