"""Counts, histograms, unique elements, differences and moments of samples."""

from __future__ import annotations

import math
import warnings
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.axes import axes_of, axis_of
from weft.eager.cell import Cell
from weft.eager.device import CPU, device
from weft.eager.dtypes import bool_
from weft.eager.functions.complex import complex, conj, imag, real
from weft.eager.functions.elementwise import add, clamp, div, mul, ne, sqrt, sub
from weft.eager.functions.linear import matmul
from weft.eager.functions.reduction import cumsum, default_float, mean, sum
from weft.eager.functions.shape import cat
from weft.eager.record import as_node, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError
from weft.support.fallback import FallbackWarning

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor

Histogram = namedtuple("Histogram", ["hist", "bin_edges"])  # noqa: PYI024 - torch's two fields


def _array(input: Any) -> np.ndarray:
    """The elements, which are looked at; those of a device are copied to the host."""
    found = wrap(as_node(input)).detach()
    if found.device is not CPU and found.device not in _TOLD:
        _TOLD.add(found.device)
        warnings.warn("unique, bincount and histograms are computed by the host: tensors of "
                      f"{found.device} are copied there, and their results back", FallbackWarning,
                      stacklevel=4)
    return np.asarray(found.cpu())


_TOLD: set[device] = set()


def _tensor(array: Any, like: Any) -> Any:
    """A tensor on the device of another one."""
    found = wrap(as_node(np.array(array, order="C")))
    where = as_node(like).sig.out.device
    return found if where is CPU else found.to(device=where)


@public
def unique(input: Any, sorted: bool = True, return_inverse: bool = False,  # noqa: ARG001 - always
           return_counts: bool = False, dim: int | None = None) -> Any:
    """The different elements in order, or the different slices along an axis.

    On request also the index of each element in the result, and how often each is there. The
    tensor is looked at.
    """
    array = _array(input)
    axis = None if dim is None else axis_of(dim, array.ndim)
    values, inverse, counts = np.unique(array, return_inverse=True, return_counts=True, axis=axis,
                                        equal_nan=False)
    inverse = inverse.reshape(array.shape if axis is None else -1)
    return _parts(input, values, inverse, counts, return_inverse, return_counts)


def _parts(input: Any, values: Any, inverse: Any, counts: Any, with_inverse: bool,
           with_counts: bool) -> Any:
    found = [values, *([inverse] if with_inverse else []), *([counts] if with_counts else [])]
    tensors = tuple([_tensor(part, input) for part in found])
    return tensors if len(tensors) > 1 else tensors[0]


@public
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False,
                       dim: int | None = None) -> Any:
    """The elements (or slices along an axis) that differ from the one before; as ``unique``."""
    array = _array(input)
    axis = 0 if dim is None else axis_of(dim, array.ndim)
    rows = np.moveaxis(array, axis, 0) if dim is not None else array.reshape(-1)
    count = rows.shape[0]
    flat = rows.reshape(count, -1) if rows.size else rows.reshape(count, 0)
    differs = np.ones(count, np.bool_)
    if count:
        differs[1:] = (flat[1:] != flat[:-1]).any(axis=1)
    starts = np.flatnonzero(differs)
    inverse = np.cumsum(differs) - 1
    values = np.moveaxis(rows[starts], 0, axis) if dim is not None else rows[starts]
    if dim is None:
        inverse = inverse.reshape(array.shape)
    return _parts(input, values, inverse.astype(np.int64), np.diff(np.append(starts, count)),
                  return_inverse, return_counts)


