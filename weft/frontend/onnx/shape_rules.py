"""Evaluation of nodes on tensors of dimensions (``shape_value``).

A rule raises ``TypeError`` if the sizes do not decide the result, as for the comparison of two
symbols. The node is then converted like any other, on the sizes as data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.frontend.common import arrays
from weft.frontend.onnx.reshaping import sliced_positions
from weft.frontend.onnx.shape_value import Element, Ratio, ShapeValue, settle
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import Constant, DType
from weft.ir.shape import (
    AnyDim,
    SymDim,
    bounds_of,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_mul,
    dim_sub,
    dims_equal,
)

if TYPE_CHECKING:
    from weft.frontend.onnx.node import Node

Objects: TypeAlias = np.ndarray
Rule: TypeAlias = "Callable[[Node, list[Objects]], Objects]"
# Longer tensors are data, not shapes.
_MAX_ELEMENTS = 4096


def evaluate_on_shapes(node: Node) -> ShapeValue | np.ndarray | None:
    """Evaluate ``node`` on sizes; ``None`` if the sizes do not decide the result.

    Raises ``InvalidModelError`` for axes and indices out of range.
    """
    rule = _RULES.get(node.op)
    if rule is None or not all(isinstance(v, (ShapeValue, Constant, type(None)))
                               for v in node.inputs):
        return None
    inputs = [_as_objects(v) for v in node.inputs]
    if any(a.size > _MAX_ELEMENTS for a in inputs):
        return None
    try:
        return settle(rule(node, inputs), _result_dtype(node))
    except TypeError:
        return None
    except (ArithmeticError, IndexError, ValueError) as error:
        # Axes and indices come from the model; NumPy raises if they are out of range.
        raise node.fail("the shape cannot be computed", got=str(error)) from None


def _as_objects(value: Any) -> Objects:
    if isinstance(value, ShapeValue):
        return value.dims
    return np.zeros(0, object) if value is None else value.data.astype(object)


_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or")


def _result_dtype(node: Node) -> DType:
    if node.op in _COMPARISONS:
        return DType.of("bool")
    if node.op == "Cast":
        return dtype_of(node.attrs.integer("to", 0), "the result of Cast", node.span)
    if node.op in ("Shape", "Size"):
        return DType.of("int64")
    value = node.inputs[1 if node.op == "Where" else 0]
    return value.dtype if isinstance(value, ShapeValue) else DType.of(value.data.dtype)  # type: ignore[union-attr]


def _each(function: Callable[..., Element]) -> Rule:
    """The rule of an elementwise operator; its inputs broadcast."""
    def rule(_: Node, inputs: list[Objects]) -> Objects:
        result = arrays.empty(np.broadcast_shapes(*(i.shape for i in inputs)), object)
        spread = [np.broadcast_to(i, result.shape).reshape(-1) for i in inputs]
        flat = [function(*items) for items in zip(*spread, strict=True)]
        if flat:
            result.reshape(-1)[:] = flat
        return result

    return rule


def _fold(function: Callable[[Any, Any], Element]) -> Rule:
    """The rule of a variadic elementwise operator."""
    def rule(node: Node, inputs: list[Objects]) -> Objects:
        total = inputs[0]
        for other in inputs[1:]:
            total = _each(function)(node, [total, other])
        return total

    return rule


def _size(value: Element) -> int | SymDim:
    if isinstance(value, Ratio) and value.denominator == 1:
        return value.numerator
    if isinstance(value, (int, SymDim)):
        return value
    raise TypeError("not a whole size")


def _known(dim: object) -> Any:
    if isinstance(dim, AnyDim):
        raise TypeError("an unknown size")
    return dim


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Element]:
    """Sums and differences of sizes; of floats, if they are whole sizes."""
    def apply(a: Any, b: Any) -> Element:
        if isinstance(a, (SymDim, Ratio)) or isinstance(b, (SymDim, Ratio)):
            real = any(isinstance(v, (Ratio, float)) for v in (a, b))
            dims = [_size(int(v) if isinstance(v, float) and v.is_integer() else v)
                    for v in (a, b)]
            return _as_real(_known(function(*dims)), real)
        return function(a, b)

    return apply


def _as_real(value: Any, real: bool) -> Element:
    if not real:
        return value
    return Ratio(value) if isinstance(value, SymDim) else float(value)


def _multiply(a: Any, b: Any) -> Element:
    for value, factor in ((a, b), (b, a)):
        if isinstance(value, Ratio) and isinstance(factor, (int, float)):
            return value.times(factor)
    return _arithmetic(dim_mul if isinstance(a, SymDim) or isinstance(b, SymDim)
                       else operator.mul)(a, b)


def _divide(a: Any, b: Any) -> Element:
    if isinstance(a, Ratio) and isinstance(b, (int, float)):
        return a.over(b)
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        if not _natural(a) or not _natural(b):
            raise TypeError("ONNX truncates, which is not the floor of a negative quotient")
        return _known(dim_floordiv(_size(a), _size(b)))
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return -(-a // b) if (a < 0) != (b < 0) else a // b


def _modulo(a: Any, b: Any) -> Element:
    if isinstance(a, SymDim) and isinstance(b, int) and b > 0:
        return _known(dim_sub(a, dim_mul(dim_floordiv(a, b), b)))
    return _number(a) % _number(b)


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError("not a number")
    return value


def _natural(dim: Any) -> bool:
    low = bounds_of(dim)[0] if isinstance(dim, (int, SymDim)) else None
    return low is not None and low >= 0


def _extreme(dims: Callable[[Any, Any], Any], numbers: Callable[[Any, Any], Any]
             ) -> Callable[[Any, Any], Element]:
    def apply(a: Any, b: Any) -> Element:
        if isinstance(a, SymDim) or isinstance(b, SymDim):
            return _known(dims(_size(a), _size(b)))
        return numbers(_number(a), _number(b))

    return apply


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        found = dims_equal(_size(a), _size(b))
        if found is None:
            raise TypeError("equality that only run time decides")
        return found
    return bool(_number(a) == _number(b))


def _less(a: Any, b: Any, *, or_equal: bool) -> bool:
    if not isinstance(a, SymDim) and not isinstance(b, SymDim):
        return bool(_number(a) <= _number(b) if or_equal else _number(a) < _number(b))
    low, high = bounds_of(dim_sub(_size(b), _size(a)))
    least = 0 if or_equal else 1
    if low is not None and low >= least:
        return True
    if high is not None and high < least:
        return False
    raise TypeError("an order that only run time decides")


def _rounded(number: Callable[[float], float], ratio: Callable[[Ratio], Any]
             ) -> Callable[[Any], Element]:
    def apply(value: Any) -> Element:
        return _as_real(_known(ratio(value)), True) if isinstance(value, Ratio) else number(value)

    return apply


def _cast(node: Node, inputs: list[Objects]) -> Objects:
    target = _result_dtype(node)

    def convert(value: Any) -> Element:
        if target.is_float:
            return Ratio(value) if isinstance(value, SymDim) else float(value) if isinstance(
                value, (int, float)) else value
        if isinstance(value, Ratio):
            if not _natural(value.numerator):
                raise TypeError("a cast truncates negative numbers")
            return _known(value.floor())
        if target.is_bool and not isinstance(value, (int, float)):
            raise TypeError("the truth of a size")
        if isinstance(value, SymDim):
            return value
        return np.asarray(value).astype(target.numpy).item()

    return _each(convert)(node, inputs)


def _axes(node: Node, inputs: list[Objects]) -> tuple[int, ...]:
    if len(inputs) > 1:
        return tuple(int(a) for a in inputs[1].reshape(-1).tolist())
    return node.attrs.integers("axes") or ()


def _slice(node: Node, inputs: list[Objects]) -> Objects:
    """Slice the only axis of a shape; ``axes`` is ignored."""
    if inputs[0].ndim != 1:
        raise TypeError("not a vector")
    if len(inputs) > 1:
        starts, ends = inputs[1].reshape(-1), inputs[2].reshape(-1)
    else:
        starts = np.array(node.attrs.integers("starts"), object)
        ends = np.array(node.attrs.integers("ends"), object)
    step = int(inputs[4].reshape(-1)[0]) if len(inputs) > 4 else 1
    positions = sliced_positions(len(inputs[0]), int(starts[0]), int(ends[0]), step)
    return inputs[0][list(positions)]


def _unsqueeze(node: Node, inputs: list[Objects]) -> Objects:
    return np.expand_dims(inputs[0], _axes(node, inputs))


def _squeeze(node: Node, inputs: list[Objects]) -> Objects:
    return np.squeeze(inputs[0], _axes(node, inputs) or None)


def _gather(node: Node, inputs: list[Objects]) -> Objects:
    indices = inputs[1].astype(np.int64)
    taken = np.take(inputs[0], indices, axis=node.attrs.integer("axis", 0))
    return taken if isinstance(taken, np.ndarray) else _scalar(taken)


def _scalar(value: object) -> Objects:
    """A 0-d array; NumPy returns the element itself in its stead."""
    scalar = np.empty((), object)
    scalar[()] = value
    return scalar


def _concat(node: Node, inputs: list[Objects]) -> Objects:
    return np.concatenate(inputs, axis=node.attrs.integer("axis", 0))


def _reshape(_: Node, inputs: list[Objects]) -> Objects:
    target = [int(d) for d in inputs[1].reshape(-1).tolist()]
    if 0 in target:
        raise TypeError("a size of 0 copies")
    return inputs[0].reshape(target)


def _where(_: Node, inputs: list[Objects]) -> Objects:
    def choose(condition: Any, yes: Any, no: Any) -> Element:
        return yes if _number(condition) else no

    return _each(choose)(_, inputs)


def _reduced(function: Callable[[Any, Any], Element], start: int | None) -> Rule:
    """The rule of a reduction over all elements."""
    def rule(node: Node, inputs: list[Objects]) -> Objects:
        axes = _axes(node, inputs)
        if inputs[0].ndim > 1 or (not axes and node.attrs.flag("noop_with_empty_axes")):
            raise TypeError("not a reduction of a vector")
        items = inputs[0].reshape(-1).tolist()
        total = items.pop(0) if start is None else start
        for item in items:
            total = function(total, item)
        shape = (1,) if node.attrs.flag("keepdims", True) and inputs[0].ndim else ()
        result = arrays.empty(shape, object)
        result[...] = total
        return result

    return rule


def _expand(_: Node, inputs: list[Objects]) -> Objects:
    shape = tuple(int(d) for d in inputs[1].reshape(-1).tolist())
    return arrays.spread(inputs[0], np.broadcast_shapes(inputs[0].shape, shape))


def _shape_of_shape(_: Node, inputs: list[Objects]) -> Objects:
    return np.array(inputs[0].shape, object)


_MAXIMUM, _MINIMUM = _extreme(dim_max, max), _extreme(dim_min, min)
_ADD = _arithmetic(operator.add)
_RULES: dict[str, Rule] = {
    "Abs": _each(lambda a: _MAXIMUM(a, -a)),
    "Add": _fold(_ADD),
    "And": _each(lambda a, b: bool(_number(a) and _number(b))),
    "Cast": _cast,
    "Ceil": _each(_rounded(math.ceil, Ratio.ceil)),
    "Concat": _concat,
    "Div": _each(_divide),
    "Equal": _each(_equal),
    "Expand": _expand,
    "Floor": _each(_rounded(math.floor, Ratio.floor)),
    "Gather": _gather,
    "Greater": _each(lambda a, b: _less(b, a, or_equal=False)),
    "GreaterOrEqual": _each(lambda a, b: _less(b, a, or_equal=True)),
    "Identity": lambda _, inputs: inputs[0],
    "Less": _each(lambda a, b: _less(a, b, or_equal=False)),
    "LessOrEqual": _each(lambda a, b: _less(a, b, or_equal=True)),
    "Max": _fold(_MAXIMUM),
    "Min": _fold(_MINIMUM),
    "Mod": _each(_modulo),
    "Mul": _each(_multiply),
    "Neg": _each(operator.neg),
    "Not": _each(lambda a: not _number(a)),
    "Or": _each(lambda a, b: bool(_number(a) or _number(b))),
    "ReduceMax": _reduced(_MAXIMUM, None),
    "ReduceMin": _reduced(_MINIMUM, None),
    "ReduceProd": _reduced(_multiply, 1),
    "ReduceSum": _reduced(_ADD, 0),
    "Reshape": _reshape,
    "Shape": _shape_of_shape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _each(_arithmetic(operator.sub)),
    "Sum": _fold(_ADD),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
