"""Reductions of tensors along axes."""

from __future__ import annotations

import builtins
import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any

from weft.eager.axes import axes_of, axis_of
from weft.eager.dtypes import as_dtype, bool_, get_default_dtype, int64, uint8
from weft.eager.emitter import TENSORS
from weft.eager.functions.elementwise import abs, cast, isnan, mul, ne, sub, where
from weft.eager.node import Node
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import public
from weft.op.composites import norms
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor

Extreme = namedtuple("Extreme", ["values", "indices"])  # noqa: PYI024 - torch's two fields
Range = namedtuple("Range", ["min", "max"])  # noqa: PYI024 - torch's two fields


def _reduce(name: str, node: Node, dim: Any, keepdim: bool) -> Tensor:
    axes = axes_of(dim, len(node.sig.out.shape))
    if not node.sig.out.shape:
        axes = None
    if axes is not None and len({*axes}) != len(axes):
        raise InvalidInputError(f"{name} has an axis twice", got=repr(dim))
    return wrap(record(name, (node,), {"axis": axes, "keepdims": bool(keepdim)}))


def numeric(value: Any) -> Node:
    """The node of an operand, booleans as integers: they are compared but not ordered."""
    node = as_node(value)
    return cast(node, uint8) if node.sig.out.dtype is bool_ else node


def _summed(input: Any, dtype: Any) -> Node:
    """The operand of a sum: integers add in int64."""
    node = as_node(input)
    if dtype is not None:
        d = as_dtype(dtype)
        return cast(cast(node, d), int64) if d is bool_ else cast(node, d)
    return node if node.sig.out.dtype.rank > 1 else cast(node, int64)


def _in(found: Any, dtype: Any) -> Any:
    """A sum in the dtype asked for; booleans were added as integers."""
    return found.to(bool_) if dtype is not None and as_dtype(dtype) is bool_ else found


@public
def sum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum along axes, by default of all elements; integers add in int64."""
    return _in(_reduce("sum", _summed(input, dtype), dim, keepdim), dtype)


@public
def prod(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product along an axis, by default of all elements."""
    return _in(_reduce("prod", _summed(input, dtype), dim, keepdim), dtype)


@public
def nansum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum along axes of the elements that are not NaN."""
    return sum(_without_nan(input), dim, keepdim, dtype=dtype)


def _without_nan(input: Any) -> Any:
    """0 in place of NaN."""
    if as_node(input).sig.out.dtype.rank < 2:
        return input
    return where(isnan(input), 0.0, input)


def floating(input: Any, dtype: Any, what: str) -> Node:
    """The node of an operand, which is floating point; the dtype converts it."""
    node = as_node(input)
    if dtype is not None:
        node = cast(node, as_dtype(dtype))
    if node.sig.out.dtype.rank < 2:
        raise InvalidInputError(f"{what} of a tensor that is not floating point",
                                got=repr(node.sig.out.dtype), help="convert it with .float()")
    return node


def count_of(shape: tuple[int, ...], dim: Any) -> int:
    """How many elements a reduction along axes takes together."""
    axes = axes_of(dim, len(shape))
    if not shape:
        return 1
    return math.prod([shape[a] for a in (range(len(shape)) if axes is None else axes)])


@public
def mean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean along axes; NaN of no elements."""
    node = floating(input, dtype, "mean")
    if not count_of(node.sig.out.shape, dim):
        return _reduce("sum", node, dim, keepdim) * math.nan
    return _reduce("mean", node, dim, keepdim)


@public
def nanmean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean along axes of the elements that are not NaN."""
    x = wrap(floating(input, dtype, "nanmean"))
    count = sum(ne(isnan(x), True), dim, keepdim)
    return nansum(x, dim, keepdim) / count.to(x.dtype)


@public
def var(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = 1) -> Tensor:
    """The variance: the sum of squared distances from the mean, over count - ``correction``.

    ``unbiased=False`` is ``correction=0``; ``var(x, False)`` is that, too.
    """
    return _spread(input, dim, unbiased, keepdim, correction, "var")[0]


def _spread(input: Any, dim: Any, unbiased: Any, keepdim: bool, correction: Any, what: str
            ) -> tuple[Any, Any]:
    """Variance and mean."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = int(unbiased)
    correction = 1 if correction is None else correction
    x = wrap(floating(input, None, what))
    degrees = builtins.max(0.0, float(count_of(tuple(x.shape), dim) - correction))
    distance = sub(x, mean(x, dim, keepdim=True) if x.ndim else x)
    if x.dtype.is_complex:
        distance = abs(distance)
    total = sum(distance * distance, dim, keepdim)
    return total / degrees, mean(x, dim, keepdim)


