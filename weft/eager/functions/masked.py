"""Reductions and normalisations over the elements where a mask holds, with torch's names.

Other elements become the number that does not change the result. ``mask`` broadcasts to the tensor.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from weft.eager.dtypes import as_dtype, bool_, float32
from weft.eager.functions import elementwise as e
from weft.eager.functions import ordering as o
from weft.eager.functions import reduction as r
from weft.eager.functions.complex import conj
from weft.eager.functions.linalg.norms import vector_norm
from weft.eager.functions.scattering import extreme_of
from weft.eager.functions.shape import expand
from weft.eager.record import as_node, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError


def _kept(input: Any, mask: Any, other: Any) -> Any:
    """The elements where the mask holds, else ``other``."""
    x = wrap(as_node(input))
    if mask is None:
        return x
    if mask.ndim > x.ndim:
        raise InvalidInputError("the mask has more axes than the tensor", expected=str(x.ndim),
                                got=str(mask.ndim))
    return e.where(expand(wrap(as_node(mask)).to(bool_), x.shape), x, wrap(as_node(other, x.dtype)))


def _smallest(x: Any) -> Any:
    return extreme_of(x.dtype, largest=False)


def _largest(x: Any) -> Any:
    return extreme_of(x.dtype, largest=True)


def _axes(dim: Any) -> Any:
    return None if dim is None or dim == () else dim


def _all_or(dim: Any) -> Any:
    """The axes of a function that takes ``()`` for all of them."""
    return () if dim is None else dim


# name -> what reduces (tensor, axes, keepdim, dtype), and the number for other elements.
_REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "sum": (lambda x, dim, keep, d: r.sum(x, _axes(dim), keep, dtype=d), lambda _: 0),
    "prod": (lambda x, dim, keep, d: r.prod(x, _axes(dim), keep, dtype=d), lambda _: 1),
    "amax": (lambda x, dim, keep, d: _in(r.amax(x, _all_or(dim), keep), d, x), _smallest),
    "amin": (lambda x, dim, keep, d: _in(r.amin(x, _all_or(dim), keep), d, x), _largest),
    "argmax": (lambda x, dim, keep, d: _in(r.argmax(x, dim, keep), d, x), _smallest),
    "argmin": (lambda x, dim, keep, d: _in(r.argmin(x, dim, keep), d, x), _largest),
    "logsumexp": (lambda x, dim, keep, d: _in(r.logsumexp(x, _all_axes(x, dim), keep), d, x),
                  _smallest),
}
# name -> what normalises (tensor, axis, dtype), and the number for other elements.
_NORMALISATIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "softmax": (r.softmax, _smallest),
    "log_softmax": (r.log_softmax, _smallest),
    "softmin": (lambda x, dim, d: r.softmax(e.neg(x), dim, d), _largest),
    "cumsum": (lambda x, dim, d: r.cumsum(x, dim, dtype=d or x.dtype), lambda _: 0),
    "cumprod": (lambda x, dim, d: r.cumprod(x, dim, dtype=d or x.dtype), lambda _: 1),
}


def _in(found: Any, dtype: Any, x: Any) -> Any:
    """A result in the dtype asked for, by default that of the tensor."""
    return found.to(x.dtype if dtype is None else as_dtype(dtype))


def _all_axes(x: Any, dim: Any) -> Any:
    return tuple(range(x.ndim)) if _axes(dim) is None else dim


def _reduction(name: str) -> Callable[..., Any]:
    apply, other = _REDUCTIONS[name]

    def call(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
             mask: Any = None) -> Any:
        x = wrap(as_node(input))
        return apply(_kept(x, mask, other(x)), dim, bool(keepdim), dtype)

    return _named(call, name)


def _normalisation(name: str) -> Callable[..., Any]:
    apply, other = _NORMALISATIONS[name]

    def call(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
        x = wrap(as_node(input))
        return apply(_kept(x, mask, other(x)), dim, None if dtype is None else as_dtype(dtype))

    return _named(call, name)


def _named(call: Any, name: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}`` of the elements where ``mask`` holds."
    call.__signature__ = inspect.signature(call)
    return public(call)


sum, prod, amax, amin = map(_reduction, ("sum", "prod", "amax", "amin"))
argmax, argmin, logsumexp = map(_reduction, ("argmax", "argmin", "logsumexp"))
softmax, log_softmax, softmin = map(_normalisation, ("softmax", "log_softmax", "softmin"))
cumsum, cumprod = map(_normalisation, ("cumsum", "cumprod"))


def _count(x: Any, dim: Any, keepdim: bool, mask: Any) -> Any:
    """How many elements are taken together."""
    return r.sum(_kept(e.eq(x, x) | True, mask, False), _axes(dim), keepdim)


@public
def mean(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """The mean of the elements where ``mask`` holds; NaN of none."""
    x = wrap(r.floating(input, dtype, "masked.mean"))
    return sum(x, dim, keepdim=keepdim, mask=mask) / _count(x, dim, keepdim, mask)


@public
def median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None,
           mask: Any = None) -> Any:
    """The lower median of the elements where ``mask`` holds; NaN of none."""
    x = wrap(as_node(input))
    floats = x if x.dtype.is_floating_point else x.to(float32)
    return _in(o.nanmedian(_kept(floats, mask, math.nan), dim, keepdim).values, dtype, x)


@public
def norm(input: Any, ord: Any = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """The vector norm of the elements where ``mask`` holds."""
    other = math.inf if ord == -math.inf else 0.0
    return vector_norm(_kept(input, mask, other), 2 if ord is None else ord, _axes(dim),
                       bool(keepdim), dtype=dtype)


@public
def var(input: Any, dim: Any = None, unbiased: bool | None = None, *,
        correction: Any = None, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """The variance of the elements where ``mask`` holds."""
    if unbiased is not None:
        correction = float(unbiased)
    x = wrap(as_node(input))
    x = _in(x, dtype, x if x.dtype.rank > 1 else x.to(float32))
    distance = x - mean(x, dim, keepdim=True, mask=mask)
    total = sum(distance * conj(distance), dim, keepdim=keepdim, mask=mask)
    degrees = _count(x, dim, keepdim, mask) - (1.0 if correction is None else correction)
    return total / e.clamp(degrees, min=0)


@public
def std(input: Any, dim: Any = None, unbiased: bool | None = None, *,
        correction: Any = None, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """The square root of ``var``."""
    return e.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype,
                      mask=mask))


@public
def normalize(input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None,
              mask: Any = None) -> Any:
    """The elements where ``mask`` holds over their norm along an axis; 0 elsewhere."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _kept(input, mask, 0.0) / e.clamp(size, min=eps)


@public
def logaddexp(input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None,
              other_mask: Any = None) -> Any:
    """``logaddexp`` of the elements where the masks hold, -inf elsewhere."""
    x = wrap(as_node(input))
    return _in(e.logaddexp(_kept(x, input_mask, -math.inf), _kept(other, other_mask, -math.inf)),
               dtype, x)
