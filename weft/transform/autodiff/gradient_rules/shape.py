"""Operators that move elements: the gradient moves them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from weft.ir.types import TensorType, TupleType, is_static
from weft.ir.typing.infer import infer_expr
from weft.op.gradients import scalar, sum_to, tensor_type
from weft.support.errors import PassError
from weft.transform.autodiff.adjoint import zeros_like


def static_shape(expr: Expr, call: Call) -> tuple[int, ...]:
    """The shape of ``expr``; raises ``PassError`` if the gradient of ``call`` cannot know it."""
    type_ = tensor_type(expr)
    if not is_static(type_):
        raise PassError("the gradient needs fixed sizes", where=call.span, got=type_,
                        help="compile for sizes that are known")
    return type_.concrete_shape


def _reshaped_back(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x = call.args[0]
    return [op.reshape(dy, newshape=static_shape(x, call), allowzero=True)]


def _expand_dims(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    first = attrs.axis % tensor_type(call).ndim if attrs.axis >= 0 else (
        attrs.axis + tensor_type(call.args[0]).ndim + 1
    )
    axes = tuple(range(first, first + attrs.num_newaxis))
    return [op.squeeze(dy, axis=axes) if axes else dy]


def _squeeze(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    shape = tensor_type(call.args[0]).shape
    axes = attrs.axis
    if axes is None:
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    wanted = {a % len(shape) for a in ((axes,) if isinstance(axes, int) else axes)}
    for axis in sorted(wanted):
        dy = op.expand_dims(dy, axis=axis)
    return [dy]


def _transpose(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    ndim = tensor_type(call).ndim
    axes = attrs.axes if attrs.axes is not None else tuple(reversed(range(ndim)))
    back = np.argsort([a % ndim for a in axes])
    return [op.transpose(dy, axes=tuple(int(a) for a in back))]


def _broadcast_to(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [sum_to(dy, tensor_type(call), tensor_type(call.args[0]))]


def _layout_transform(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    return [op.layout_transform(dy, src_layout=attrs.dst_layout, dst_layout=attrs.src_layout)]


def _fields(call: Call) -> tuple[TensorType, ...]:
    type_ = call.args[0].checked_type
    fields = type_.fields if isinstance(type_, TupleType) else ()
    return tuple(f for f in fields if isinstance(f, TensorType))


def _concatenate(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    fields = _fields(call)
    axis = attrs.axis % fields[0].ndim
    sizes = [f.concrete_shape[axis] for f in fields]
    if len(sizes) == 1:
        return [Tuple((dy,))]
    parts = op.split(dy, indices_or_sections=tuple(np.cumsum(sizes[:-1]).tolist()), axis=axis)
    return [Tuple(tuple(TupleGetItem(parts, i) for i in range(len(sizes))))]


def _split(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    type_ = call.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    parts = tuple(TupleGetItem(dy, i) for i in range(count))
    return [op.concatenate(Tuple(parts), axis=attrs.axis)]


def _strided_slice(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Elements go back between zeros, axis by axis; backward slices are turned round first."""
    attrs: Any = call.attrs
    shape, cut = static_shape(call.args[0], call), static_shape(call, call)
    axes = attrs.axes if attrs.axes is not None else tuple(range(len(attrs.begin)))
    strides = attrs.strides or (1,) * len(axes)
    for axis, begin, stride in zip(axes, attrs.begin, strides, strict=True):
        axis %= len(shape)  # noqa: PLW2901
        positions = _positions(shape[axis], begin, stride, cut[axis])
        if stride < 0 and positions:
            count = len(positions)
            dy = op.strided_slice(dy, begin=(count - 1,), end=(-count - 1,), strides=(-1,),
                                  axes=(axis,))
            positions = positions[::-1]
        first = positions[0] if positions else shape[axis]
        dy = place(dy, axis, first, abs(stride), shape[axis], len(positions))
    return [dy]


def _positions(size: int, begin: int, stride: int, count: int) -> list[int]:
    first = begin + size if begin < 0 else begin
    first = min(max(first, 0), size - 1 if stride < 0 else size)
    return [first + i * stride for i in range(count)]