@public
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on is in a vector, or the sum of its weights.

    The tensor is looked at.
    """
    array = _array(input)
    if array.ndim != 1 or array.dtype.kind not in "iub" or (array.size and array.min() < 0):
        raise InvalidInputError("bincount takes a vector of integers of at least 0",
                                got=f"shape {array.shape}, {array.dtype}")
    given = None if weights is None else _array(weights)
    found = np.bincount(array, given, minlength)
    if given is not None and given.dtype == np.float32:
        found = found.astype(np.float32)
    return _tensor(found, input)


@public
def histc(input: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """How many elements are in each of ``bins`` equal parts of a range; outside, they are left out.

    Without a range it is that of the elements. The tensor is looked at.
    """
    array = _array(input).reshape(-1)
    low, high = float(min), float(max)
    if low > high or bins <= 0:
        raise InvalidInputError("histc needs bins, and min of at most max",
                                got=f"{bins} bins, {low} to {high}")
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidInputError("histc: the range is not finite", got=f"{low} to {high}")
    inside = array[(array >= low) & (array <= high)]
    at = ((inside - array.dtype.type(low)) / array.dtype.type(high - low) * bins).astype(np.int64)
    return _tensor(np.bincount(np.minimum(at, bins - 1), minlength=bins).astype(array.dtype),
                   input)


@public
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Differences of neighbours along an axis, ``n`` times."""
    x = wrap(as_node(input))
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        raise InvalidInputError("diff takes tensors with at least one axis")
    parts = [p for p in (prepend, x, append) if p is not None]
    x = cat(parts, axis) if len(parts) > 1 else x
    for _ in range(min(n, x.shape[axis])):
        size = x.shape[axis]
        later, earlier = x.narrow(axis, 1, size - 1), x.narrow(axis, 0, size - 1)
        x = ne(later, earlier) if x.dtype is bool_ else sub(later, earlier)
    return x.clone() if n == 0 else x


@public
def trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule."""
    return sum(_trapezoids(y, x, dx, dim), dim)


@public
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral along an axis by the trapezoidal rule."""
    return cumsum(_trapezoids(y, x, dx, dim), dim)


def _trapezoids(y: Any, x: Any, dx: Any, dim: int) -> Any:
    heights = wrap(default_float(y))
    axis = axis_of(dim, heights.ndim)
    size = heights.shape[axis]
    if not size:
        return heights
    middle = mul(add(heights.narrow(axis, 1, size - 1), heights.narrow(axis, 0, size - 1)), 0.5)
    if x is None:
        return middle if dx is None else mul(middle, dx)
    places = wrap(as_node(x))
    if places.ndim == 1:
        places = places.reshape([-1 if a == axis else 1 for a in range(heights.ndim)])
        width = diff(places, 1, axis)
    else:
        width = diff(places, 1, axis - heights.ndim)
    return mul(middle, width)


trapz = trapezoid


@public
def gradient(input: Any, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
             ) -> tuple[Tensor, ...]:
    """The slopes along axes, by differences of both neighbours, at the ends of one side.

    ``spacing`` is a distance, or for each axis a distance or the coordinates.
    """
    x = wrap(as_node(input))
    x = x if x.dtype.is_floating_point else wrap(default_float(x))
    axes = axes_of(dim, x.ndim) or tuple(range(x.ndim))
    spacing = 1 if spacing is None else spacing
    given = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(axes)
    if len(given) != len(axes) or edge_order not in {1, 2}:
        raise InvalidInputError("gradient needs a spacing for each axis and an edge_order of 1, 2",
                                got=f"{len(given)} for {len(axes)} axes, {edge_order}")
    return tuple([_slope(x, axis, one, edge_order) for axis, one in zip(axes, given, strict=True)])


