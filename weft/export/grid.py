"""Values over a grid of indices: arrays where data has no part in them, else expressions.

A grid value has one axis for each axis of the grid, of its size or 1; the shapes broadcast.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from weft.ir import DType, get_op
from weft.ir.dtype import int64
from weft.ir.expr import Constant, Expr

Grid: TypeAlias = "np.ndarray | Expr"


def as_expr(value: Grid, dtype: DType) -> Expr:
    """A value as an expression."""
    if isinstance(value, Expr):
        return value
    return Constant(np.asarray(value).astype(dtype.numpy))


def unary(name: str, numpy: Callable[[np.ndarray], np.ndarray], value: Grid, _: DType) -> Grid:
    """An operator of one value."""
    return np.asarray(numpy(value)) if isinstance(value, np.ndarray) else get_op(name)(value)


def binary(name: str, parts: Sequence[Grid], dtype: DType) -> Grid:
    """An operator of two values of ``dtype``."""
    op = get_op(name)
    if all(isinstance(p, np.ndarray) for p in parts) and op.reference is not None:
        with np.errstate(all="ignore"):
            return np.asarray(op.reference(*parts))
    return op(*(as_expr(p, dtype) for p in parts))


def read(source: Expr, shape: tuple[int, ...], indices: Sequence[Grid], ndim: int) -> Grid | None:
    """``source`` of ``shape`` at one index per axis, over a grid of ``ndim`` axes.

    Indices out of range, which guards around the read make harmless, are clamped. ``None`` for an
    empty tensor, of which there is nothing to read.
    """
    if 0 in shape:
        return None
    if all(isinstance(i, np.ndarray) for i in indices):
        found = _sliced(source, shape, indices, ndim)  # type: ignore[arg-type]
        if found is not None:
            return found
    return _gathered(source, shape, indices)


def _sliced(source: Expr, shape: tuple[int, ...], indices: Sequence[np.ndarray], ndim: int
            ) -> Expr | None:
    """The read as a slice and a transpose, if each index runs along an axis of its own."""
    steps = [_step_of(index, size) for index, size in zip(indices, shape, strict=True)]
    if None in steps:
        return None
    known = [s for s in steps if s is not None]
    along = [axis for axis, *_ in known if axis is not None]
    if len(set(along)) != len(along):
        return None
    cut = source
    if any((begin, count, step) != (0, size, 1)
           for (_, begin, count, step), size in zip(known, shape, strict=True)):
        ends = [begin + (count - 1) * step + (1 if step > 0 else -1)
                for _, begin, count, step in known]
        ends = [e if e >= 0 else -(2**62) for e in ends]
        cut = get_op("strided_slice")(source, begin=tuple(s[1] for s in known), end=tuple(ends),
                                      strides=tuple(s[3] for s in known))
    order = sorted(range(len(known)), key=lambda i: _axis_key(known[i][0]))
    if order != list(range(len(order))):
        cut = get_op("transpose")(cut, axes=tuple(order))
    sizes: list[int] = [1] * ndim
    for axis, _, count, _ in known:
        if axis is not None:
            sizes[axis] = count
    return get_op("reshape")(cut, newshape=tuple(sizes), allowzero=True)


def _axis_key(axis: int | None) -> int:
    return -1 if axis is None else axis


def _step_of(index: np.ndarray, size: int) -> tuple[int | None, int, int, int] | None:
    """Grid axis, first index, count and step of an index that is in range and regular."""
    if not index.size or index.min() < 0 or index.max() >= size:
        return None
    axes = [i for i, n in enumerate(index.shape) if n > 1]
    line = index.reshape(-1)
    if not axes:
        return None, int(line[0]), 1, 1
    step = int(line[1] - line[0])
    if len(axes) > 1 or step == 0 or not (np.diff(line) == step).all():
        return None
    return axes[0], int(line[0]), line.size, step


def _gathered(source: Expr, shape: tuple[int, ...], indices: Sequence[Grid]) -> Expr:
    strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    offsets = [_offset(*row) for row in zip(indices, shape, strides, strict=True)]
    flat: Grid = functools.reduce(lambda a, b: binary("add", [a, b], int64), offsets)
    line = get_op("reshape")(source, newshape=(-1,))
    return get_op("take")(line, as_expr(flat, int64), axis=0)


def _offset(index: Grid, size: int, stride: int) -> Grid:
    if isinstance(index, np.ndarray):
        return np.clip(index, 0, size - 1) * stride
    inside = get_op("minimum")(get_op("maximum")(index, as_expr(np.asarray(0), int64)),
                               as_expr(np.asarray(size - 1), int64))
    return get_op("multiply")(inside, as_expr(np.asarray(stride), int64))