def place(x: Expr, axis: int, first: int, stride: int, size: int, count: int) -> Expr:
    """``count`` elements along ``axis`` put at ``first``, ``first + stride``, .. of ``size``.

    The axis is followed by one of size 1 that is padded to ``stride``, and merged with it.
    """
    shape = list(_shape_of(x))
    shape[axis] = count
    zero = scalar(0.0, _typed(x))
    if stride > 1 and count:
        ndim = len(shape)
        wide = op.expand_dims(x, axis=axis + 1)
        pads = tuple((0, stride - 1 if i == axis + 1 else 0) for i in range(ndim + 1))
        shape[axis] = count * stride
        x = op.reshape(op.nn.pad(wide, zero, pad_width=pads), newshape=tuple(shape), allowzero=True)
        x = cut_to(x, axis, (count - 1) * stride + 1)
        shape[axis] = (count - 1) * stride + 1
    after = size - first - shape[axis]
    x = cut_to(x, axis, shape[axis] + after) if after < 0 else x
    pads = tuple((first, max(after, 0)) if i == axis else (0, 0) for i in range(len(shape)))
    return _typed(op.nn.pad(x, zero, pad_width=pads)) if any(map(any, pads)) else _typed(x)


def cut_to(x: Expr, axis: int, size: int) -> Expr:
    """The first ``size`` elements along ``axis``."""
    return op.strided_slice(x, begin=(0,), end=(size,), axes=(axis,))


def _typed(x: Expr) -> Expr:
    return x if x.checked_type is not None else infer_expr(x, trust=True)


def _shape_of(x: Expr) -> tuple[int, ...]:
    return tensor_type(_typed(x)).concrete_shape


def _pad(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    x, value = call.args
    if attrs.pad_mode != "constant":
        raise PassError(f"padding by {attrs.pad_mode!r} has no gradient", where=call.span,
                        expected="constant")
    shape = static_shape(x, call)
    begin = tuple(before for before, _ in attrs.pad_width)
    end = tuple(b + size for b, size in zip(begin, shape, strict=True))
    inner = op.strided_slice(dy, begin=begin, end=end)
    border = op.subtract(op.sum(dy), op.sum(inner))
    return [inner, border if tensor_type(value).ndim == 0 else zeros_like(value)]


def _take(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Rows go back by a product with the matrix that has a one for every row taken."""
    attrs: Any = call.attrs
    x, indices = call.args
    shape, taken = static_shape(x, call), static_shape(indices, call)
    axis = 0 if attrs.axis is None else attrs.axis % len(shape)
    flat = shape if attrs.axis is not None else (int(np.prod(shape)),)
    size, count = flat[axis], int(np.prod(taken))
    itype = tensor_type(indices).dtype
    last = Constant(np.asarray(size - 1, itype.numpy))
    zero = Constant(np.asarray(0, itype.numpy))
    rows = op.reshape(indices, newshape=(1, count), allowzero=True)
    if attrs.mode == "wrap":
        rows = op.floor_mod(rows, Constant(np.asarray(size, itype.numpy)))
    else:
        rows = op.minimum(op.maximum(rows, zero), last)
    numbers = Constant(np.arange(size, dtype=itype.numpy).reshape(size, 1))
    chosen = op.cast(op.equal(numbers, rows), dtype=tensor_type(x).dtype)
    before, after = int(np.prod(flat[:axis])), int(np.prod(flat[axis + 1 :]))
    stack = op.reshape(dy, newshape=(before, count, after), allowzero=True)
    moved = op.reshape(op.transpose(stack, axes=(1, 0, 2)), newshape=(count, before * after),
                       allowzero=True)
    back = op.reshape(op.nn.matmul(chosen, moved), newshape=(size, before, after), allowzero=True)
    dx = op.reshape(op.transpose(back, axes=(1, 0, 2)), newshape=shape, allowzero=True)
    return [dx, zeros_like(indices)]


def _full(_call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [op.sum(dy)]


RULES: dict[str, Callable[[Call, Expr, Expr], list[Expr]]] = {
    "broadcast_to": _broadcast_to,
    "concatenate": _concatenate,
    "expand_dims": _expand_dims,
    "full": _full,
    "layout_transform": _layout_transform,
    "nn.batch_flatten": _reshaped_back,
    "nn.pad": _pad,
    "reshape": _reshaped_back,
    "split": _split,
    "squeeze": _squeeze,
    "strided_slice": _strided_slice,
    "take": _take,
    "transpose": _transpose,
}
