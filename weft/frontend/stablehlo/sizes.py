"""Arithmetic on symbolic sizes, which shape-polymorphic modules compute as scalars and vectors.

``stablehlo.get_dimension_size`` of a symbolic size gives a ``ShapeValue``; operations on such
values are evaluated at import, so that shapes follow from the symbols. An element that is not a
size (the remainder of a symbol) is ``UNKNOWN``, and may be left out by what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontend.common import arrays as made
from weft.frontend.onnx.shape_value import ShapeValue, settle
from weft.frontend.stablehlo.node import Node, Value
from weft.frontend.stablehlo.types import dtype_of
from weft.ir.expr import Constant
from weft.ir.shape import AnyDim, SymDim, dim_add, dim_floordiv, dim_max, dim_mul, dim_sub

_MOST_ELEMENTS = 64


class _Unknown:
    """An element whose value is not known at import."""


UNKNOWN: Any = _Unknown()


def evaluated(node: Node) -> Value | None:
    """The result on sizes as a value; ``None`` if the operation has to compute it from data."""
    rule = _RULES.get(node.op.partition(".")[2])
    if rule is None or node.bodies:
        return None
    arrays = [_array(value) for value in node.operands]
    if any(a is None for a in arrays):
        return None
    dtype = dtype_of(node.types[0])
    try:
        result = rule(node, *arrays)
    except (TypeError, ValueError):
        return None
    if dtype is None or result is None:
        return None
    if any(item is UNKNOWN for item in result.flat):
        return ShapeValue(result, dtype) if node.op.endswith(_MAY_BE_UNKNOWN) else None
    settled = settle(result, dtype)
    return settled if isinstance(settled, ShapeValue) else Constant(settled, span=node.span)


# The results of these may be unknown, where what follows them leaves the element out.
_MAY_BE_UNKNOWN = ("remainder", "compare", "and", "or", "not", "sign", "xor")


def _array(value: Value) -> np.ndarray | None:
    if isinstance(value, ShapeValue):
        return value.dims
    if isinstance(value, Constant) and value.data.size <= _MOST_ELEMENTS \
            and value.data.dtype.kind in "iub":
        return np.array(value.data.tolist(), object).reshape(value.data.shape)
    return None


def _each(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """A rule that applies ``function`` to elements; of unknown ones the result is unknown."""

    def rule(_node: Node, *arrays: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        spread = [np.broadcast_to(a, shape) for a in arrays]
        result = made.empty(shape, object)
        for at in np.ndindex(shape):
            items = [a[at] for a in spread]
            is_whole = not any(item is UNKNOWN for item in items)
            result[at] = function(*items) if is_whole else UNKNOWN
        return result

    return rule


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return UNKNOWN if b == 0 else int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    return dim_floordiv(a, b) if isinstance(b, int) and b > 0 else UNKNOWN


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b:
        return a - b * _quotient(a, b)
    if isinstance(b, int) and b > 0:
        rest = dim_sub(a, dim_mul(dim_floordiv(a, b), b))
        return rest if isinstance(rest, int) else UNKNOWN
    return UNKNOWN


def _sign(a: Any) -> Any:
    """Sizes count as positive; where one is 0, its quotients have no remainder."""
    return (a > 0) - (a < 0) if isinstance(a, int) else 1 if str(a).isidentifier() else UNKNOWN


_ORDERS: dict[str, Callable[[int], bool]] = {
    "EQ": lambda d: d == 0, "NE": lambda d: d != 0, "LT": lambda d: d < 0, "LE": lambda d: d <= 0,
    "GT": lambda d: d > 0, "GE": lambda d: d >= 0}


def _compare(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    order = _ORDERS[node.word("comparison_direction")]

    def decided(x: Any, y: Any) -> Any:
        gap = dim_sub(x, y)
        return order(gap) if isinstance(gap, int) else UNKNOWN

    return _each(decided)(node, a, b)


def _logical(stops: bool) -> Callable[..., np.ndarray]:
    """``or`` and ``and``: one operand may decide alone."""

    def rule(_node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = made.empty(a.shape, object)
        for at in np.ndindex(a.shape):
            pair = (a[at], b[at])
            decided = any(item is stops for item in pair)
            whole = not any(item is UNKNOWN for item in pair)
            result[at] = stops if decided else (not stops if whole else UNKNOWN)
        return result

    return rule


def _select(_node: Node, choice: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    spread = np.broadcast_to(choice, a.shape)
    if any(item is UNKNOWN for item in spread.flat):
        return None
    result = made.empty(a.shape, object)
    for at in np.ndindex(a.shape):
        result[at] = a[at] if spread[at] else b[at]
    return result


def _reshape(node: Node, a: np.ndarray) -> np.ndarray:
    return a.reshape(node.shape())


def _broadcast(node: Node, a: np.ndarray) -> np.ndarray:
    shape, axes = node.shape(), node.ints("broadcast_dimensions")
    lined = a.reshape([a.shape[axes.index(i)] if i in axes else 1 for i in range(len(shape))])
    return np.broadcast_to(lined, shape).copy()


def _concatenate(node: Node, *arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, node.integer("dimension"))


def _slice(node: Node, a: np.ndarray) -> np.ndarray:
    parts = zip(node.ints("start_indices"), node.ints("limit_indices"), node.ints("strides"),
                strict=True)
    return a[tuple(slice(*part) for part in parts)]


def _convert(node: Node, a: np.ndarray) -> np.ndarray | None:
    dtype = dtype_of(node.types[0])
    return a if dtype is not None and dtype.is_int else None


def _maximum(a: Any, b: Any) -> Any:
    result = dim_max(a, b)
    return UNKNOWN if isinstance(result, AnyDim) else result


def _minimum(a: Any, b: Any) -> Any:
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        gap = dim_sub(a, b)
        return (a if gap < 0 else b) if isinstance(gap, int) else UNKNOWN
    return min(a, b)


_RULES: dict[str, Callable[..., np.ndarray | None]] = {
    "add": _each(dim_add), "subtract": _each(dim_sub), "multiply": _each(dim_mul),
    "divide": _each(_quotient), "remainder": _each(_remainder), "sign": _each(_sign),
    "maximum": _each(_maximum), "minimum": _each(_minimum),
    "negate": _each(lambda a: dim_mul(a, -1)), "compare": _compare, "select": _select,
    "and": _logical(stops=False), "or": _logical(stops=True), "reshape": _reshape,
    "not": _each(lambda a: not a), "broadcast_in_dim": _broadcast, "concatenate": _concatenate,
    "slice": _slice, "convert": _convert,
}
