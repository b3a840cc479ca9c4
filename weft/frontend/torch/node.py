"""What a converter sees: one node of the traced graph, and the means to build expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft import op
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.typed import tensor_type, typed
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr, Tuple, TupleGetItem
from weft.ir.op import Op
from weft.ir.span import Span
from weft.support.errors import UnsupportedModelError


@dataclass(frozen=True)
class Node:
    """``traced`` holds what torch knows of the arguments, ``result`` what it knows of the result:

    tensors without data, of which the dtype matters here.
    """

    op: str
    span: Span
    traced: tuple[Any, ...]
    result: Any

    def call(self, operator: Op, *args: Any, **attrs: Any) -> Expr:
        """A typed call of ``operator`` with the span of this node, folded if it is small."""
        return typed(operator(*args, span=self.span, **attrs))

    def tuple_call(self, operator: Op, parts: Sequence[Expr], **attrs: Any) -> Expr:
        """As ``call``, for operators that take one tuple of tensors."""
        return self.call(operator, Tuple(tuple(parts), span=self.span), **attrs)

    def field(self, value: Expr, index: int) -> Expr:
        return typed(TupleGetItem(value, index, span=self.span))

    def constant(self, value: Any, dtype: DType | str) -> Constant:
        """Numbers beyond the range of an integer dtype keep their lowest bits, as in torch."""
        kind = DType.of(dtype)
        if kind.is_int and isinstance(value, (int, float)):
            if not math.isfinite(value):
                raise self.unsupported("a number that is no integer", got=str(value))
            value = wrapped(int(value), kind)
        with np.errstate(over="ignore"):  # infinities of narrow floats
            return Constant(np.asarray(value, kind.numpy), span=self.span)

    def scalar_like(self, value: float | bool, other: Expr) -> Expr:
        """A constant of rank 0 with the dtype of ``other``."""
        return self.constant(value, dtype_in(other))

    def dtype(self, index: int = 0) -> DType:
        """The dtype of the result, or of one of several results."""
        result = self.result[index] if isinstance(self.result, (tuple, list)) else self.result
        return dtype_of(result.dtype, f"the result of {self.op}", self.span)

    def dtype_named(self, dtype: torch.dtype) -> DType:
        """A torch dtype among the arguments."""
        return dtype_of(dtype, f"the result of {self.op}", self.span)

    def cast(self, x: Expr, dtype: DType | str) -> Expr:
        """``x`` in another dtype; nothing where it has that one."""
        wanted = DType.of(dtype)
        return x if dtype_in(x) == wanted else self.call(op.cast, x, dtype=wanted.name)

    def tensor(self, value: Any, dtype: DType | str) -> Expr:
        """A tensor or a Python number as a tensor of ``dtype``."""
        return self.cast(value, dtype) if isinstance(value, Expr) else self.constant(value, dtype)

    def reshape(self, x: Expr, shape: Sequence[int]) -> Expr:
        """``x`` under another shape of as many elements."""
        target = tuple(shape)
        if target == shape_in(x):
            return x
        return self.call(op.reshape, x, newshape=target, allowzero=0 in target)

    def broadcast(self, x: Expr, shape: Sequence[int]) -> Expr:
        target = tuple(shape)
        return x if target == shape_in(x) else self.call(op.broadcast_to, x, shape=target)

    def transpose(self, x: Expr, axes: Sequence[int]) -> Expr:
        order = tuple(axes)
        return x if order == tuple(range(len(order))) else self.call(op.transpose, x, axes=order)

    def slice(self, x: Expr, axis: int, begin: int, end: int, step: int = 1) -> Expr:
        """Positions ``begin``, ``begin + step``, … below ``end``, all within the axis."""
        if (begin, end, step) == (0, shape_in(x)[axis], 1):
            return x
        return self.call(op.strided_slice, x, begin=(begin,), end=(end,), strides=(step,),
                         axes=(axis,))

    def unsupported(self, what: str, **details: Any) -> UnsupportedModelError:
        """The error to raise for a use of the operator that weft does not have."""
        return UnsupportedModelError(f"{self.op}: {what}", where=self.span, **details)


def wrapped(value: int, dtype: DType) -> int:
    """The integer of ``dtype`` that has the lowest bits of ``value``."""
    lowest = -(1 << (dtype.bits - 1)) if dtype.code == "int" else 0
    return (value - lowest) % (1 << dtype.bits) + lowest


def shape_in(x: Expr) -> tuple[int, ...]:
    """The sizes of a tensor; all are known when converters run."""
    return tensor_type(x).concrete_shape


def dtype_in(x: Expr) -> DType:
    return tensor_type(x).dtype


def rank_of(x: Expr) -> int:
    return len(shape_in(x))


def size_of(x: Expr) -> int:
    return math.prod(shape_in(x))


def axis_of(axis: int, rank: int) -> int:
    """``axis`` counted from the front; scalars count as having one axis, as torch has it."""
    return axis % max(rank, 1)


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; all of them for none."""
    if axes is None or (not isinstance(axes, int) and not len(axes)):
        return tuple(range(rank))
    listed = (axes,) if isinstance(axes, int) else axes
    return tuple(sorted(axis_of(a, rank) for a in listed))
