"""Helpers for the gradient rules of operators.

A gradient rule takes the typed call, its result ``y`` and the gradient ``dy`` of that result, and
returns one gradient for each argument, as an expression of that argument's type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from weft import op
from weft.ir import Attrs, Call, Constant, DType, Expr, GradientRule, Op, Tuple, TupleGetItem, const
from weft.ir.shape import AnyDim, Dim, KnownDim, at_least, dim_product
from weft.ir.types import TensorType, TupleType, Type, has_any, is_static
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import Routine, run_routine
from weft.support.errors import InternalError, PassError, TypeInferenceError

A = TypeVar("A", bound=Attrs)


def tensor_type(expr: Expr) -> TensorType:
    """The type of a typed tensor; raises ``TypeInferenceError`` for anything else."""
    if not isinstance(expr.checked_type, TensorType):
        raise TypeInferenceError("a gradient needs typed tensors", where=expr.span,
                                 got=expr.checked_type, help="run infer_type first")
    return expr.checked_type


def attrs_of(call: Call, kind: type[A]) -> A:
    """The attributes of a call, as the record type that its operator declares."""
    if not isinstance(call.attrs, kind):
        raise InternalError("a call has attributes of another operator",
                            expected=kind.__name__, got=type(call.attrs).__name__)
    return call.attrs


def scalar(value: float, like: Expr) -> Constant:
    """``value`` in the dtype of ``like``."""
    return const(value, tensor_type(like).dtype)


def sum_to(gradient: Expr, source: TensorType, target: TensorType) -> Expr:
    """Sum ``gradient``, of the shape of ``source``, over the axes along which ``target`` was
    broadcast.
    """
    if source.shape == target.shape:
        return gradient
    lead = source.ndim - target.ndim
    repeated = tuple(
        axis for axis, size in enumerate(source.shape)
        if axis < lead or (target.shape[axis - lead] == 1 and size != 1)
    )
    summed = op.sum(gradient, axis=repeated, keepdims=True) if repeated else gradient
    return op.squeeze(summed, axis=tuple(range(lead))) if lead else summed


def broadcast_gradients(call: Call, left: Expr, right: Expr) -> list[Expr]:
    """The gradients of the operands of a broadcasting call, given those before broadcasting."""
    source = tensor_type(call)
    return [sum_to(g, source, tensor_type(a)) for g, a in zip((left, right), call.args,
                                                              strict=True)]


def typed_zeros(expr: Expr) -> Expr:
    """Zeros of the type of a typed expression: a tensor, or a tuple of such."""
    return run_routine(_filled(expr, expr.checked_type, {}, one=False))


def typed_ones(expr: Expr) -> Expr:
    """Ones of the type of a typed expression: a tensor, or a tuple of such."""
    return run_routine(_filled(expr, expr.checked_type, {}, one=True))


def _filled(
    expr: Expr, type_: Type | None, made: dict[object, Expr], *, one: bool
) -> Routine[Expr]:
    """``made`` memoizes results by type (by expression for dynamic shapes): types may share."""
    key: object = type_ if type_ is not None and is_static(type_) else expr
    known = made.get(key)
    if known is not None:
        return known
    if isinstance(type_, TupleType):
        fields = []
        for index, field in enumerate(type_.fields):
            fields.append((yield _filled(field_of(expr, index), field, made, one=one)))
        known = Tuple(tuple(fields), span=expr.span, checked_type=type_)
    else:
        known = _filled_tensor(expr, type_, one=one)
    made[key] = known
    return known


def _filled_tensor(expr: Expr, type_: Type | None, *, one: bool) -> Expr:
    if not isinstance(type_, TensorType):
        raise PassError("only tensors and tuples of them have gradients", where=expr.span,
                        got=type_, help="exclude other values from differentiation")
    if not has_any(type_.shape):
        create = op.ones if one else op.zeros
        made: Expr = create(shape=type_.shape, dtype=type_.dtype, span=expr.span)
    else:
        never = op.less(expr, expr, span=expr.span)  # all false, also for NaN, in the right shape
        made = op.cast(op.logical_not(never) if one else never, dtype=type_.dtype)
    return made.with_type(type_)


def field_of(expr: Expr, index: int) -> Expr:
    """One field of an expression of tuple type."""
    if isinstance(expr, Tuple):
        return expr.fields[index]
    type_ = expr.checked_type
    known = type_.fields[index] if isinstance(type_, TupleType) else None
    return TupleGetItem(expr, index, span=expr.span, checked_type=known)


def applied_to_first_tangent(
    call: Call, _y: Expr, tangents: Sequence[Expr | None]
) -> Expr | None:
    """The ``jvp`` rule of operators that are linear in their first argument alone.

    The others count only by their type, or decide which elements of the first are used.
    """
    first = tangents[0]
    return None if first is None else dataclasses.replace(call, args=(first, *call.args[1:]))


def known_shape(expr: Expr, call: Call) -> tuple[KnownDim, ...]:
    """The shape of ``expr``, which may be symbolic; raises ``PassError`` for unknown sizes."""
    return tuple(known_dim(d, call) for d in tensor_type(expr).shape)


def known_dim(dim: Dim, call: Expr) -> KnownDim:
    """A size that may be symbolic; raises ``PassError`` for one that only run time knows."""
    if isinstance(dim, AnyDim):
        raise PassError("the gradient needs sizes that the inputs determine", where=call.span,
                        got=call.checked_type, help="compile for known sizes")
    return dim


def size_value(size: KnownDim, dtype: DType) -> Expr:
    """A size as a scalar of ``dtype``: a constant, or computed from symbols."""
    if isinstance(size, int):
        return const(size, dtype)
    one = op.arange(start=size, stop=size + 1, dtype=dtype)
    return infer_expr(op.squeeze(one, axis=0), trust=True)


def divided_by_size(x: Expr, size: KnownDim, like: Expr) -> Expr:
    """``x / size``, in the dtype of ``like``; ``x`` itself for a size of 0."""
    if isinstance(size, int):
        return op.multiply(x, scalar(1.0 / (size or 1), like))
    return op.divide(x, size_value(size, tensor_type(like).dtype))


def clamped(positions: Expr, size: KnownDim, dtype: DType) -> Expr:
    """``positions`` of ``dtype``, limited to an axis of ``size``."""
    if isinstance(size, int):
        return op.clip(positions, a_min=0, a_max=max(size - 1, 0))
    last = op.subtract(size_value(size, dtype), const(1, dtype))
    return op.maximum(op.minimum(positions, last), const(0, dtype))


def numbered(shape: Sequence[KnownDim], start: int = 0) -> Expr:
    """The int64 numbers from ``start`` on, in row-major order of ``shape``."""
    total = dim_product(tuple(shape))
    if isinstance(total, int):
        sizes = [d for d in shape if isinstance(d, int)]
        if len(sizes) == len(shape):
            return Constant(np.arange(start, start + total).reshape(sizes))
    line = op.arange(start=start, stop=total + start, dtype="int64")
    return infer_expr(op.reshape(line, newshape=tuple(shape), allowzero=True), trust=True)


def fixed_sizes(dims: Sequence[Dim], call: Expr) -> tuple[int, ...]:
    """Sizes that shape the gradient program; raises ``PassError`` for symbolic ones."""
    fixed = tuple(d for d in dims if isinstance(d, int))
    if len(fixed) < len(dims):
        raise PassError("the gradient needs fixed sizes of these axes", where=call.span,
                        got=f"({', '.join(map(str, dims))})", help="give them numbers")
    return fixed


def static_shape(expr: Expr, call: Call) -> tuple[int, ...]:
    """The shape of ``expr``; raises ``PassError`` if it is dynamic."""
    type_ = tensor_type(expr)
    if not is_static(type_):
        raise PassError("the gradient needs static shapes", where=call.span, got=type_,
                        help="compile for known sizes")
    return type_.concrete_shape


def spread_along(
    x: Expr, axis: int, first: Dim, stride: int, size: Dim, count: Dim
) -> Expr:
    """``x`` along ``axis``, written into zeros of ``size`` at ``first``, ``first + stride``, ...

    ``count`` is the size of ``x`` along the axis. A new axis of size 1 after it is padded to
    ``stride`` and merged with it.
    """
    shape: list[Dim] = list(_shape_of(x))
    shape[axis] = count
    zero = scalar(0.0, _typed(x))
    if stride > 1 and count:
        ndim = len(shape)
        wide = op.expand_dims(x, axis=axis + 1)
        pads = tuple((0, stride - 1 if i == axis + 1 else 0) for i in range(ndim + 1))
        shape[axis] = count * stride
        x = op.reshape(op.nn.pad(wide, zero, pad_width=pads), newshape=tuple(shape), allowzero=True)
        if not isinstance(count, int):
            return _padded_then_cut(x, axis, first, size, shape[axis], stride)
        x = cut_to(x, axis, (count - 1) * stride + 1)
        shape[axis] = (count - 1) * stride + 1
    after = size - first - shape[axis]
    if not at_least(after, 0):
        x = cut_to(x, axis, shape[axis] + after)
        after = 0
    pads = tuple((first, after) if i == axis else (0, 0) for i in range(len(shape)))
    return _typed(op.nn.pad(x, zero, pad_width=pads)) if any(map(any, pads)) else _typed(x)


def _padded_then_cut(
    x: Expr, axis: int, first: Dim, size: Dim, length: Dim, stride: int
) -> Expr:
    """``x``, which ends with up to ``stride - 1`` surplus zeros, at ``first`` in zeros of ``size``.

    The order avoids a slice whose bound is negative where ``x`` is empty.
    """
    zero = scalar(0.0, _typed(x))
    after = size + (stride - 1) - first - length
    ndim = len(_shape_of(x))
    pads = tuple((first, after) if i == axis else (0, 0) for i in range(ndim))
    return _typed(cut_to(op.nn.pad(x, zero, pad_width=pads), axis, size))


def in_result_dtype(rule: GradientRule) -> GradientRule:
    """``rule`` of a contraction, for operands that are narrower than the result (``out_dtype``).

    They are upcast first, so that gradients do not underflow before they are summed, and the
    gradients are rounded once, to the dtypes of the operands.
    """

    def wide_rule(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
        dtype, types = tensor_type(call).dtype, [tensor_type(a) for a in call.args]
        if all(t.dtype == dtype or not t.dtype.is_float for t in types):
            return rule(call, y, dy)
        args = [op.cast(a, dtype=dtype) if t.dtype.is_float else a
                for a, t in zip(call.args, types, strict=True)]
        attrs = {name: value for name, value in call.attrs.items() if value is not None}
        assert isinstance(call.op, Op)
        wide = infer_expr(call.op(*args, span=call.span, **attrs), trust=True)
        assert isinstance(wide, Call)
        return [op.cast(g, dtype=t.dtype) for g, t in zip(rule(wide, y, dy), types, strict=True)]

    return wide_rule


def align_to_axis(vector: Expr, axis: int, ndim: int) -> Expr:
    """``vector`` (one axis), shaped to broadcast along ``axis`` of a tensor of ``ndim`` axes."""
    trailing = ndim - 1 - axis
    if trailing == 0:
        return vector
    return op.expand_dims(vector, axis=1, num_newaxis=trailing, span=vector.span)


def cut_to(x: Expr, axis: int, size: Dim) -> Expr:
    """The first ``size`` elements along ``axis``."""
    return op.strided_slice(x, begin=(0,), end=(size,), axes=(axis,))


def to_order(x: Expr, source: str, wanted: str) -> Expr:
    """``x`` in layout ``source`` brought to the layout ``wanted``, typed.

    Either may have blocks, such as ``NCHW8c``; orders of the same axes take a transpose.
    """
    if source == wanted:
        return x
    if not source.isalpha() or not wanted.isalpha():
        moved = op.layout_transform(x, src_layout=source, dst_layout=wanted)
        return infer_expr(moved, trust=True)
    return infer_expr(op.transpose(x, axes=tuple(source.index(a) for a in wanted)), trust=True)


def _typed(x: Expr) -> Expr:
    return x if x.checked_type is not None else infer_expr(x, trust=True)


def _shape_of(x: Expr) -> tuple[KnownDim, ...]:
    typed = _typed(x)
    return tuple(known_dim(d, typed) for d in tensor_type(typed).shape)
