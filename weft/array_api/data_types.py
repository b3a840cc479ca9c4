"""Dtypes: conversion, promotion and limits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from weft.eager.dtypes import as_dtype, dtype
from weft.eager.functions.creation import tensor
from weft.eager.functions.shape import expand
from weft.eager.promotion import dtype_of_number, promote_types
from weft.eager.tensor import Tensor
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, OptionError


@dataclass(frozen=True)
class FloatLimits:
    """What ``finfo`` returns."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype
    resolution: float  # as torch has it: of decimal digits

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return self.smallest_normal


@dataclass(frozen=True)
class IntLimits:
    """What ``iinfo`` returns."""

    bits: int
    max: int
    min: int
    dtype: dtype


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point dtype, or of that of an array; those of complex parts."""
    found = _dtype_of(type).to_real()
    if not found.is_floating_point:
        raise InvalidInputError("finfo takes a floating-point dtype", got=repr(found))
    known: Any = ml_dtypes.finfo(found.numpy)
    return FloatLimits(found.ir.bits, float(known.eps), float(known.max), float(known.min),
                       float(known.smallest_normal), found, float(known.resolution))


def iinfo(type: Any, /) -> IntLimits:
    """The limits of an integer dtype, or of that of an array."""
    found = _dtype_of(type)
    if found.rank != 1:
        raise InvalidInputError("iinfo takes an integer dtype", got=repr(found))
    known = np.iinfo(found.numpy)
    return IntLimits(found.ir.bits, int(known.max), int(known.min), found)


def _dtype_of(value: Any) -> dtype:
    return value.dtype if isinstance(value, Tensor) else as_dtype(value)


# kind -> whether a dtype is of it
KINDS = {
    "bool": lambda d: d.rank == 0,
    "signed integer": lambda d: d.rank == 1 and d.is_signed,
    "unsigned integer": lambda d: d.rank == 1 and not d.is_signed,
    "integral": lambda d: d.rank == 1,
    "real floating": lambda d: d.rank == 2,
    "complex floating": lambda d: d.is_complex,
    "numeric": lambda d: d.rank > 0,
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: one by name, another dtype, or one of several in a tuple."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    found = as_dtype(dtype)
    if not isinstance(kind, str):
        return found is as_dtype(kind)
    if kind not in KINDS:
        raise OptionError("unknown kind of dtypes", got=repr(kind), expected=", ".join(KINDS))
    return KINDS[kind](found)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion may convert the dtype of the first to the second."""
    first, second = _dtype_of(from_), as_dtype(to)
    if first.rank != second.rank and (first.rank == 0 or second.rank == 0):
        return first.rank == 0 and second.rank == 0
    try:
        return promote_types(first, second) is second
    except OptionError:
        return False


def result_type(*arrays_and_dtypes: Any) -> dtype:
    """The dtype to which arrays, dtypes and Python numbers are promoted.

    Numbers take the dtype of the arrays, unless they are of a higher kind.
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, bool | int | float | complex)]
    found: dtype | None = None
    for one in arrays_and_dtypes:
        if not isinstance(one, bool | int | float | complex):
            own = _dtype_of(one)
            found = own if found is None else promote_types(found, own)
    for number in numbers:
        own = dtype_of_number(number)
        if found is None or own.rank > found.rank:
            found = own if found is None or found.rank < 2 else found.to_complex()
    if found is None:
        raise InvalidInputError("result_type got no arrays and no dtypes")
    return found


def astype(
    x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None
) -> Tensor:
    """The elements in another dtype; ``x`` itself if nothing changes and ``copy`` is false."""
    found = x.to(as_dtype(dtype), device=device)
    return x.clone() if found is x and copy else found


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays in their common shape."""
    shape = np.broadcast_shapes(*[tuple(a.shape) for a in arrays])
    return [expand(a, shape) for a in arrays]


def promoted(*values: Any) -> tuple[Any, ...]:
    """Arrays and numbers as arrays of their common dtype."""
    wanted = result_type(*values)
    return tuple([v.to(wanted) if isinstance(v, Tensor) else tensor(v, wanted) for v in values])