@public
def std(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = 1) -> Tensor:
    """The square root of the variance."""
    spread = _spread(input, dim, unbiased, keepdim, correction, "std")[0]
    return norms.root_of_sum(TENSORS, spread, 2)


@public
def var_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = 1) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return _spread(input, dim, unbiased, keepdim, correction, "var_mean")


@public
def std_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = 1) -> tuple[Tensor, Tensor]:
    """The square root of the variance, and the mean."""
    spread, centre = _spread(input, dim, unbiased, keepdim, correction, "std_mean")
    return norms.root_of_sum(TENSORS, spread, 2), centre


def _ordered(name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    """The largest or smallest element; of booleans, a boolean."""
    found = _reduce(name, numeric(input), dim, keepdim)
    return found.to(bool_) if as_node(input).sig.out.dtype is bool_ else found


@public
def amax(input: Any, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest element along axes."""
    return _ordered("max", input, dim, keepdim)


@public
def amin(input: Any, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest element along axes."""
    return _ordered("min", input, dim, keepdim)


@public
def aminmax(input: Any, *, dim: Any = None, keepdim: bool = False) -> Range:
    """The smallest and the largest element, along an axis or of all."""
    return Range(_ordered("min", input, dim, keepdim), _ordered("max", input, dim, keepdim))


@public
def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element, of the flattened tensor by default."""
    return _index("argmax", input, dim, keepdim)


@public
def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element, of the flattened tensor by default."""
    return _index("argmin", input, dim, keepdim)


def _index(name: str, input: Any, dim: int | None, keepdim: bool) -> Tensor:
    node = numeric(input)
    shape = node.sig.out.shape
    if dim is None or not shape:
        axis_of(dim or 0, len(shape))
        node = record("reshape", (node,), {"newshape": (-1,)})
        found = wrap(record(name, (node,), {"axis": 0}))
        return found.reshape((1,) * len(shape)) if keepdim else found
    attrs = {"axis": axis_of(dim, len(shape)), "keepdims": bool(keepdim)}
    return wrap(record(name, (node,), attrs))


@public
def max(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The largest element; along an axis, values and indices; of two tensors, elementwise."""
    return _extreme("max", input, dim if other is None else other, keepdim)


@public
def min(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element; along an axis, values and indices; of two tensors, elementwise."""
    return _extreme("min", input, dim if other is None else other, keepdim)


def _extreme(name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None:
        return _ordered(name, input, None, False)
    if not isinstance(dim, int):
        return input.maximum(dim) if name == "max" else input.minimum(dim)
    # Gathering by index gives one of several equal elements the gradient, as in torch.
    return chosen(input, _index(f"arg{name}", input, dim, bool(as_node(input).sig.out.shape)), dim,
                  keepdim)


def chosen(input: Any, indices: Any, dim: int, keepdim: bool) -> Extreme:
    """The elements at indices, one along an axis that was kept, and the indices."""
    node = as_node(input)
    if not node.sig.out.shape:
        return Extreme(wrap(record("copy", (node,), {})), indices)
    axis = axis_of(dim, len(node.sig.out.shape))
    values = wrap(record("gather", (node, as_node(indices)), {"axis": axis}))
    if keepdim:
        return Extreme(values, indices)
    return Extreme(values.squeeze(axis), indices.squeeze(axis))


@public
def all(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are nonzero."""
    return _truth("all", input, dim, keepdim)


@public
def any(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether one element is nonzero."""
    return _truth("any", input, dim, keepdim)


def _truth(name: str, input: Any, dim: Any, keepdim: bool) -> Tensor:
    found = _reduce(name, cast(as_node(input), bool_), dim, keepdim)
    return found.to(uint8) if as_node(input).sig.out.dtype is uint8 else found


@public
def count_nonzero(input: Any, dim: Any = None) -> Tensor:
    """How many elements are not zero, along axes or in all."""
    return sum(wrap(cast(as_node(input), bool_)), dim)


@public
def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None
         ) -> Tensor:
    """The p-norm: ``sum(abs(x) ** p) ** (1 / p)``; ``inf`` gives the largest, 0 counts.

    "nuc" is the sum of the singular values of matrices.
    """
    if isinstance(p, str) and p == "nuc":
        from weft.eager.functions.linalg.norms import matrix_norm  # which stands on reductions

        return matrix_norm(input, p, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]
    x = wrap(floating(input, dtype, "norm"))
    x = abs(x) if x.dtype.is_complex else x
    axes = axes_of(dim, x.ndim) if x.ndim else None
    return norms.p_norm(TENSORS, x, _order(p), axes, bool(keepdim))


def _order(p: Any) -> float:
    if isinstance(p, str) and p != "fro":
        raise InvalidInputError("norm: not the order of a vector norm", got=repr(p),
                                expected='a number, "fro" or "nuc"')
    return 2.0 if p in {"fro", None} else float(p)


@public
def dist(input: Any, other: Any, p: Any = 2) -> Tensor:
    """The p-norm of the difference."""
    return norm(sub(input, other), p)


@public
def logsumexp(input: Any, dim: Any, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))``, without overflow."""
    x = wrap(default_float(input))
    if 0 in x.shape:
        return x.exp().sum(dim, keepdim).log()
    axes = axes_of(dim, x.ndim) if x.ndim else None
    found = norms.logsumexp(TENSORS, x, axes)
    return found if keepdim else found.squeeze(tuple(range(x.ndim)) if axes is None else axes)


def along(name: str, node: Node, dim: int, **attrs: Any) -> Any:
    """An operator along an axis; a tensor without axes is one element along one."""
    shape = node.sig.out.shape
    axis = axis_of(dim, len(shape))
    if shape:
        return wrap(record(name, (node,), {"axis": axis, **attrs}))
    row = record("reshape", (node,), {"newshape": (1,)})
    found = wrap(record(name, (row,), {"axis": 0, **attrs}))
    if isinstance(found, tuple):
        return tuple([part.reshape(()) for part in found])
    return found.reshape(())


@public
def softmax(input: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along an axis."""
    return along("nn.softmax", floating(input, dtype, "softmax"), dim)


@public
def log_softmax(input: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """The logarithm of the softmax."""
    return along("nn.log_softmax", floating(input, dtype, "log_softmax"), dim)


@public
def cumsum(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """The cumulative sum along an axis."""
    return _in(along("cumsum", _summed(input, dtype), dim), dtype)


@public
def cumprod(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """The cumulative product along an axis."""
    return _in(along("cumprod", _summed(input, dtype), dim), dtype)


@public
def logcumsumexp(input: Any, dim: int) -> Tensor:
    """``log(cumsum(exp(input)))`` along an axis, without overflow."""
    return along("logcumsumexp", floating(input, None, "logcumsumexp"), dim)


@public
def cummax(input: Any, dim: int) -> Extreme:
    """The largest element up to each one along an axis, and where it is."""
    return _running("cummax", input, dim)


@public
def cummin(input: Any, dim: int) -> Extreme:
    """The smallest element up to each one along an axis, and where it is."""
    return _running("cummin", input, dim)


def _running(name: str, input: Any, dim: int) -> Extreme:
    x = wrap(numeric(input)).detach()
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return Extreme(wrap(record("copy", (as_node(input),), {})), sum(x).to(int64) * 0)
    best = along(name, as_node(x), axis)
    is_best = x.eq(best) | isnan(x) if x.dtype.is_floating_point else x.eq(best)
    place = places_along(tuple(x.shape), axis)
    indices = along("cummax", as_node(where(is_best, place, 0)), axis)
    return Extreme(wrap(record("gather", (as_node(input), as_node(indices)), {"axis": axis})),
                   indices)


def places_along(shape: tuple[int, ...], axis: int) -> Any:
    """The index of each element along an axis."""
    attrs = {"start": 0, "stop": shape[axis], "dtype": int64.ir}
    line = wrap(record("arange", (), attrs)).reshape(
        tuple([size if a == axis else 1 for a, size in enumerate(shape)]))
    return line.expand(shape)


def default_float(input: Any) -> Node:
    """The node of an operand, integers converted to the default dtype."""
    node = as_node(input)
    return node if node.sig.out.dtype.rank > 1 else cast(node, get_default_dtype())


@public
def renorm(input: Any, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Slices along an axis scaled down to a p-norm of at most ``maxnorm``."""
    x = wrap(floating(input, None, "renorm"))
    axes = tuple([a for a in range(x.ndim) if a != axis_of(dim, x.ndim)])
    size = norms.p_norm(TENSORS, x, float(p), axes, keepdims=True)
    return mul(x, where(size > maxnorm, maxnorm / (size + 1e-7), 1.0))
