"""Functions that make tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.cell import Cell, detached
from weft.eager.checks import require_classes
from weft.eager.device import get_default_device
from weft.eager.dtypes import as_dtype, get_default_dtype, int64
from weft.eager.functions.elementwise import cast
from weft.eager.functions.shape import sizes_of
from weft.eager.node import value_node
from weft.eager.placement import filling, moved, new_value
from weft.eager.promotion import dtype_of_number, wrapped
from weft.eager.record import as_array, as_node, record, wrap
from weft.eager.signature import checked, factory, public
from weft.runtime.ndarray import from_dlpack as array_from_dlpack
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


@factory
def tensor(data: Any, dtype: Any = None) -> Tensor:
    """A tensor with the elements of numbers, nested lists or an array, which are copied.

    Python floats become float32, ints int64; arrays keep their dtype.
    """
    if isinstance(data, Cell):
        found = cast(as_node(data), as_dtype(dtype)) if dtype is not None else as_node(data)
        return wrap(moved(found, get_default_device())).detach()
    return wrap(new_value(*as_array(data, None if dtype is None else as_dtype(dtype))))


@checked
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` itself if it is a tensor of the dtype and on the device, else ``tensor(data)``."""
    if isinstance(data, Cell):
        return data.to(dtype=dtype, device=device)  # type: ignore[attr-defined]
    return tensor(data, dtype, device=device)


asarray = as_tensor


@factory
def scalar_tensor(s: Any, *, dtype: Any = None) -> Tensor:
    """A tensor without axes; of the default dtype, if none is given."""
    return tensor(s, get_default_dtype() if dtype is None else dtype)


@checked
def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor with a copy of the elements of an array."""
    return tensor(array)


@checked
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0,
               requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of the numbers in a buffer, such as ``bytes``."""
    d = as_dtype(dtype)
    made = tensor(np.frombuffer(buffer, d.numpy, count, offset))
    return made.requires_grad_() if requires_grad else made


@checked
def from_dlpack(value: Any) -> Tensor:
    """A tensor with the elements of an array of another library.

    Values never change, so only memory that is read-only (JAX's arrays, NumPy's without the
    ``writeable`` flag) is taken as it is; other memory is copied. A tensor of weft is detached.
    """
    if isinstance(value, Cell):
        return detached(value)
    array = array_from_dlpack(value)
    if array.flags.writeable or not array.flags.c_contiguous:
        return tensor(array)
    return wrap(value_node(array, as_dtype(array.dtype)))


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    sizes = sizes_of(size)
    if any(s < 0 for s in sizes):
        raise InvalidInputError("a tensor has a negative size", got=repr(sizes))
    return sizes


@factory
def zeros(*size: Any, dtype: Any = None) -> Tensor:
    """Zeros of a shape."""
    return full(_sizes(size), 0.0, dtype=dtype)


@factory
def ones(*size: Any, dtype: Any = None) -> Tensor:
    """Ones of a shape."""
    return full(_sizes(size), 1.0, dtype=dtype)


empty = zeros


@factory
def empty_strided(size: Any, stride: Any, *, dtype: Any = None) -> Tensor:  # noqa: ARG001 - row-major
    """Zeros of a shape; the strides are those of rows."""
    return zeros(size, dtype=dtype)


@factory
def empty_permuted(size: Any, physical_layout: Any, *, dtype: Any = None) -> Tensor:  # noqa: ARG001 - row-major
    """Zeros of a shape, in row-major order."""
    return zeros(size, dtype=dtype)


@factory
def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of a shape filled with a number; an integer makes it int64, a float float32."""
    if isinstance(fill_value, Cell):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    d = dtype_of_number(fill_value) if dtype is None else as_dtype(dtype)
    fill = bool(fill_value) if d.rank == 0 else int(fill_value) if d.rank == 1 else fill_value
    return wrap(record("full", (filling(wrapped(fill, d), d),), {"shape": _sizes((size,))}))


@factory
def zeros_like(input: Any, *, dtype: Any = None) -> Tensor:
    """Zeros of the shape and dtype of ``input``."""
    return _like(input, 0, dtype)


@factory
def ones_like(input: Any, *, dtype: Any = None) -> Tensor:
    """Ones of the shape and dtype of ``input``."""
    return _like(input, 1, dtype)


empty_like = zeros_like


@factory
def full_like(input: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A tensor of the shape and dtype of ``input`` filled with a number."""
    return _like(input, fill_value, dtype)


