"""Arithmetic on symbolic sizes, which models compute with the shapes of tensors.

``SHAPE`` of a tensor with symbolic sizes gives a ``ShapeValue``; operators on such values are
evaluated at import, so that shapes follow from the symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontend.common import arrays
from weft.frontend.onnx.shape_value import ShapeValue, settle
from weft.frontend.tflite.node import Node, Operand
from weft.ir.expr import Constant
from weft.ir.shape import SymDim, dim_add, dim_floordiv, dim_max, dim_min, dim_mul, dim_sub

_MOST_ELEMENTS = 64


def evaluated(node: Node) -> ShapeValue | Constant | None:
    """The result on sizes; ``None`` if the operator has to compute it from data."""
    rule = _RULES.get(node.op)
    if rule is None or len(node.results) != 1:
        return None
    given = [_array(operand) for operand in node.operands if operand is not None]
    if any(a is None for a in given):
        return None
    try:
        result = rule(node, *given)
    except (TypeError, ValueError, IndexError):
        return None
    settled = settle(np.asarray(result, object), node.result_dtype())
    return settled if isinstance(settled, ShapeValue) else Constant(settled, span=node.span)


def _array(operand: Operand) -> np.ndarray | None:
    value = operand.value
    if isinstance(value, ShapeValue):
        return value.dims
    if isinstance(value, Constant) and value.data.size <= _MOST_ELEMENTS \
            and value.data.dtype.kind in "iub" and operand.info.quantization is None:
        return np.array(value.data.tolist(), object).reshape(value.data.shape)
    return None


def _each(function: Callable[[Any, Any], Any]) -> Callable[..., np.ndarray]:
    """A rule that applies ``function`` to pairs of elements."""

    def rule(_node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(a.shape, b.shape)
        first, second = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
        result = arrays.empty(shape, object)
        for at in np.ndindex(shape):
            result[at] = function(first[at], second[at])
        return result

    return rule


def _quotient(a: Any, b: Any) -> Any:
    if not isinstance(b, int) or b <= 0 or (isinstance(a, int) and a < 0):
        raise TypeError("not a quotient of sizes")
    return dim_floordiv(a, b)


def _known(result: Any) -> Any:
    if not isinstance(result, (int, SymDim)):
        raise TypeError("not a size")
    return result


def _product(node: Node, a: np.ndarray, axes: np.ndarray) -> np.ndarray:
    if a.ndim != 1 or [int(n) % 1 for n in axes.reshape(-1)] != [0]:
        raise TypeError("not the product of a shape")
    total: Any = 1
    for item in a:
        total = dim_mul(total, item)
    result = arrays.empty((1,) if node.option("KeepDims") else (), object)
    result[...] = total
    return result


def _gather(node: Node, a: np.ndarray, indices: np.ndarray) -> np.ndarray:
    if node.option("BatchDims"):
        raise TypeError("batches")
    return np.take(a, indices.astype(np.int64), axis=node.option("Axis"))


def _slice(_node: Node, a: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    parts = zip(begin.tolist(), size.tolist(), strict=True)
    return a[tuple(slice(b, None if n == -1 else b + n) for b, n in parts)]


def _strided(node: Node, a: np.ndarray, begin: np.ndarray, end: np.ndarray, step: np.ndarray
             ) -> np.ndarray:
    if a.ndim != 1 or begin.size != 1 or node.option("EllipsisMask") or node.option("NewAxisMask"):
        raise TypeError("not a slice of a shape")
    first, last, by = (int(n.reshape(())) for n in (begin, end, step))
    if node.option("ShrinkAxisMask"):
        return np.asarray(a[first], object)
    return a[slice(None if node.option("BeginMask") else first,
                   None if node.option("EndMask") else last, by)]


def _reshape(_node: Node, a: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return a.reshape([int(n) for n in shape])


def _squeeze(node: Node, a: np.ndarray) -> np.ndarray:
    return a.squeeze(axis=node.option("SqueezeDims", ()) or None)


def _pack(node: Node, *parts: np.ndarray) -> np.ndarray:
    return np.stack(parts, node.option("Axis"))


def _concatenate(node: Node, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, node.option("Axis"))


def _cast(node: Node, a: np.ndarray) -> np.ndarray:
    if not node.result_dtype().is_int:
        raise TypeError("sizes as real numbers")
    return a


def _fill(node: Node, shape: np.ndarray, value: np.ndarray) -> np.ndarray:
    result = arrays.empty([int(n) for n in shape], object)
    result[...] = value.reshape(()).item() if node.rank(1) == 0 else value
    return result


def _joined(_node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The shape to which both shapes broadcast."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    result = longer.copy()
    for axis in range(1, len(shorter) + 1):
        pair = (longer[-axis], shorter[-axis])
        if pair[0] == 1:
            result[-axis] = pair[1]
        elif pair[1] not in (1, pair[0]):
            raise TypeError("the sizes may differ")
    return result


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "ADD": _each(dim_add), "SUB": _each(dim_sub), "MUL": _each(dim_mul),
    "DIV": _each(_quotient), "FLOOR_DIV": _each(_quotient),
    "MAXIMUM": _each(lambda a, b: _known(dim_max(a, b))),
    "MINIMUM": _each(lambda a, b: _known(dim_min(a, b))),
    "REDUCE_PROD": _product, "GATHER": _gather, "SLICE": _slice, "STRIDED_SLICE": _strided,
    "RESHAPE": _reshape, "SQUEEZE": _squeeze, "PACK": _pack, "CONCATENATION": _concatenate,
    "CAST": _cast, "FILL": _fill, "BROADCAST_ARGS": _joined,
    "EXPAND_DIMS": lambda _node, a, axis: np.expand_dims(a, int(axis.reshape(()))),
}
