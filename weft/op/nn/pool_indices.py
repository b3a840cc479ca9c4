"""Positions of the maxima in pooling windows, and gradients that use these positions.

A position is an index into the elements of one channel in row-major order; data is (N, C, axes…).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import RelationContext, Shape, TensorType, attr, dim_product, infer_expr, int64, linear
from weft.ir.expr import Call, Constant, Expr, const
from weft.ir.op import Case, Op, OpPattern, define_op, op_case
from weft.op.gradients import fixed_sizes, known_shape, scalar, typed_zeros
from weft.op.nn.adaptive_pool import (
    AdaptivePool1DAttrs,
    AdaptivePool2DAttrs,
    AdaptivePool3DAttrs,
    AdaptivePoolAttrs,
    window_bounds,
)
from weft.op.nn.conv import positive
from weft.op.nn.pool import (
    MaxPool1DAttrs,
    MaxPool2DAttrs,
    MaxPool3DAttrs,
    PoolAttrs,
    expect_windows,
    layout_of_images,
)
from weft.op.relations import (
    checked,
    expect_number,
)
from weft.support.dataclass import dataclass
from weft.topi.nn import pool_indices as topi
from weft.topi.nn.pool import PoolWindow, axis_windows
from weft.topi.nn.window import window_count, window_count_up

_SIZE_DOC = "spatial sizes of the pooled data"
# Per element: the taps of one window along each axis.
_Taps = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class MaxPool1DIndicesGradAttrs(MaxPool1DAttrs):
    size: tuple[int] = attr(doc=_SIZE_DOC, check=positive, expected="a number >= 1")


@dataclass(frozen=True, kw_only=True)
class MaxPool2DIndicesGradAttrs(MaxPool2DAttrs):
    size: tuple[int, int] = attr(doc=_SIZE_DOC, check=positive, expected="two numbers >= 1")


@dataclass(frozen=True, kw_only=True)
class MaxPool3DIndicesGradAttrs(MaxPool3DAttrs):
    size: tuple[int, int, int] = attr(doc=_SIZE_DOC, check=positive, expected="three numbers >= 1")


def _expect_plain(ctx: RelationContext, layout: str, spatial: str) -> None:
    if layout != f"NC{spatial}":
        ctx.fail("positions index the unblocked layout", expected=f"NC{spatial}",
                 got=layout)


def _relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(PoolAttrs)
    spatial = attrs.window.spatial
    _expect_plain(ctx, attrs.layout, spatial)
    shape = expect_windows(ctx, attrs, layout_of_images(ctx, source, spatial), source)
    ctx.output(TensorType(shape, int64))
    return True


def _adaptive_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(AdaptivePoolAttrs)
    _expect_plain(ctx, attrs.layout, attrs.spatial)
    ctx.expect_rank(0, source, 2 + len(attrs.output_size))
    for axis, size in enumerate(source.shape[2:], start=2):
        if size == 0:
            ctx.fail("cannot pool an empty axis", arg=0, axis=axis, expected="a size of 1 or more",
                     got=0)
    ctx.output(TensorType((*source.shape[:2], *attrs.output_size), int64))
    return True


def _grad_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    grad, indices = types
    attrs: Any = ctx.attrs_as(PoolAttrs)
    spatial = attrs.window.spatial
    _expect_plain(ctx, attrs.layout, spatial)
    ctx.expect_float(0, grad)
    ctx.expect_int(1, indices)
    ctx.expect_rank(0, grad, 2 + len(spatial))
    ctx.expect_rank(1, indices, grad.ndim)
    data = TensorType((*grad.shape[:2], *attrs.size), grad.dtype)
    _expect_shape(ctx, 0, grad, expect_windows(ctx, attrs, layout_of_images(ctx, data, spatial),
                                               data), "the gradient does not fit the windows")
    _expect_shape(ctx, 1, indices, grad.shape, "expected one position per window")
    ctx.output(data)
    return True


def _expect_shape(ctx: RelationContext, arg: int, type_: TensorType, shape: Shape, what: str
                  ) -> None:
    for axis, (got, size) in enumerate(zip(type_.shape, shape, strict=True)):
        ctx.expect_dim(arg, axis, got, size, what)


def _window_taps(window: PoolWindow, position: Sequence[int], sizes: Sequence[int]) -> _Taps:
    """The indices along each axis that a window reads in the data."""
    taps = []
    for axis, i, size in zip(axis_windows(window), position, sizes, strict=True):
        start = i * axis.stride - axis.before
        taps.append([t for t in range(start, start + axis.span, axis.step) if 0 <= t < size])
    return taps


def _adaptive_taps(counts: Sequence[int], sizes: Sequence[int]
                   ) -> Iterator[tuple[tuple[int, ...], _Taps]]:
    bounds = [list(window_bounds(s, n)) for s, n in zip(sizes, counts, strict=True)]
    for position in np.ndindex(*counts):
        yield position, [range(*bounds[axis][i]) for axis, i in enumerate(position)]


def _first_largest(x: np.ndarray, taps: _Taps) -> np.ndarray:
    """The position of the first maximum among all combinations of ``taps``."""
    sizes = x.shape[2:]
    flat = np.array([np.ravel_multi_index(tap, sizes) for tap in itertools.product(*taps)])
    return flat[x.reshape(*x.shape[:2], math.prod(sizes))[..., flat].argmax(axis=-1)]


def _reference(x: np.ndarray, attrs: PoolAttrs, counts: Sequence[int]) -> np.ndarray:
    result = np.zeros((*x.shape[:2], *counts), np.int64)
    for position in np.ndindex(*counts):
        taps = _window_taps(attrs.window, position, x.shape[2:])
        result[(..., *position)] = _first_largest(x, taps)
    return result


def _adaptive_reference(x: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    result = np.zeros((*x.shape[:2], *counts), np.int64)
    for position, taps in _adaptive_taps(counts, x.shape[2:]):
        result[(..., *position)] = _first_largest(x, taps)
    return result


def _grad_reference(grad: np.ndarray, indices: np.ndarray, attrs: Any) -> np.ndarray:
    """Each window adds its gradient at its position, if that is one of its taps."""
    sizes = attrs.size
    result = np.zeros((*grad.shape[:2], math.prod(sizes)), np.float64)
    for position in np.ndindex(*grad.shape[2:]):
        taps = _window_taps(attrs.window, position, sizes)
        for tap in itertools.product(*taps):
            here = np.ravel_multi_index(tap, sizes)
            is_chosen = indices[(..., *position)] == here
            result[..., here] += np.where(is_chosen, grad[(..., *position)], 0)
    return result.reshape(*grad.shape[:2], *sizes).astype(grad.dtype)


def _window_counts(x: np.ndarray, attrs: PoolAttrs) -> list[int]:
    """The number of windows along each axis of data."""
    counts = []
    for axis, size in zip(axis_windows(attrs.window), x.shape[2:], strict=True):
        padded = size + axis.before + axis.after
        if axis.ceil_mode:
            counts.append(min(window_count_up(padded, axis.span, axis.stride),
                              window_count(size + axis.before, 1, axis.stride)))
        else:
            counts.append(window_count(padded, axis.span, axis.stride))
    return counts


def _define(axes: int, attrs_type: type[PoolAttrs], cases: Sequence[Case]) -> Op:
    def run(x: te.Tensor, attrs: PoolAttrs) -> te.Tensor:
        return topi.max_pool_indices(x, attrs.window)

    def reference(x: np.ndarray, **values: Any) -> np.ndarray:
        attrs = attrs_type(**values)
        return _reference(x, attrs, _window_counts(x, attrs))

    run.__doc__ = ("The position (int64) of the first largest element of each window.\n\n"
                   "Windows are those of ``nn.max_pool``; NaN is larger than all numbers.")
    made = define_op(f"nn.max_pool{axes}d_indices", attrs=attrs_type, inputs=("x",),
                   relation=checked(expect_number, _relation), pattern=OpPattern.OPAQUE,
                   level=2)(run)
    made.spec(reference, *cases)
    return made


def _define_adaptive(axes: int, attrs_type: type[AdaptivePoolAttrs], cases: Sequence[Case]) -> Op:
    def run(x: te.Tensor, attrs: AdaptivePoolAttrs) -> te.Tensor:
        return topi.adaptive_max_pool_indices(x, attrs.output_size)

    run.__doc__ = ("The position (int64) of the first largest element of each window.\n\n"
                   "Windows are those of ``nn.adaptive_max_pool``.")
    made = define_op(f"nn.adaptive_max_pool{axes}d_indices", attrs=attrs_type, inputs=("x",),
                   relation=checked(expect_number, _adaptive_relation),
                   pattern=OpPattern.OPAQUE, level=10)(run)
    made.spec(lambda x, **values: _adaptive_reference(x, attrs_type(**values).output_size), *cases)
    return made


def elements_at(x: Expr, indices: Expr, call: Call) -> Expr:
    """The elements of ``x`` (N, C, axes...) at positions in each channel, in their shape; typed.

    Positions outside the channel are clamped.
    """
    batch, channels, *sizes = known_shape(x, call)
    counts = known_shape(indices, call)[2:]
    flat = op.reshape(x, newshape=(batch, channels, dim_product(tuple(sizes))), allowzero=True)
    places = op.reshape(indices, newshape=(batch, channels, dim_product(tuple(counts))),
                        allowzero=True)
    read = op.gather(flat, places, axis=2)
    return infer_expr(op.reshape(read, newshape=(batch, channels, *counts), allowzero=True),
                      trust=True)


def _grad_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each window reads ``dy`` at its position, if that is one of its taps."""
    indices = call.args[1]
    read = elements_at(dy, indices, call)
    kept = op.where(_is_tap(call, indices), read, scalar(0.0, dy))
    return [kept, typed_zeros(indices)]


