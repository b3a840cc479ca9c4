"""The argument of converters: a node of the traced graph, with helpers to build expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from weft import op
from weft.frontend.common.node import NodeBase
from weft.frontend.common.random_keys import RandomKeys
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.torch.data_sizes import DataSizes
from weft.frontend.torch.dtypes import dtype_of
from weft.ir import Constant, Dim, DType, Expr, Span, SymDim, broadcast_dims
from weft.support.dataclass import dataclass


@dataclass(frozen=True)
class Node(NodeBase):
    """A node of the traced graph.

    ``traced`` and ``result`` hold torch's values for the arguments and the result: fake tensors
    (metadata without data) and Python values. ``keys`` gives random operators their keys, and
    ``sizes`` names to sizes that data determines. ``fields`` are those of a tuple that are read;
    ``None``: any.
    """

    op: str
    span: Span
    traced: tuple[Any, ...]
    result: Any
    keys: RandomKeys | None = None
    sizes: DataSizes | None = None
    fields: frozenset[int] | None = None

    def random_key(self) -> Expr:
        """A key for a random operator; in a region of ``torch.compile`` torch draws the numbers."""
        if self.keys is None:
            raise self.unsupported("random numbers in a branch, a loop or a compiled region")
        return self.keys.next(self.span)

    def positions(self, mask: Expr) -> Expr:
        """The indices of the nonzero elements of ``mask``, (count, rank)."""
        return self._data_sizes().positions(mask, self.span)

    def unbounded(self, x: Expr) -> Expr:
        """``x``, with symbols for its unknown sizes, for which there is no bound."""
        return self._data_sizes().unbounded(x)

    def _data_sizes(self) -> DataSizes:
        if self.sizes is None:
            raise self.unsupported("a data-dependent size in a compiled region")
        return self.sizes

    @property
    def limit(self) -> int | None:
        """The largest value that torch knows for the result, an integer; ``None``: no bound."""
        if not isinstance(self.result, torch.SymInt):
            return None
        inner = self.result.node
        high = inner.shape_env.bound_sympy(inner.expr).upper
        return int(high) if high.is_Integer else None

    def broadcast_shape(self, *tensors: Expr) -> tuple[Any, ...]:
        return broadcast_shape(*map(shape_in, tensors))

    def constant(self, value: Any, dtype: DType | str) -> Constant:
        """A constant of ``dtype``; integers outside its range wrap around, as in torch."""
        kind = DType.of(dtype)
        if kind.is_int and isinstance(value, (int, float)):
            if not math.isfinite(value):
                raise self.unsupported("a non-finite value for an integer dtype", got=str(value))
            value = wrapped(int(value), kind)
        with np.errstate(over="ignore"):  # narrow floats may overflow to infinity
            return Constant(np.asarray(value, kind.numpy), span=self.span)

    def scalar_like(self, value: float | bool | SymDim, other: Expr) -> Expr:
        """A number, or a symbolic size, as a tensor of rank 0 with the dtype of ``other``."""
        dtype = dtype_in(other)
        return self.size(value, dtype) if isinstance(value, SymDim) else self.constant(value, dtype)

    def size(self, value: SymDim, dtype: DType) -> Expr:
        """A symbolic size as a tensor of rank 0."""
        one = self.call(op.arange, start=value, stop=value + 1, step=1, dtype="int64")
        return self.cast(self.call(op.squeeze, one, axis=(0,)), dtype)

    def dtype(self, index: int = 0) -> DType:
        """The dtype of the result, or of one of several results."""
        result = self.result[index] if isinstance(self.result, (tuple, list)) else self.result
        return dtype_of(result.dtype, f"the result of {self.op}", self.span)

    def dtype_named(self, dtype: torch.dtype) -> DType:
        """The weft dtype of a torch dtype among the arguments."""
        return dtype_of(dtype, f"the result of {self.op}", self.span)

    def cast(self, x: Expr, dtype: DType | str) -> Expr:
        """Cast ``x`` to ``dtype``, if it has another dtype."""
        wanted = DType.of(dtype)
        return x if dtype_in(x) == wanted else self.call(op.cast, x, dtype=wanted.name)

    def tensor(self, value: Any, dtype: DType | str) -> Expr:
        """A tensor or a Python number as a tensor of ``dtype``."""
        if isinstance(value, SymDim):
            return self.size(value, DType.of(dtype))
        return self.cast(value, dtype) if isinstance(value, Expr) else self.constant(value, dtype)

    def reshape(self, x: Expr, shape: Sequence[Any]) -> Expr:
        """Reshape ``x``, if it has another shape."""
        target = tuple(shape)
        if target == shape_in(x):
            return x
        return self.call(op.reshape, x, newshape=target, allowzero=0 in target)

    def broadcast(self, x: Expr, shape: Sequence[int]) -> Expr:
        target = tuple(shape)
        return x if target == shape_in(x) else self.call(op.broadcast_to, x, shape=target)

    def slice(self, x: Expr, axis: int, begin: Dim, end: Dim, step: int = 1) -> Expr:
        """Elements ``begin``, ``begin + step``, … below ``end``, all within the axis."""
        if (begin, end, step) == (0, shape_in(x)[axis], 1):
            return x
        return self.call(op.strided_slice, x, begin=(begin,), end=(end,), strides=(step,),
                         axes=(axis,))


def wrapped(value: int, dtype: DType) -> int:
    """``value`` modulo 2**bits, in the range of the integer ``dtype``."""
    lowest = -(1 << (dtype.bits - 1)) if dtype.code == "int" else 0
    return (value - lowest) % (1 << dtype.bits) + lowest


def broadcast_shape(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that all shapes broadcast to; ``ValueError`` if they do not."""
    if not is_symbolic(*(size for shape in shapes for size in shape)):
        return np.broadcast_shapes(*map(tuple, shapes))
    rank = max(map(len, shapes))
    result: list[Any] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate((1,) * (rank - len(shape)) + tuple(shape)):
            dim = broadcast_dims(result[axis], size)
            if dim is None:
                raise ValueError(f"sizes {result[axis]} and {size} do not broadcast")
            result[axis] = dim
    return tuple(result)


def is_symbolic(*sizes: Any) -> bool:
    """Whether a size is a symbolic dimension."""
    return any(isinstance(size, SymDim) for size in sizes)


def rank_of(x: Expr) -> int:
    return len(shape_in(x))


def size_of(x: Expr) -> Any:
    return math.prod(shape_in(x))


def axis_of(axis: int, rank: int) -> int:
    """``axis`` as a non-negative number; a scalar counts as rank 1, as in torch."""
    return axis % max(rank, 1)


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; all axes for ``None`` and for an empty sequence."""
    if axes is None or (not isinstance(axes, int) and not len(axes)):
        return tuple(range(rank))
    listed = (axes,) if isinstance(axes, int) else axes
    return tuple(sorted(axis_of(a, rank) for a in listed))
