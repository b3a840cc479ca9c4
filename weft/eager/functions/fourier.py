"""Discrete Fourier transforms: of the real and imaginary parts, which are joined at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.complex_numbers import joined, parts
from weft.eager.dtypes import as_dtype, float32, get_default_dtype
from weft.eager.emitter import call
from weft.eager.functions.elementwise import cast, operands
from weft.eager.functions.shape import roll
from weft.eager.record import as_node, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


class _Pair(NamedTuple):
    """The real and the imaginary part of complex numbers, two tensors of one shape."""

    real: Any
    imag: Any


def _pair(x: Any) -> _Pair:
    (node,) = operands(x, to_float=True)
    if node.sig.out.dtype.is_complex:
        return _Pair(*parts(node))
    if node.sig.out.dtype.itemsize < 4:
        node = cast(node, float32)
    real = wrap(node)
    return _Pair(real, call("zeros_like", real))


def _real(x: Any, what: str) -> _Pair:
    d = as_node(x).sig.out.dtype
    if d.is_complex:
        raise InvalidInputError(f"{what} takes a real tensor", got=repr(d))
    return _pair(x)


def _resized(x: _Pair, size: int, axis: int) -> _Pair:
    """Cropped, or padded with zeros, along an axis."""
    if size < 1:
        raise InvalidInputError("a Fourier transform of no elements", got=size)
    have = x.real.shape[axis]
    if have == size:
        return x
    if have > size:
        return _Pair(*(call("strided_slice", part, begin=(0,), end=(size,), axes=(axis,))
                             for part in x))
    pads = tuple((0, size - have) if a == axis else (0, 0) for a in range(x.real.ndim))
    return _Pair(*(call("nn.pad", part, 0.0, pad_width=pads) for part in x))


def _scale(size: int, norm: str | None, inverse: bool) -> float:
    """What the sums of a transform are multiplied by."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise InvalidInputError("unknown normalisation", got=repr(norm),
                                expected="backward, ortho or forward")
    if norm == "ortho":
        return 1 / math.sqrt(size)
    return 1 / size if inverse == (norm != "forward") else 1.0


def _along(x: _Pair, axis: int, norm: str | None, *, inverse: bool) -> _Pair:
    """The transform along an axis."""
    size = x.real.shape[axis]
    found = call("dft", *x, inverse=inverse, axis=axis - x.real.ndim)
    scale = _scale(size, norm, inverse) * (size if inverse else 1)
    return _Pair(*(found if scale == 1 else [part * scale for part in found]))


def _of_real(x: Any, axis: int, norm: str | None, *, inverse: bool) -> _Pair:
    """The frequencies of real numbers along an axis that are not redundant by symmetry.

    Of the inverse transform they are the conjugates, divided by the size.
    """
    rank, size = x.ndim, x.shape[axis]
    order = (*(a for a in range(rank) if a != axis), axis)
    back = tuple(int(a) for a in np.argsort(order))
    is_last = axis == rank - 1
    real, imag = call("rdft", x if is_last else call("transpose", x, axes=order))
    scale = _scale(size, norm, inverse)
    parts = [real, -imag if inverse else imag]
    parts = parts if scale == 1 else [part * scale for part in parts]
    return _Pair(*(parts if is_last else [call("transpose", part, axes=back) for part in parts]))