def _is_tap(call: Call, indices: Expr) -> Expr:
    """Whether each position is a tap of its window, along each axis, and in the data."""
    attrs: Any = call.attrs
    counts = fixed_sizes(known_shape(indices, call)[2:], call)
    rest, found = op.cast(indices, dtype="int64"), op.greater_equal(indices, scalar(0, indices))
    for axis in reversed(range(len(attrs.size))):
        window, size = tuple(axis_windows(attrs.window))[axis], attrs.size[axis]
        if axis:
            at = op.mod(rest, const(size, "int64"))
            rest = op.floor_divide(rest, const(size, "int64"))
        else:
            at = rest  # beyond the first axis, a position is outside of the data
        starts = np.arange(counts[axis]) * window.stride - window.before
        shape = [1] * (2 + len(counts))
        shape[2 + axis] = -1
        tap = op.subtract(at, Constant(starts.reshape(shape)))
        limit = np.minimum(starts + window.span, size).reshape(shape)
        for test in (op.greater_equal(tap, const(0, "int64")), op.less(at, Constant(limit)),
                     op.equal(op.mod(tap, const(window.step, "int64")), const(0, "int64"))):
            found = op.logical_and(found, test)
    return found


def _define_grad(axes: int, attrs_type: type[PoolAttrs], cases: Callable[[], Sequence[Case]]
                 ) -> Op:
    def run(grad: te.Tensor, indices: te.Tensor, attrs: Any) -> te.Tensor:
        return topi.max_pool_indices_grad(grad, indices, attrs.window, attrs.size)

    run.__doc__ = ("The gradient of ``nn.max_pool`` for data of a given size.\n\n"
                   "Each window adds its gradient at its position in ``indices``, unless the\n"
                   "position is not a tap of the window.")
    made = define_op(f"nn.max_pool{axes}d_indices_grad", attrs=attrs_type,
                   inputs=("grad", "indices"), relation=_grad_relation,
                   pattern=OpPattern.OPAQUE, level=2, traits=linear())(run)
    made.spec(lambda grad, indices, **values: _grad_reference(grad, indices, attrs_type(**values)),
            cases)
    made.gradient(_grad_gradient)
    return made


