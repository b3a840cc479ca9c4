"""Constants, shapes and the order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.common.typed import shape_in
from weft.frontend.onnx.shape_value import ShapeValue, object_array
from weft.frontend.stablehlo.node import Node, Value, is_symbolic, rank_of
from weft.frontend.stablehlo.registry import converts
from weft.frontend.stablehlo.syntax import Literal
from weft.frontend.stablehlo.types import array_of
from weft.ir.expr import Constant, Expr
from weft.ir.shape import AnyDim
from weft.support.errors import UnsupportedModelError


@converts("stablehlo.constant", "chlo.constant")
def constant(node: Node) -> Expr:
    value = node.attributes.get("value")
    if not isinstance(value, Literal):
        raise node.fail("the constant has no array", got=repr(value)[:60])
    return Constant(array_of(value), span=node.span)


@converts("chlo.constant_like")
def constant_like(node: Node, x: Expr) -> Expr:
    return node.broadcast(node.number(node.attributes["value"], x), shape_in(x))


@converts("stablehlo.broadcast_in_dim")
def broadcast_in_dim(node: Node, x: Expr) -> Expr:
    return spread(node, x, node.shape(), node.ints("broadcast_dimensions"))


def spread(node: Node, x: Expr, shape: Sequence[Any], axes: Sequence[int]) -> Expr:
    """``x`` broadcast to ``shape``, its axes at the positions ``axes``."""
    if not axes and not rank_of(x):
        return node.broadcast(x, shape)
    if len(axes) != rank_of(x) or any(not 0 <= a < len(shape) for a in axes):
        if rank_of(x) != len(axes) and rank_of(x) > len(shape):  # a region of scalars, lifted
            return x
        raise node.fail("the axes do not fit the operand", got=str(axes),
                        expected=f"{rank_of(x)} axes below {len(shape)}")
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    x = node.transpose(x, order)
    sizes = dict(zip((axes[i] for i in order), shape_in(x), strict=True))
    return node.broadcast(node.reshape(x, [sizes.get(a, 1) for a in range(len(shape))]), shape)


@converts("stablehlo.broadcast")
def broadcast(node: Node, x: Expr) -> Expr:
    """New axes in front."""
    return node.broadcast(x, (*node.ints("broadcast_sizes"), *shape_in(x)))


@converts("stablehlo.reshape")
def reshape(node: Node, x: Expr) -> Expr:
    return node.reshape(x, node.shape())


@converts("stablehlo.transpose")
def transpose(node: Node, x: Expr) -> Expr:
    return node.transpose(x, node.axes(node.ints("permutation"), rank_of(x)))


@converts("stablehlo.reverse")
def reverse(node: Node, x: Expr) -> Expr:
    for axis in node.ints("dimensions"):
        x = node.call(op.reverse, x, axis=axis)
    return x


@converts("stablehlo.iota")
def iota(node: Node) -> Expr:
    return counted(node, node.shape(), node.integer("iota_dimension"))


def counted(node: Node, shape: Sequence[Any], axis: int) -> Expr:
    """Positions along an axis."""
    axis = node.axis(axis, len(shape))
    dtype = node.dtype()
    exact = dtype if dtype.is_int and dtype.bits >= 32 else "int64"
    line = node.iota(shape[axis], exact)
    line = node.reshape(line, [n if a == axis else 1 for a, n in enumerate(shape)])
    return node.cast(node.broadcast(line, shape), dtype)


@converts("stablehlo.concatenate")
def concatenate(node: Node, *parts: Expr) -> Expr:
    if len(parts) == 1:
        return parts[0]
    return node.tuple_call(op.concatenate, parts, axis=node.integer("dimension"))


@converts("stablehlo.slice")
def slice_(node: Node, x: Expr) -> Expr:
    starts, ends = node.ints("start_indices"), node.ints("limit_indices")
    steps = node.ints("strides", (1,) * len(starts))
    if not len(starts) == len(ends) == len(steps) == rank_of(x):
        raise node.fail("the bounds do not fit the operand", got=f"{starts} to {ends}",
                        expected=f"{rank_of(x)} of each")
    return node.slice(x, dict(enumerate(starts)), dict(enumerate(ends)), dict(enumerate(steps)))


@converts("stablehlo.pad")
def pad(node: Node, x: Expr, value: Expr) -> Expr:
    return padded(node, x, value, node.ints("edge_padding_low"), node.ints("edge_padding_high"),
                  node.ints("interior_padding"))


def padded(node: Node, x: Expr, value: Expr, low: Sequence[Any], high: Sequence[Any],
           between: Sequence[int]) -> Expr:
    """``x`` with elements between its own and at the ends; negative numbers cut elements off."""
    if not len(low) == len(high) == len(between) == rank_of(x):
        raise node.fail("the amounts of padding do not fit the operand", got=f"{low}, {high}",
                        expected=f"{rank_of(x)} of each")
    x = dilated(node, x, value, [n + 1 for n in between])
    cut = [a for a in range(rank_of(x)) if any(
        isinstance(n, int) and n < 0 for n in (low[a], high[a]))]
    grown = [tuple(n if is_symbolic(n) else max(n, 0) for n in pair)
             for pair in zip(low, high, strict=True)]
    if any(n != 0 for pair in grown for n in pair):
        x = node.call(op.nn.pad, x, node.reshape(value, ()), pad_width=tuple(grown))
    if not cut:
        return x
    shape = shape_in(x)
    return node.slice(x, {a: max(0, -low[a]) for a in cut},
                      {a: shape[a] - max(0, -high[a]) for a in cut})


def dilated(node: Node, x: Expr, value: Expr, steps: Sequence[int]) -> Expr:
    """``x`` with its elements ``steps`` apart and ``value`` between them."""
    for axis, step in enumerate(steps):
        size = shape_in(x)[axis]
        if step == 1 or size in (0, 1):
            continue
        parted = node.call(op.expand_dims, x, axis=axis + 1, num_newaxis=1)
        widths = tuple((0, step - 1 if a == axis + 1 else 0) for a in range(rank_of(parted)))
        parted = node.call(op.nn.pad, parted, node.reshape(value, ()), pad_width=widths)
        shape = shape_in(x)
        x = node.reshape(parted, (*shape[:axis], size * step, *shape[axis + 1:]))
        x = node.slice(x, {axis: 0}, {axis: size * step - (step - 1)})
    return x


# Operations whose sizes are operands.

def sizes_in(node: Node, value: Value) -> tuple[Any, ...]:
    """The sizes that an operand holds, which have to be known at import."""
    if isinstance(value, ShapeValue):
        return value.flat()
    if isinstance(value, Constant):
        return tuple(int(v) for v in value.data.reshape(-1))
    raise UnsupportedModelError(f"{node.op}: a size that depends on data", where=node.span,
                                expected="sizes that follow from the shapes of the inputs")


@converts("stablehlo.get_dimension_size")
def get_dimension_size(node: Node, x: Expr) -> Value:
    size = shape_in(x)[node.axis(node.integer("dimension"), rank_of(x))]
    if isinstance(size, int):
        return node.constant(size, node.dtype())
    if isinstance(size, AnyDim):
        raise node.unsupported("a size that depends on data")
    return ShapeValue(object_array([size]).reshape(()), node.dtype())


@converts("stablehlo.dynamic_reshape")
def dynamic_reshape(node: Node, x: Expr, shape: Value) -> Expr:
    return node.reshape(x, sizes_in(node, shape))


@converts("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(node: Node, x: Value, shape: Value) -> Expr:
    from weft.frontend.onnx.shape_value import size_data

    data = size_data(x, node.span) if isinstance(x, ShapeValue) else x
    return spread(node, data, sizes_in(node, shape), node.ints("broadcast_dimensions"))


@converts("stablehlo.dynamic_iota")
def dynamic_iota(node: Node, shape: Value) -> Expr:
    return counted(node, sizes_in(node, shape), node.integer("iota_dimension"))


@converts("stablehlo.dynamic_pad")
def dynamic_pad(node: Node, x: Expr, value: Expr, *amounts: Value) -> Expr:
    low, high, between = (sizes_in(node, v) for v in amounts)
    return padded(node, x, value, low, high, between)


@converts("stablehlo.real_dynamic_slice")
def real_dynamic_slice(node: Node, x: Expr, *bounds: Value) -> Expr:
    starts, ends, steps = (dict(enumerate(sizes_in(node, v))) for v in bounds)
    return node.slice(x, starts, ends, steps)
