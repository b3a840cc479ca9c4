"""Functions that make arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.array_api.data_types import promoted
from weft.eager.cell import Cell
from weft.eager.dtypes import as_dtype, get_default_dtype
from weft.eager.emitter import call
from weft.eager.functions import creation, shape
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError

Shape = int | tuple[int, ...]


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
            ) -> Tensor:
    """An array of numbers, nested lists, or an array of any library.

    ``copy=False`` raises ``InvalidInputError`` where a copy is needed.
    """
    if isinstance(obj, Cell):
        wanted = obj.dtype if dtype is None else as_dtype(dtype)  # type: ignore[attr-defined]
        found = obj.to(wanted, device=device)  # type: ignore[attr-defined]
        if found is obj:
            return obj.clone() if copy else obj  # type: ignore[attr-defined, return-value]
        if copy is False:
            raise InvalidInputError("asarray needs a copy for another dtype or device",
                                    got="copy=False")
        return found
    if copy is False and not hasattr(obj, "__dlpack__"):
        raise InvalidInputError("asarray needs a copy of Python numbers", got="copy=False")
    if isinstance(obj, list | tuple):
        obj = _plain(obj)
    return creation.tensor(obj, dtype, device=device)


def _plain(values: Any) -> Any:
    """Nested lists whose arrays are numbers."""
    if isinstance(values, list | tuple):
        return [_plain(v) for v in values]
    return values.tolist() if hasattr(values, "tolist") else values


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """``start + i * step`` below ``stop``; ``arange(n)`` counts from 0."""
    if stop is None:
        start, stop = 0, start
    if step and (stop - start) / step < 0:  # torch refuses this
        stop = start + (stop - start) * 0  # a float if one of them is
    return creation.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """``num`` numbers at equal distances from ``start`` to ``stop``, with it or without."""
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    found = np.linspace(start, stop, num, endpoint=endpoint).astype(wanted.numpy)
    return creation.tensor(found, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    return creation.tensor(np.eye(n_rows, n_cols, k, dtype=wanted.numpy), device=device)


def full(
    shape: Shape, fill_value: complex, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """An array of a shape filled with a number."""
    return creation.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _filled(value: float) -> Callable[..., Tensor]:
    def make(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
        wanted = get_default_dtype() if dtype is None else dtype
        return full(shape, value, dtype=wanted, device=device)

    make.__doc__ = f"An array of a shape filled with {value}."
    return make


zeros, ones = _filled(0), _filled(1)
empty = zeros


def full_like(
    x: Tensor, /, fill_value: complex, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """An array of the shape and dtype of ``x`` filled with a number."""
    return full(tuple(x.shape), fill_value, dtype=x.dtype if dtype is None else dtype,
                device=x.device if device is None else device)


def _filled_like(value: float) -> Callable[..., Tensor]:
    def make(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
        return full_like(x, value, dtype=dtype, device=device)

    make.__doc__ = f"An array of the shape and dtype of ``x`` filled with {value}."
    return make


zeros_like, ones_like = _filled_like(0), _filled_like(1)
empty_like = zeros_like


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array of another library."""
    return asarray(creation.from_dlpack(x), device=device, copy=copy)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """The coordinates of a grid: each vector along its own axis, repeated along the others."""
    if not arrays:
        return []
    return list(call("meshgrid", *promoted(*arrays), indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and below a diagonal, zeros elsewhere."""
    return shape.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and above a diagonal, zeros elsewhere."""
    return shape.triu(x, k)