_LOWEST = np.full((1, 1, 3, 3), -np.inf, np.float32)
_2D: tuple[dict[str, Any], ...] = (
    {"pool_size": (2, 3), "strides": (2, 2)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "ceil_mode": True},
    {"pool_size": (2, 2), "dilation": (2, 3), "padding": (1, 1)},
)
_1D: dict[str, Any] = {"pool_size": (3,), "strides": (2,), "padding": (1,)}
_3D: dict[str, Any] = {"pool_size": (2, 2, 2), "strides": (2, 1, 2), "padding": (0, 1, 0)}

max_pool1d_indices = _define(1, MaxPool1DAttrs, (op_case((2, 3, 8), **_1D),))
max_pool2d_indices = _define(2, MaxPool2DAttrs, (
    *(op_case((1, 2, 7, 6), **window) for window in _2D),
    op_case((1, 2, 5, 5), dtypes="int32", low=-2, high=2, **_2D[1]),
    op_case(_LOWEST, **_2D[1]), op_case((0, 2, 5, 5), **_2D[0]),
))
max_pool3d_indices = _define(3, MaxPool3DAttrs, (op_case((1, 2, 4, 3, 5), **_3D),))
adaptive_max_pool1d_indices = _define_adaptive(1, AdaptivePool1DAttrs, (
    op_case((2, 3, 7), output_size=(3,)), op_case((1, 2, 2), output_size=(5,))))
