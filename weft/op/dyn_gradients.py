"""Gradients of operators with a shape, axes or a count as an operand.

The sizes of their results are unknown; the data has known ones. Operands that decide sizes have no
gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, GradientRule, Tuple, const, dim_product, infer_expr, int64
from weft.op.gradients import (
    fixed_sizes,
    known_shape,
    numbered,
    scalar,
    tensor_type,
    to_order,
    typed_zeros,
)


def _typed(x: Expr) -> Expr:
    return infer_expr(x, trust=True)


def pad_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The operator applied to the numbers of the elements tells where each result comes from.

    The value that pads has number -1, which ``scatter_elements`` drops.
    """
    x, widths, _ = call.args
    shape = known_shape(x, call)
    numbers = call.op(numbered(shape), widths, const(-1, int64), **dict(call.attrs.items()))
    origin = _typed(op.reshape(numbers, newshape=(-1,)))
    flat = _typed(op.reshape(dy, newshape=(-1,)))
    clear = op.zeros(shape=(dim_product(shape),), dtype=tensor_type(x).dtype)
    added = op.scatter_elements(clear, origin, flat, reduction="add")
    is_padding = op.less(origin, const(0, int64))
    d_value = op.sum(op.where(is_padding, flat, scalar(0.0, flat)))
    return [op.reshape(added, newshape=shape, allowzero=True), typed_zeros(widths), d_value]


def one_hot_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value receives the gradients of the elements where it stands."""
    indices, on_value, off_value, depth = call.args
    one, zero = scalar(1, on_value), scalar(0, off_value)
    hit = call.op(indices, one, zero, depth, **dict(call.attrs.items()))
    return [typed_zeros(indices), op.sum(op.multiply(dy, hit)),
            op.sum(op.multiply(dy, op.subtract(one, hit))), typed_zeros(depth)]


def sparse_to_dense_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value gets the gradient where it was written, the default that of all other elements."""
    indices, values, default, shape = call.args
    (count,) = known_shape(values, call)
    # Numbers from 1, because 0 stands for the default value.
    owner = call.op(indices, numbered((count,), start=1), Constant(np.asarray(0)), shape)
    shares = op.scatter_elements(op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype),
                                 op.reshape(owner, newshape=(-1,)),
                                 op.reshape(dy, newshape=(-1,)), reduction="add")
    rest = op.squeeze(op.strided_slice(shares, begin=(0,), end=(1,)), axis=0)
    return [typed_zeros(indices), op.strided_slice(shares, begin=(1,), end=(count + 1,)),
            op.cast(rest, dtype=tensor_type(default).dtype), typed_zeros(shape)]


def arange_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Element i is ``start + i * step``; ``stop`` decides the number of elements alone."""
    start, stop, step = call.args
    numbers = op.subtract(op.cumsum(op.ones_like(dy), axis=0), scalar(1, dy))
    return [op.cast(op.sum(dy), dtype=tensor_type(start).dtype), typed_zeros(stop),
            op.cast(op.sum(op.multiply(dy, numbers)), dtype=tensor_type(step).dtype)]


def resize2d_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    """The adjoint of the weights of both axes (see ``resampling_gradient``)."""
    size = call.args[1]

    def operands(axis: int) -> tuple[Expr, ...]:
        one = Constant(np.ones(1, tensor_type(size).dtype.numpy))
        wanted = op.strided_slice(size, begin=(axis,), end=(axis + 1,))
        return (op.concatenate(Tuple((wanted, one) if axis == 0 else (one, wanted)), axis=0),)

    return resampling_gradient(operands, extrapolation_value=0.0, out_dtype=None)(call, y, dy)


def upsampling_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    """The adjoint of the weights of all axes (see ``resampling_gradient``)."""
    scales = call.args[1:]

    def operands(axis: int) -> tuple[Expr, ...]:
        return tuple(s if i == axis else scalar(1, s) for i, s in enumerate(scales))

    return resampling_gradient(operands)(call, y, dy)


def resampling_gradient(
    operands: Callable[[int], tuple[Expr, ...]], **changed: Any
) -> GradientRule:
    """The gradient of an operator that multiplies each spatial axis by a matrix of weights.

    The operator finds the matrix itself when it resamples an identity matrix along one axis, with
    ``operands(axis)``, which leave the other axes as they are. ``changed`` replaces attributes.
    """

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        data, attrs = call.args[0], dict(call.attrs.items())
        layout = attrs["layout"]
        first = "NCDHW" if "D" in layout else "NCHW"
        sizes = known_shape(to_order(data, layout, first), call)
        dtype = tensor_type(data).dtype
        rest = _typed(op.cast(to_order(_typed(dy), layout, first), dtype=dtype))
        shape_of_dy = op.shape_of(rest, dtype="int64")
        done = sizes[0] * sizes[1]
        for axis, size in enumerate(fixed_sizes(sizes[2:], call)):
            spatial = [1] * len(sizes[2:])
            spatial[axis] = size
            unit = const(np.eye(size).reshape(1, size, *spatial), dtype)
            weights = call.op(unit, *operands(axis), **(attrs | {"layout": first} | changed))
            matrix = _typed(op.dyn.reshape(weights, const(np.array([1, size, -1]), int64)))
            length = op.strided_slice(shape_of_dy, begin=(2 + axis,), end=(3 + axis,))
            split = op.concatenate(Tuple((const(np.array([done]), int64), length,
                                          const(np.array([-1]), int64))), axis=0)
            stack = _typed(op.dyn.reshape(rest, split))
            rest = _typed(op.nn.batch_matmul(matrix, stack, transpose_b=False))
            done *= size
        dx = to_order(_typed(op.reshape(rest, newshape=sizes)), first, layout)
        return [dx, *map(typed_zeros, call.args[1:])]

    return rule
