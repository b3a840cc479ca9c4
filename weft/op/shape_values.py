"""The integers that calls compute from shapes, as arrays of dimensions.

``transform.analysis.shape_values`` evaluates ``shape_of``, arithmetic on its result, and operators
that move its elements. An operator names its rule here as its hook ``shape_value``: a function of
the typed call and the values of its arguments (NumPy arrays of objects: integers, booleans and
dimensions; a tuple of these for a tuple). The rule returns the value of the result, or ``None``.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.ir import Call, Dim, SymDim, TensorType, is_static, known_type
from weft.ir.shape import (
    bounds_of,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_product,
    dim_sub,
    dims_equal,
)

# Larger tensors are data, not shapes.
MAX_ELEMENTS = 256
Value: TypeAlias = np.ndarray
Values: TypeAlias = "Value | tuple[Value, ...]"


class Undecided(Exception):  # noqa: N818 - not an error: the value stays unknown
    """The symbols do not determine a value."""


def sizes(call: Call, _args: Sequence[Any]) -> Value | None:
    """The sizes of the argument (``shape_of``)."""
    source = known_type(call.args[0])
    if not isinstance(source, TensorType):
        return None
    found = np.empty(source.ndim, object)
    found[:] = source.shape
    return found


def size(call: Call, _args: Sequence[Any]) -> Value | None:
    """The number of elements of the argument; a fixed one is left to constant folding."""
    source = known_type(call.args[0])
    if not isinstance(source, TensorType) or is_static(source):
        return None
    return _array(dim_product(source.shape))


def _array(value: Any) -> Value:
    made = np.empty((), object)
    made[()] = value
    return made


def _elements(call: Call) -> int:
    """The number of elements of the result; 0 if it is not known."""
    found = known_type(call)
    types = [t for t in getattr(found, "fields", (found,)) if isinstance(t, TensorType)]
    return sum(math.prod(t.concrete_shape) for t in types if is_static(t))


def moved(call: Call, args: Sequence[Any]) -> Values | None:
    """By the NumPy reference of an operator that moves elements without looking at them."""
    attrs = dict(call.attrs.items())
    if any(isinstance(d, SymDim) for v in attrs.values() if isinstance(v, tuple) for d in v):
        return None
    if _elements(call) > MAX_ELEMENTS:
        return None
    result = call.op.reference(*args, **attrs)  # type: ignore[attr-defined] - has this hook
    if isinstance(result, tuple):
        return tuple(np.asarray(r, object) for r in result)
    return np.asarray(result, object)


def gathered(call: Call, args: Sequence[Any]) -> Values | None:
    """``moved`` of the first argument, by indices that are known (``take``, ``gather``)."""
    return moved(call, (args[0], _integers(args[1])))


def filled(call: Call, args: Sequence[Any]) -> Value | None:
    """One value in the shape that the attributes give (``full``)."""
    shape = call.attrs.shape  # type: ignore[attr-defined]
    if any(isinstance(d, SymDim) for d in shape) or math.prod(shape) > MAX_ELEMENTS:
        return None
    return np.full(shape, args[0][()], object)


def _integers(value: Value) -> np.ndarray:
    if not all(isinstance(v, int) for v in value.flat):
        raise Undecided
    return value.astype(np.int64)


def _elementwise(function: Callable[..., Any]) -> Callable[[Call, Sequence[Any]], Value]:
    def evaluate(_call: Call, args: Sequence[Any]) -> Value:
        return np.asarray(np.frompyfunc(function, len(args), 1)(*args), object)

    return evaluate


def _floor_divide(a: Dim, b: Dim) -> Dim:
    if b == 0:
        raise Undecided
    return dim_floordiv(a, b)


def _truncated_divide(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int) and b:
        return -(-a // b) if (a < 0) != (b < 0) else a // b
    if not (_at_least(a, 0) and _at_least(b, 0)):
        raise Undecided
    return _floor_divide(a, b)  # the same for operands that are not negative


def _remainder(divide: Callable[[Dim, Dim], Dim]) -> Callable[[Dim, Dim], Dim]:
    return lambda a, b: dim_sub(a, divide(a, b) * b)


def _equal(a: Any, b: Any) -> bool:
    found = dims_equal(a, b)
    if found is None:
        raise Undecided
    return found


def _at_least(a: Dim, b: Dim) -> bool:
    """Whether ``a >= b``."""
    low, high = bounds_of(dim_sub(a, b))
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    raise Undecided


def _chosen(condition: Any, yes: Any, no: Any) -> Any:
    if not isinstance(condition, (bool, int, np.bool_)):
        raise Undecided
    return yes if condition else no


def cast(call: Call, args: Sequence[Any]) -> Value | None:
    dtype = call.attrs.dtype if hasattr(call.attrs, "dtype") else None
    source = known_type(call.args[0])
    keeps = dtype is not None and dtype.is_int and isinstance(source, TensorType) \
        and not source.dtype.is_bool
    return args[0] if keeps else None


def _reduced(combine: Callable[[Any, Any], Any], initial: Any) -> Callable[..., Value | None]:
    def evaluate(call: Call, args: Sequence[Any]) -> Value | None:
        value, attrs = args[0], dict(call.attrs.items())
        if value.ndim != 1 or attrs.get("exclude") or (value.size == 0 and initial is None):
            return None
        parts = list(value) if initial is None else [initial, *value]
        total = _array(functools.reduce(combine, parts))
        return total.reshape(1) if attrs.get("keepdims") else total

    return evaluate


# The rules of operators with the same name.
add = _elementwise(operator.add)
subtract = _elementwise(operator.sub)
multiply = _elementwise(operator.mul)
negative = _elementwise(lambda a: a * -1)
floor_divide = _elementwise(_floor_divide)
divide = trunc_divide = _elementwise(_truncated_divide)
floor_mod = _elementwise(_remainder(_floor_divide))
mod = trunc_mod = _elementwise(_remainder(_truncated_divide))
maximum = _elementwise(dim_max)
minimum = _elementwise(dim_min)
equal = _elementwise(_equal)
not_equal = _elementwise(lambda a, b: not _equal(a, b))
greater_equal = _elementwise(_at_least)
less = _elementwise(lambda a, b: not _at_least(a, b))
less_equal = _elementwise(lambda a, b: _at_least(b, a))
greater = _elementwise(lambda a, b: not _at_least(b, a))
logical_not = _elementwise(lambda a: not a)
logical_and = _elementwise(lambda a, b: bool(a and b))
logical_or = _elementwise(lambda a, b: bool(a or b))
where = _elementwise(_chosen)
sum_ = _reduced(operator.add, 0)
prod = _reduced(operator.mul, 1)
max_ = _reduced(dim_max, None)
min_ = _reduced(dim_min, None)
