"""Arithmetic of a traced graph on sizes, as functions of symbolic dimensions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch

from weft.ir.shape import AnyDim, Dim, SymDim, dim_floordiv, dim_max, dim_min, dim_mul, dim_sub


def applied(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """The result of a function on numbers and sizes; ``TypeError`` where it takes no sizes."""
    if not any(isinstance(argument, SymDim) for argument in arguments):
        return function(*arguments)
    result = _OF_SIZES.get(function, function)(*arguments)
    if isinstance(result, AnyDim):
        raise TypeError(f"{function.__name__} of {', '.join(map(str, arguments))}")
    return result


def _remainder(a: Dim, b: Dim) -> Dim:
    return dim_sub(a, dim_mul(b, dim_floordiv(a, b)))


def _no_comparison(*_sizes: Any) -> bool:
    raise TypeError("a comparison of symbolic sizes")


_OF_SIZES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.sym_max: lambda *sizes: reduce(dim_max, sizes),
    torch.sym_min: lambda *sizes: reduce(dim_min, sizes),
    operator.mod: _remainder,
    operator.eq: _no_comparison,
    operator.ne: _no_comparison,
}