def _to_real_along(x: _Pair, size: int, axis: int, norm: str | None, *, inverse: bool) -> Any:
    """The ``size`` real numbers along an axis whose frequencies up to half of the size are given.

    The transform that is not an inverse is one of the conjugates, times the size.
    """
    x = _resized(x, size // 2 + 1, axis)
    rank = x.real.ndim
    order = [*(a for a in range(rank) if a != axis), axis]
    parts = [part if axis == rank - 1 else call("transpose", part, axes=tuple(order)) for part in x]
    found = call("irdft", parts[0], parts[1] if inverse else -parts[1], size=size)
    scale = _scale(size, norm, inverse) * size
    found = found if scale == 1 else found * scale
    back = tuple(int(a) for a in np.argsort(order))
    return found if axis == rank - 1 else call("transpose", found, axes=back)


def _axes(x: _Pair, s: Any, dim: Any) -> tuple[list[int], list[int | None]]:
    """The axes of a transform, and the sizes they get; ``None`` keeps a size."""
    rank = x.real.ndim
    if dim is None:
        dim = range(rank) if s is None else range(rank - len(s), rank)
    axes = [axis_of(d, rank) for d in ((dim,) if isinstance(dim, int) else dim)]
    given = [-1] * len(axes) if s is None else s
    sizes = [None if n == -1 else int(n) for n in given]
    if len(set(axes)) != len(axes) or len(sizes) != len(axes):
        raise InvalidInputError("the axes of a Fourier transform differ, one size for each",
                                got=f"axes {tuple(axes)}, sizes {tuple(sizes)}")
    return axes, sizes


def _transformed(
    x: _Pair, axes: Sequence[int], sizes: Sequence[int | None], norm: str | None,
    inverse: bool,
) -> _Pair:
    for axis, size in zip(axes, sizes, strict=True):
        x = _resized(x, x.real.shape[axis] if size is None else size, axis)
    for axis in axes:
        x = _along(x, axis, norm, inverse=inverse)
    return x


def _complex(input: Any, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    x = _pair(input)
    return wrap(joined(*_transformed(x, *_axes(x, s, dim), norm, inverse)))


def _from_real(input: Any, s: Any, dim: Any, norm: str | None, inverse: bool, what: str
               ) -> Tensor:
    """Of a real tensor: the last axis first, of whose result a half is kept."""
    x = _real(input, what)
    axes, sizes = _axes(x, s, dim)
    size = x.real.shape[axes[-1]] if sizes[-1] is None else sizes[-1]
    x = _of_real(_resized(x, size, axes[-1]).real, axes[-1], norm, inverse=inverse)
    return wrap(joined(*_transformed(x, axes[:-1], sizes[:-1], norm, inverse)))


def _to_real(input: Any, s: Any, dim: Any, norm: str | None, inverse: bool) -> Any:
    """Of the half that is not redundant along the last axis, which is transformed last."""
    x = _pair(input)
    axes, sizes = _axes(x, s, dim)
    x = _transformed(x, axes[:-1], sizes[:-1], norm, inverse)
    last = axes[-1]
    size = 2 * (x.real.shape[last] - 1) if sizes[-1] is None else sizes[-1]
    if size < 1:
        raise InvalidInputError("a Fourier transform of no elements", got=size)
    return _to_real_along(x, size, last, norm, inverse=inverse)


def _one(n: int | None) -> tuple[int] | None:
    return None if n is None else (n,)


@public
def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform along an axis, cropped or padded with zeros to ``n``.

    ``norm`` divides by n in the inverse ("backward", the default), in the transform ("forward"), or
    by its root in both ("ortho").
    """
    return _complex(input, _one(n), dim, norm, False)


@public
def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``fft``."""
    return _complex(input, _one(n), dim, norm, True)


@public
def fftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform along several axes, by default all, cropped or padded to ``s``."""
    return _complex(input, s, dim, norm, False)


@public
def ifftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of ``fftn``."""
    return _complex(input, s, dim, norm, True)


@public
def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """``fft`` of a real tensor: the n / 2 + 1 frequencies that are not redundant."""
    return _from_real(input, _one(n), dim, norm, False, "rfft")


@public
def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of ``rfft``, a real tensor; ``n`` is even unless it is given."""
    return _to_real(input, _one(n), dim, norm, True)


@public
def rfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """``fftn`` of a real tensor; half of the frequencies of the last axis."""
    return _from_real(input, s, dim, norm, False, "rfftn")


@public
def irfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """The inverse of ``rfftn``, a real tensor."""
    return _to_real(input, s, dim, norm, True)


@public
def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The Fourier transform, real, of a signal whose second half are conjugates of the first."""
    return _to_real(input, _one(n), dim, norm, False)


@public
def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``hfft``."""
    return _from_real(input, _one(n), dim, norm, True, "ihfft")


@public
def hfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """``hfft`` along the last axis, ``fft`` along the others."""
    return _to_real(input, s, dim, norm, False)


@public
def ihfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of ``hfftn``."""
    return _from_real(input, s, dim, norm, True, "ihfftn")


def _of_planes(function: Any, name: str) -> Any:
    """A transform along several axes, by default the last two."""

    def transform(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
        return function(input, s, dim, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"``{function.__name__}`` along two axes, by default the last."
    return public(transform)


fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = (
    _of_planes(function, function.__name__[:-1] + "2")
    for function in (fftn, ifftn, rfftn, irfftn, hfftn, ihfftn))


def _frequencies(numbers: np.ndarray, n: int, d: float, dtype: Any, requires_grad: bool) -> Any:
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype)
    made = wrap(as_node((numbers / (n * d)).astype(chosen.numpy)))
    return made.requires_grad_() if requires_grad else made


@public
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, requires_grad: bool = False) -> Any:
    """The frequencies of ``fft`` for samples at distance ``d``."""
    numbers = np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
    return _frequencies(numbers, n, d, dtype, requires_grad)


@public
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, requires_grad: bool = False) -> Any:
    """The frequencies of ``rfft`` for samples at distance ``d``."""
    return _frequencies(np.arange(n // 2 + 1), n, d, dtype, requires_grad)


def _shifted(input: Any, dim: Any, sign: int) -> Any:
    x = wrap(as_node(input))
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    axes = tuple(axis_of(d, x.ndim) for d in dims)
    halves = tuple(x.shape[a] // 2 if sign > 0 else (x.shape[a] + 1) // 2 for a in axes)
    return roll(x, halves, axes) if axes else x.clone()


@public
def fftshift(input: Any, dim: Any = None) -> Any:
    """Axes rolled by half, so that the frequency 0 is in the middle."""
    return _shifted(input, dim, 1)


@public
def ifftshift(input: Any, dim: Any = None) -> Any:
    """The inverse of ``fftshift``."""
    return _shifted(input, dim, -1)