def _like(input: Any, value: Any, dtype: Any) -> Tensor:
    spec = as_node(input).sig.out
    return full(spec.shape, value, dtype=spec.dtype if dtype is None else dtype)


def _numbers(*values: Any) -> list[Any]:
    """Numbers, of tensors without axes too."""
    return [v.item() if isinstance(v, Cell) else v for v in values]  # type: ignore[attr-defined]


@factory
def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """``start + i * step`` below ``end``; ``arange(n)`` counts from 0."""
    if end is None:
        start, end = 0, start
    start, end, step = _numbers(start, end, step)
    if not step or (end - start) / step < 0:
        raise InvalidInputError("arange: the step does not lead to the end",
                                got=f"{start}, {end}, {step}")
    whole = all(isinstance(v, int) for v in (start, end, step))
    d = as_dtype(dtype) if dtype is not None else int64 if whole else get_default_dtype()
    if d.rank == 1 and not whole:
        start, step = int(start), int(step) or step
    count = max(0, math.ceil((end - start) / step))
    return wrap(new_value((start + np.arange(count) * step).astype(d.numpy), d))


def _line(array: np.ndarray, dtype: Any) -> Tensor:
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return wrap(new_value(np.ascontiguousarray(array).astype(d.numpy), d))


def _between(start: Any, end: Any, steps: int, dtype: Any) -> np.ndarray:
    """Numbers at equal distances: from the start in the first half, from the end in the other."""
    start, end = _numbers(start, end)
    if int(steps) < 0:
        raise InvalidInputError("steps is negative", got=str(steps))
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    if d.rank == 1:
        start, end = int(start), int(end)
    if steps == 1:
        return np.array([start], np.float64)
    kind = np.float32 if d.rank == 1 else np.float64
    step = kind((end - start) / max(1, int(steps) - 1))
    at = np.arange(int(steps), dtype=np.float64)
    found = np.where(at < int(steps) // 2, start + step * at, end - step * (int(steps) - 1 - at))
    return np.trunc(found) if d.rank == 1 else found


@factory
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None) -> Tensor:
    """``steps`` numbers at equal distances from ``start`` to ``end``."""
    return _line(_between(start, end, steps, dtype), dtype)


@factory
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None) -> Tensor:
    """``base`` to the powers ``linspace(start, end, steps)``."""
    start, end = _numbers(start, end)
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    if d.rank == 1:
        start, end = int(start), int(end)
    with np.errstate(all="ignore"):
        return _line(np.power(float(base), _between(start, end, steps, "float64")), dtype)


@factory
def eye(n: int, m: int | None = None, *, dtype: Any = None) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    return _line(np.eye(n, m), dtype)


@checked
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: each vector along its own axis, repeated along the others."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    vectors = [wrap(as_node(t)) for t in tensors]
    nodes = tuple([as_node(v.reshape(1) if not v.ndim else v) for v in vectors])
    return wrap(record("meshgrid", nodes, {"indexing": indexing}))


@public
def one_hot(tensor: Any, num_classes: int = -1) -> Tensor:
    """1 at the index given by the element along a new last axis, 0 elsewhere, in int64.

    Raises ``IndexRangeError`` for an element below 0 or not below ``num_classes``.
    """
    node = as_node(tensor)
    if num_classes == -1:
        num_classes = int(wrap(node).max().item()) + 1
    nodes = (node, as_node(1), as_node(0))
    made = record("one_hot", nodes, {"depth": num_classes})
    require_classes(made, node, num_classes)
    return wrap(made)
