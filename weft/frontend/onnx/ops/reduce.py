"""Converters of reductions."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import ConvertFunction, register
from weft.ir import Constant, Expr, Op, dim_product
from weft.support.errors import UnsupportedModelError

# The opset from which on the axes are an input instead of an attribute.
_AXES_ARE_INPUT_SINCE = {
    "ReduceMax": 18,
    "ReduceMean": 18,
    "ReduceMin": 18,
    "ReduceProd": 18,
    "ReduceSum": 13,
}
_OPERATORS = {
    "ReduceMax": op.max,
    "ReduceMean": op.mean,
    "ReduceMin": op.min,
    "ReduceProd": op.prod,
    "ReduceSum": op.sum,
}
_SEARCHES = {"ArgMax": op.argmax, "ArgMin": op.argmin}


def _axes_by_attribute(operator: Op) -> ConvertFunction:
    return lambda node: _reduce(node, operator, node.attrs.integers("axes"))


def _axes_by_input(operator: Op) -> ConvertFunction:
    def convert(node: Node) -> Expr:
        axes = node.optional_ints(1, "axes")
        if not axes and node.attrs.flag("noop_with_empty_axes"):
            return node.input(0)
        return _reduce(node, operator, axes)

    return convert


def reduced_axes(node: Node, named: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the reduced axes, non-negative and sorted; ``None`` for all axes."""
    rank = node.rank()
    chosen = tuple(sorted(node.axis(a, rank) for a in named)) if named else None
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise node.fail("duplicate axis", got=str(named))
    return chosen


def _reduce(node: Node, operator: Op, axes: tuple[int, ...] | None) -> Expr:
    rank, chosen = node.rank(), reduced_axes(node, axes)
    keepdims = node.attrs.flag("keepdims", True)
    x = node.input(0)
    if operator is op.mean and node.dtype().is_int:
        return _integer_mean(node, chosen, keepdims=keepdims)
    if operator not in (op.max, op.min):
        return node.call(operator, x, axis=chosen, keepdims=keepdims)
    if any(node.shape()[a] == 0 for a in chosen or range(rank)):
        x = _with_one_element(node, operator, chosen or tuple(range(rank)))
    if not node.dtype().is_bool:
        return node.call(operator, x, axis=chosen, keepdims=keepdims)
    numbers = node.call(op.cast, x, dtype="uint8")
    extreme = node.call(operator, numbers, axis=chosen, keepdims=keepdims)
    return node.call(op.cast, extreme, dtype="bool")


def _integer_mean(node: Node, axes: tuple[int, ...] | None, *, keepdims: bool) -> Expr:
    """Divide the sum by the number of elements, rounded towards zero."""
    shape = node.shape()
    count = dim_product(tuple(shape[a] for a in (range(len(shape)) if axes is None else axes)))
    if not isinstance(count, int) or count == 0:
        raise UnsupportedModelError(
            "ReduceMean of integers over axes of symbolic or zero size",
            where=node.span,
            help='fix the sizes at compile time: inputs={"x": (1, 3, 224, 224)}',
        )
    total = node.call(op.sum, node.input(0), axis=axes, keepdims=keepdims)
    return node.call(op.trunc_divide, total, node.scalar_like(count, total))


def _with_one_element(node: Node, operator: Op, axes: tuple[int, ...]) -> Expr:
    """Replace empty axes by one neutral element: the lowest value for max, the highest for min."""
    type_ = tensor_type(node.input(0))
    shape = [1 if axis in axes else size for axis, size in enumerate(type_.concrete_shape)]
    dtype = type_.dtype
    lowest, highest = (False, True) if dtype.is_bool else (float("-inf"), float("inf"))
    if dtype.is_int:
        lowest, highest = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    neutral = lowest if operator is op.max else highest
    return Constant(arrays.full(shape, neutral, dtype.numpy), span=node.span)


def _search(operator: Op) -> ConvertFunction:
    def convert(node: Node) -> Expr:
        axis = node.axis(node.attrs.integer("axis", 0), node.rank())
        return node.call(
            operator,
            node.input(0),
            axis=(axis,),
            keepdims=node.attrs.flag("keepdims", True),
            select_last_index=node.attrs.flag("select_last_index"),
        )

    return convert


for _name, _operator in _OPERATORS.items():
    register(_name, _axes_by_attribute(_operator), attributes=("axes", "keepdims"))
    register(
        _name,
        _axes_by_input(_operator),
        since=_AXES_ARE_INPUT_SINCE[_name],
        attributes=("keepdims", "noop_with_empty_axes"),
    )
for _name, _operator in _SEARCHES.items():
    register(_name, _search(_operator), attributes=("axis", "keepdims", "select_last_index"))