adaptive_max_pool2d_indices = _define_adaptive(2, AdaptivePool2DAttrs, (
    op_case((1, 2, 7, 5), output_size=(3, 2)), op_case((1, 2, 6, 4), output_size=(3, 2)),
    op_case((1, 1, 5, 4), output_size=(2, 3), dtypes="int32", low=-2, high=2),
    op_case(_LOWEST, output_size=(2, 2))))
adaptive_max_pool3d_indices = _define_adaptive(3, AdaptivePool3DAttrs, (
    op_case((1, 2, 3, 4, 5), output_size=(2, 2, 3)),))


for _positions in (max_pool1d_indices, max_pool2d_indices, max_pool3d_indices,
                   adaptive_max_pool1d_indices, adaptive_max_pool2d_indices,
                   adaptive_max_pool3d_indices):
    _positions.no_gradient("positions are integers")


def _grad_case(size: tuple[int, ...], window: dict[str, Any], attrs_type: type[PoolAttrs]) -> Case:
    """Positions of a pool over random data, and one outside its window."""
    x = np.random.default_rng(0).normal(size=(1, 2, *size)).astype(np.float32)
    attrs = attrs_type(**window)
    indices = _reference(x, attrs, _window_counts(x, attrs))
    indices[(0, 0) + (0,) * len(size)] = -1
    return op_case(indices.shape, indices, size=size, **window)


max_pool1d_indices_grad = _define_grad(1, MaxPool1DIndicesGradAttrs, lambda: (
    _grad_case((8,), _1D, MaxPool1DAttrs),))
max_pool2d_indices_grad = _define_grad(2, MaxPool2DIndicesGradAttrs, lambda: tuple(
    _grad_case((7, 6), window, MaxPool2DAttrs) for window in _2D))
max_pool3d_indices_grad = _define_grad(3, MaxPool3DIndicesGradAttrs, lambda: (
    _grad_case((4, 3, 5), _3D, MaxPool3DAttrs),))
