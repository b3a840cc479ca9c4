"""Arithmetic for special functions, on expressions and on NumPy arrays.

Each function is written once, in float64, over ``Arithmetic``: the compute of its operator uses it
on expressions, the reference on arrays. Fitted polynomials replace functions that neither offers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft import te
from weft.ir.dtype import float64
from weft.tir.expr import PrimExpr, all_of, const, select
from weft.topi import broadcast, elementwise


class Arithmetic(Protocol):
    """The operations that differ between expressions and arrays."""

    def exp(self, x: Any) -> Any: ...

    def log(self, x: Any) -> Any: ...

    def sqrt(self, x: Any) -> Any: ...

    def sin(self, x: Any) -> Any: ...

    def cos(self, x: Any) -> Any: ...

    def erf(self, x: Any) -> Any: ...

    def pow(self, x: Any, y: Any) -> Any: ...

    def abs(self, x: Any) -> Any: ...

    def floor(self, x: Any) -> Any: ...

    def round(self, x: Any) -> Any: ...

    def choose(self, condition: Any, yes: Any, no: Any) -> Any: ...

    def equal(self, x: Any, y: Any) -> Any: ...

    def both(self, x: Any, y: Any) -> Any: ...


Function = Callable[..., Any]


class _Expressions:
    """Arithmetic on float64 expressions; Python numbers become constants."""

    def exp(self, x: PrimExpr) -> PrimExpr:
        return te.exp(x)

    def log(self, x: PrimExpr) -> PrimExpr:
        return te.log(x)

    def sqrt(self, x: PrimExpr) -> PrimExpr:
        return te.sqrt(x)

    def sin(self, x: PrimExpr) -> PrimExpr:
        return te.sin(x)

    def cos(self, x: PrimExpr) -> PrimExpr:
        return te.cos(x)

    def erf(self, x: PrimExpr) -> PrimExpr:
        return te.erf(x)

    def pow(self, x: Any, y: Any) -> PrimExpr:
        return te.pow(_number(x), _number(y))

    def abs(self, x: PrimExpr) -> PrimExpr:
        return te.abs(x)

    def floor(self, x: PrimExpr) -> PrimExpr:
        return te.floor(x)

    def round(self, x: PrimExpr) -> PrimExpr:
        return te.round(x)

    def choose(self, condition: PrimExpr, yes: Any, no: Any) -> PrimExpr:
        return select(condition, _number(yes), _number(no))

    def equal(self, x: PrimExpr, y: Any) -> PrimExpr:
        return x.equal(_number(y))

    def both(self, x: PrimExpr, y: PrimExpr) -> PrimExpr:
        return all_of(x, y)


def _number(x: Any) -> PrimExpr:
    return x if isinstance(x, PrimExpr) else const(float(x), float64)


class _Arrays:
    """Arithmetic on NumPy arrays of float64."""

    def exp(self, x: Any) -> Any:
        return np.exp(x)

    def log(self, x: Any) -> Any:
        return np.log(x)

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def sin(self, x: Any) -> Any:
        return np.sin(x)

    def cos(self, x: Any) -> Any:
        return np.cos(x)

    def abs(self, x: Any) -> Any:
        return np.abs(x)

    def floor(self, x: Any) -> Any:
        return np.floor(x)

    def round(self, x: Any) -> Any:
        return np.rint(x)

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def equal(self, x: Any, y: Any) -> Any:
        return np.equal(x, y)

    def both(self, x: Any, y: Any) -> Any:
        return np.logical_and(x, y)

    def erf(self, x: Any) -> Any:
        return np.vectorize(math.erf, otypes=[np.float64])(x)

    def pow(self, x: Any, y: Any) -> Any:
        return np.power(np.float64(x), np.float64(y))


EXPRESSIONS: Arithmetic = _Expressions()
ARRAYS: Arithmetic = _Arrays()


def polynomial(coefficients: Sequence[float], t: Any) -> Any:
    """Polynomial evaluation by Horner's scheme; highest power first."""
    total = t * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        total = total * t + c
    return total


def on(low: float, high: float, coefficients: Sequence[float], u: Any) -> Any:
    """A fitted polynomial in ``u``, scaled from [low, high] to [-1, 1]."""
    # tools/fit_special_functions.py fits in this variable, of which no power exceeds 1.
    return polynomial(coefficients, (u - (low + high) / 2) * (2 / (high - low)))


def slope_on(low: float, high: float, coefficients: Sequence[float], u: Any) -> Any:
    """The derivative of ``on`` by ``u``."""
    degree, scale = len(coefficients) - 1, 2 / (high - low)
    slopes = [c * (degree - k) * scale for k, c in enumerate(coefficients[:-1])]
    return on(low, high, slopes, u)


def of_elements(function: Function, tensors: Sequence[te.Tensor], name: str) -> te.Tensor:
    """``function(arithmetic, *elements)`` of broadcast tensors of one float dtype.

    Computed in float64 and rounded once to the dtype.
    """
    dtype = tensors[0].dtype

    def element(*values: PrimExpr) -> PrimExpr:
        wide = [v.astype(float64) for v in values]
        return function(EXPRESSIONS, *wide).astype(dtype)

    if len(tensors) == 1:
        return elementwise.apply(tensors[0], element, name)
    return broadcast.apply(tuple(tensors), element, name)


def on_arrays(function: Function, *arrays: Any) -> np.ndarray:
    """The NumPy reference of ``of_elements``."""
    dtype = np.asarray(arrays[0]).dtype
    with np.errstate(all="ignore"):
        return np.asarray(function(ARRAYS, *(np.asarray(a, np.float64) for a in arrays)), dtype)
