"""The values of integer tensors that a program computes from shapes, over symbolic sizes.

``shape_of`` of a tensor of type ``(n, 4)`` is ``[n, 4]``; ``concatenate``, ``take``, sums, products
and quotients of such tensors have values of the same kind. Values are NumPy arrays of objects:
integers, booleans and dimensions. The NumPy references of operators that move elements evaluate
them as they are.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from weft.ir.shape import (
    AnyDim,
    Dim,
    SymDim,
    bounds_of,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_product,
    dim_sub,
    dims_equal,
)
from weft.ir.types import TensorType, is_static
from weft.support.errors import WeftError
from weft.transform.analysis.graph import known_type, op_name

# Larger tensors are data, not shapes.
MAX_ELEMENTS = 256
# Evaluated by their NumPy reference, which moves elements without looking at them.
_MOVES = frozenset({
    "broadcast_to", "concatenate", "copy", "expand_dims", "full", "gather", "repeat", "reshape",
    "reverse", "split", "squeeze", "stack", "strided_slice", "take", "tile", "transpose",
})
Value: TypeAlias = np.ndarray
Values: TypeAlias = "Value | tuple[Value, ...]"


class Undecided(Exception):  # noqa: N818 - not an error: the value stays unknown
    """The symbols do not determine a value."""


class ShapeValues:
    """Values of typed expressions; those of operands are computed first and kept."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expr, Values | None]] = {}

    def of(self, expr: Expr) -> Value | None:
        """The value of a tensor whose operands have been visited; ``None`` if it is unknown."""
        found = self._values(expr)
        return found if isinstance(found, np.ndarray) else None

    def visit(self, expr: Expr) -> Value | None:
        """Compute and keep the value of an expression; its operands must have been visited."""
        if id(expr) not in self._known:
            self._known[id(expr)] = expr, self._evaluate(expr)
        return self.of(expr)

    def _values(self, expr: Expr) -> Values | None:
        if isinstance(expr, Constant):
            small = expr.data.size <= MAX_ELEMENTS and expr.data.dtype.kind in "iub"
            return expr.data.astype(object) if small else None
        return self._known.get(id(expr), (expr, None))[1]

    def _evaluate(self, expr: Expr) -> Values | None:
        if isinstance(expr, TupleGetItem):
            whole = self._values(expr.tuple_value)
            return whole[expr.index] if isinstance(whole, tuple) else None
        if isinstance(expr, Tuple):
            fields = tuple(f for f in map(self.of, expr.fields) if f is not None)
            return fields if len(fields) == len(expr.fields) else None
        if not isinstance(expr, Call):
            return None
        name = op_name(expr)
        if name in ("shape_of", "ndarray_size"):
            return _sizes(expr, name)
        if name not in _MOVES | _ARITHMETIC.keys() or not _holds_integers(expr):
            return None
        args = [self._values(a) for a in expr.args]
        if any(a is None for a in args):
            return None
        try:
            if name in _MOVES:
                return _moved(expr, args)
            return _ARITHMETIC[name](expr, args)
        except (Undecided, WeftError):
            return None


def _sizes(call: Call, name: str) -> Value | None:
    source = known_type(call.args[0])
    if not isinstance(source, TensorType):
        return None
    if name == "ndarray_size":
        # A fixed number is left to constant folding.
        return None if is_static(source) else _array(dim_product(source.shape))
    sizes = np.empty(source.ndim, object)
    sizes[:] = source.shape
    return sizes


def _array(value: Any) -> Value:
    made = np.empty((), object)
    made[()] = value
    return made


def _holds_integers(call: Call) -> bool:
    """Whether the result is of integers or booleans."""
    found = known_type(call)
    fields = getattr(found, "fields", (found,))
    return all(isinstance(t, TensorType) and (t.dtype.is_int or t.dtype.is_bool)
               for t in fields)


def _elements(call: Call) -> int:
    """The number of elements of the result; 0 if it is not known."""
    found = known_type(call)
    types = [t for t in getattr(found, "fields", (found,)) if isinstance(t, TensorType)]
    return sum(math.prod(t.concrete_shape) for t in types if is_static(t))


def _moved(call: Call, args: Sequence[Any]) -> Values | None:
    reference = call.op.reference  # type: ignore[attr-defined] - op_name found an operator
    attrs = dict(call.attrs.items())
    if any(isinstance(d, SymDim) for v in attrs.values() if isinstance(v, tuple) for d in v):
        return None
    if _elements(call) > MAX_ELEMENTS:
        return None
    if op_name(call) in ("take", "gather"):
        args = [args[0], _integers(args[1])]
    if op_name(call) == "full":
        attrs["dtype"] = None
        return np.full(attrs["shape"], args[0][()], object)
    result = reference(*args, **attrs)
    if isinstance(result, tuple):
        return tuple(np.asarray(r, object) for r in result)
    return np.asarray(result, object)


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


def _cast(call: Call, args: Sequence[Any]) -> Value | None:
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


_ARITHMETIC: dict[str, Callable[[Call, Sequence[Any]], Value | None]] = {
    "add": _elementwise(operator.add),
    "subtract": _elementwise(operator.sub),
    "multiply": _elementwise(operator.mul),
    "negative": _elementwise(lambda a: a * -1),
    "floor_divide": _elementwise(_floor_divide),
    "divide": _elementwise(_truncated_divide),
    "trunc_divide": _elementwise(_truncated_divide),
    "floor_mod": _elementwise(_remainder(_floor_divide)),
    "mod": _elementwise(_remainder(_truncated_divide)),
    "trunc_mod": _elementwise(_remainder(_truncated_divide)),
    "maximum": _elementwise(dim_max),
    "minimum": _elementwise(dim_min),
    "equal": _elementwise(_equal),
    "not_equal": _elementwise(lambda a, b: not _equal(a, b)),
    "greater_equal": _elementwise(_at_least),
    "less": _elementwise(lambda a, b: not _at_least(a, b)),
    "less_equal": _elementwise(lambda a, b: _at_least(b, a)),
    "greater": _elementwise(lambda a, b: not _at_least(b, a)),
    "logical_not": _elementwise(lambda a: not a),
    "logical_and": _elementwise(lambda a, b: bool(a and b)),
    "logical_or": _elementwise(lambda a, b: bool(a or b)),
    "where": _elementwise(_chosen),
    "cast": _cast,
    "sum": _reduced(operator.add, 0),
    "prod": _reduced(operator.mul, 1),
    "max": _reduced(dim_max, None),
    "min": _reduced(dim_min, None),
}


def is_fixed(value: Value) -> bool:
    """Whether a value has no symbols."""
    return not any(isinstance(v, (SymDim, AnyDim)) for v in value.flat)


def is_determined(value: Value) -> bool:
    """Whether symbols determine all elements."""
    return not any(isinstance(v, AnyDim) for v in value.flat)