def _slope(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    size = x.shape[axis]
    if size <= edge_order:
        raise InvalidInputError("gradient needs more elements along an axis",
                                got=str(size), expected=f"at least {edge_order + 1}")

    def part(start: int, stop: int) -> Any:
        return x.narrow(axis, start, stop - start)

    if isinstance(spacing, Cell) and spacing.ndim:  # type: ignore[attr-defined]
        wide = diff(spacing.to(x.dtype)).reshape(  # type: ignore[attr-defined]
            [-1 if a == axis else 1 for a in range(x.ndim)])
    else:
        ones = wrap(as_node(np.ones([size - 1 if a == axis else 1 for a in range(x.ndim)],
                                    np.float32))).to(x.dtype)
        wide = mul(ones, spacing)
    h, k = wide.narrow(axis, 0, size - 2), wide.narrow(axis, 1, size - 2)
    middle = add(add(mul(part(0, size - 2), -k / (h * (h + k))),
                     mul(part(1, size - 1), (k - h) / (h * k))),
                 mul(part(2, size), h / (k * (h + k))))
    first, last = wide.narrow(axis, 0, 1), wide.narrow(axis, size - 2, 1)
    begin = div(sub(part(1, 2), part(0, 1)), first)
    end = div(sub(part(size - 1, size), part(size - 2, size - 1)), last)
    if edge_order == 2:
        h, k = first, wide.narrow(axis, 1, 1)
        begin = add(add(mul(part(0, 1), -(h * 2 + k) / (h * (h + k))),
                        mul(part(1, 2), (h + k) / (h * k))), mul(part(2, 3), -h / (k * (h + k))))
        h, k = wide.narrow(axis, size - 3, 1), last
        end = add(add(mul(part(size - 3, size - 2), k / (h * (h + k))),
                      mul(part(size - 2, size - 1), -(h + k) / (h * k))),
                  mul(part(size - 1, size), (k * 2 + h) / (k * (h + k))))
    return cat([begin, middle, end], axis)


@public
def histogram(input: Any, bins: Any, *, range: Any = None, weight: Any = None,
              density: bool = False) -> Histogram:
    """How many elements (or what weight) are in each bin, and the edges of the bins.

    ``bins`` is a number of equal bins of the range, or the edges. The tensor is looked at.
    """
    array = _array(input)
    edges = _array(bins) if isinstance(bins, Cell) else bins
    limits: Any = None if range is None else tuple(map(float, range))
    if limits is not None and limits[0] == limits[1]:
        limits = (limits[0] - 1, limits[1] + 1)
    given = None if weight is None else _array(weight)
    counts, found = np.histogram(array, edges, limits, weights=given, density=density)
    return Histogram(_tensor(counts.astype(array.dtype), input),
                     _tensor(found.astype(array.dtype), input))


@public
def histogramdd(input: Any, bins: Any, *, range: Any = None, weight: Any = None,
                density: bool = False) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The histogram of rows as points, and the edges along each coordinate; as ``histogram``."""
    array = _array(input)
    points = array.reshape(-1, array.shape[-1])
    edges = [_array(b) if isinstance(b, Cell) else b for b in bins] if isinstance(
        bins, (list, tuple)) else [bins] * points.shape[1]
    limits: Any = None if range is None else np.asarray(range, np.float64).reshape(-1, 2).tolist()
    given = None if weight is None else _array(weight).reshape(-1)
    try:
        counts, found = np.histogramdd(points, edges, limits, weights=given, density=density)
    except ValueError as error:
        raise InvalidInputError("histogramdd: the bins do not fit", got=str(error)) from None
    return _tensor(counts.astype(array.dtype), input), tuple([_tensor(f.astype(array.dtype), input)
                                                       for f in found])


@public
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """The covariances of the rows, whose columns are observations."""
    x = wrap(as_node(input))
    x = x.reshape(1, -1) if x.ndim < 2 else x
    weights: Any = None
    for one in (fweights, aweights):
        if one is not None:
            weights = one if weights is None else mul(weights, one)
    x = wrap(default_float(x))
    if weights is None:
        total: Any = float(x.shape[1])
        centred = sub(x, mean(x, 1, keepdim=True))
        product = matmul(centred, conj(centred).t())
        degrees: Any = total - correction
        return div(product, degrees if degrees > 0 else 0.0).squeeze()
    total = sum(weights)
    centre = div(sum(mul(x, weights), 1, keepdim=True), total)
    centred = sub(x, centre)
    product = matmul(centred, conj(mul(centred, weights)).t())
    if aweights is None or not correction:
        degrees = sub(total, correction)
    else:
        degrees = sub(total, mul(div(sum(mul(weights, aweights)), total), correction))
    return div(product, clamp(degrees.to(x.dtype.to_real()), 0)).squeeze()


@public
def corrcoef(input: Any) -> Tensor:
    """The correlation coefficients of the rows, from -1 to 1."""
    found = cov(input)
    if not found.ndim:
        return div(found, found)
    deviation = sqrt(real(found.diagonal()))
    scaled = div(div(found, deviation.unsqueeze(1)), deviation.unsqueeze(0))
    if not scaled.dtype.is_complex:
        return clamp(scaled, -1.0, 1.0)
    return complex(clamp(real(scaled), -1.0, 1.0), clamp(imag(scaled), -1.0, 1.0))
