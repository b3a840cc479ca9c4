"""Definitions, in simple operators, of operators whose compute is a loop.

``compute_form`` finds the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import op
from weft.ir import Call, DType, Expr, TensorType, const
from weft.ir.dtype import int64
from weft.ir.types import is_static

Form: TypeAlias = "Callable[[Call], Expr | None]"
_FORMS: dict[str, Form] = {}


def form_of(operator: str) -> Form | None:
    """The definition of an operator, if it stands here."""
    return _FORMS.get(operator)


def _defines(*operators: str) -> Callable[[Form], Form]:
    def wrap(function: Form) -> Form:
        _FORMS.update(dict.fromkeys(operators, function))
        return function

    return wrap


def _type(expr: Expr) -> TensorType:
    found = expr.checked_type
    if not isinstance(found, TensorType):
        raise TypeError(f"a tensor is expected, not {found}")
    return found


def _name(call: Call) -> str:
    return call.op.name  # type: ignore[attr-defined]


def _static(call: Call) -> bool:
    return all(a.checked_type is not None and is_static(a.checked_type) for a in call.args)


# The operator that combines two values, and its neutral element.
def _combiner(name: str, dtype: DType) -> tuple[Callable[[Expr, Expr], Expr], Any]:
    low, high = (-np.inf, np.inf) if dtype.is_float else (
        np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    return {"cumsum": (op.add, 0), "cumprod": (op.multiply, 1), "cummax": (op.maximum, low),
            "cummin": (op.minimum, high), "logcumsumexp": (_log_add, -np.inf)}[name]


def _log_add(a: Expr, b: Expr) -> Expr:
    """log(e**a + e**b); equal infinities have no difference."""
    most, least = op.maximum(a, b), op.minimum(a, b)
    apart = op.where(op.equal(a, b), op.zeros_like(a), op.subtract(least, most))
    return op.add(most, op.log1p(op.exp(apart)))


@_defines("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
def running(call: Call) -> Expr | None:
    """Each step combines elements with those twice as far away (Hillis and Steele)."""
    attrs: Any = call.attrs
    x, result = call.args[0], _type(call)
    axis = attrs.axis % max(result.ndim, 1)
    size = result.shape[axis] if result.ndim else 1
    if not isinstance(size, int):
        return None
    combine, neutral = _combiner(_name(call), result.dtype)
    x = op.cast(x, dtype=result.dtype)
    x = op.reverse(x, axis=axis) if attrs.reverse and result.ndim else x
    if getattr(attrs, "exclusive", False):
        x = _shifted(x, 1, axis, result, neutral)
    step = 1
    while step < size:
        x = combine(_shifted(x, step, axis, result, neutral), x)
        step *= 2
    return op.reverse(x, axis=axis) if attrs.reverse and result.ndim else x


def _shifted(x: Expr, step: int, axis: int, type_: TensorType, neutral: Any) -> Expr:
    """``x`` moved along an axis; ``neutral`` comes in."""
    if not type_.ndim:
        return op.full_like(x, const(neutral, type_.dtype))
    widths = tuple((step, 0) if a == axis else (0, 0) for a in range(type_.ndim))
    longer = op.nn.pad(x, const(neutral, type_.dtype), pad_width=widths)
    return op.strided_slice(longer, begin=(0,), end=(type_.shape[axis],), axes=(axis,))


@_defines("searchsorted")
def searchsorted(call: Call) -> Expr | None:
    """The number of elements that come before each value; NaN comes last."""
    attrs: Any = call.attrs
    line, values = call.args
    kept = _type(line)
    if kept.ndim != 1 and _type(values).ndim != kept.ndim:
        return None
    rows = line if kept.ndim == 1 else op.expand_dims(line, axis=kept.ndim - 1)
    each = op.expand_dims(values, axis=_type(values).ndim)
    before = op.less_equal(rows, each) if attrs.right else op.less(rows, each)
    if kept.dtype.is_float:
        # NaN is after every number, and before itself only on the right.
        last = op.isnan(each) if attrs.right else op.logical_and(
            op.isnan(each), op.logical_not(op.isnan(rows)))
        before = op.logical_or(before, last)
    return op.sum(op.cast(before, dtype=attrs.dtype), axis=(-1,))


@_defines("invert_permutation")
def invert_permutation(call: Call) -> Expr | None:
    x = call.args[0]
    type_ = _type(x)
    positions = op.arange(start=0, stop=type_.shape[0], step=1, dtype=type_.dtype)
    return op.scatter_elements(op.zeros_like(x), x, positions, axis=0)


@_defines("sparse_to_dense")
def sparse_to_dense(call: Call) -> Expr | None:
    attrs: Any = call.attrs
    indices, values, default = call.args
    rank, shape = _type(indices).ndim, attrs.output_shape
    tuples = op.transpose(indices) if rank == 2 else op.expand_dims(indices, axis=0)
    if rank == 0:
        tuples, values = op.reshape(indices, newshape=(1, 1)), op.reshape(values, newshape=(1,))
    elif _type(values).ndim == 0:
        values = op.broadcast_to(values, shape=(_type(indices).shape[0],))
    whole = op.full(default, shape=shape, dtype=_type(call).dtype)
    return op.scatter_nd(whole, tuples, values)


def _dense(data: Expr, columns: Expr, starts: Expr, shape: Sequence[Any]) -> Expr:
    """The matrix of compressed rows: the row of an element is the number of starts up to it."""
    count = _type(data).shape[0]
    positions = op.arange(start=0, stop=count, step=1, dtype=int64)
    ends = op.strided_slice(op.cast(starts, dtype=int64), begin=(1,), end=(2**31,), axes=(0,))
    passed = op.less_equal(op.expand_dims(ends, axis=0), op.expand_dims(positions, axis=1))
    rows = op.sum(op.cast(passed, dtype=int64), axis=(1,))
    tuples = op.stack([rows, op.cast(columns, dtype=int64)], axis=0)
    zeros = op.zeros(shape=tuple(shape), dtype=_type(data).dtype)
    return op.scatter_nd(zeros, tuples, data, mode="add")


@_defines("nn.sparse_add")
def sparse_add(call: Call) -> Expr | None:
    dense, data, columns, starts = call.args
    return op.add(dense, _dense(data, columns, starts, _type(dense).shape)) \
        if _type(data).ndim == 1 else None


@_defines("nn.sparse_dense")
def sparse_dense(call: Call) -> Expr | None:
    attrs: Any = call.attrs
    dense, data, columns, starts = call.args
    if _type(data).ndim != 1 or not _static(call):
        return None
    rows = int(_type(starts).shape[0]) - 1  # type: ignore[arg-type]
    inner = _type(dense).shape[-1]
    matrix = _dense(data, columns, starts, (rows, inner))
    if attrs.sparse_lhs:
        return op.nn.matmul(matrix, dense, transpose_b=True)
    return op.nn.matmul(dense, matrix, transpose_b=True)


@_defines("gcd")
def gcd(call: Call) -> Expr | None:
    """Euclid's algorithm; consecutive Fibonacci numbers take the most steps."""
    result = _type(call)
    if result.dtype.bits > 32:
        return None
    a, b = (op.abs(x) if result.dtype.code == "int" else x for x in call.args)
    for _ in range(int(result.dtype.bits * 1.45) + 1):
        rest = op.floor_mod(a, op.maximum(b, const(1, result.dtype)))
        is_done = op.equal(b, const(0, result.dtype))
        a, b = op.where(is_done, a, b), op.where(is_done, b, rest)
    return a
