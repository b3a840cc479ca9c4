"""Functions that make tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.cell import Cell
from weft.eager.checks import require_classes
from weft.eager.device import check_device
from weft.eager.dtypes import as_dtype, dtype, get_default_dtype, int64
from weft.eager.functions.elementwise import cast
from weft.eager.functions.shape import sizes_of
from weft.eager.node import value_node
from weft.eager.promotion import dtype_of_number
from weft.eager.record import as_array, as_node, record, wrap
from weft.runtime.ndarray import from_dlpack as array_from_dlpack

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with the elements of numbers, nested lists or an array, which are copied.

    Python floats become float32, ints int64; arrays keep their dtype.
    """
    check_device(device)
    if isinstance(data, Cell):
        found = cast(as_node(data), as_dtype(dtype)) if dtype is not None else as_node(data)
        made = wrap(found).detach()
    else:
        made = wrap(value_node(*as_array(data, None if dtype is None else as_dtype(dtype))))
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` itself if it is a tensor of the dtype, else ``tensor(data)``."""
    if isinstance(data, Cell):
        check_device(device)
        return data if dtype is None else wrap(cast(as_node(data), as_dtype(dtype)))  # type: ignore[return-value]
    return tensor(data, dtype, device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor with a copy of the elements of an array."""
    return tensor(array)


def from_dlpack(value: Any) -> Tensor:
    """A tensor with a copy of the elements of an array of another library."""
    return tensor(array_from_dlpack(value))


def _filled(shape: tuple[int, ...], value: Any, d: dtype, requires_grad: bool) -> Tensor:
    node = record("full", (as_node(value, d),), {"shape": shape})
    made = wrap(node)
    return made.requires_grad_() if requires_grad else made


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of a shape."""
    return full(sizes_of(size), 0.0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of a shape."""
    return full(sizes_of(size), 1.0, dtype=dtype, device=device, requires_grad=requires_grad)


empty = zeros


def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None,
         requires_grad: bool = False) -> Tensor:
    """A tensor of a shape filled with a number; an integer makes it int64, a float float32."""
    check_device(device)
    if isinstance(fill_value, Cell):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    d = dtype_of_number(fill_value) if dtype is None else as_dtype(dtype)
    fill = bool(fill_value) if d.rank == 0 else int(fill_value) if d.rank == 1 else fill_value
    return _filled(sizes_of((size,)), fill, d, requires_grad)


def zeros_like(input: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of the shape and dtype of ``input``."""
    return full_like(input, 0, dtype=dtype, requires_grad=requires_grad)


def ones_like(input: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of the shape and dtype of ``input``."""
    return full_like(input, 1, dtype=dtype, requires_grad=requires_grad)


empty_like = zeros_like


def full_like(input: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False
              ) -> Tensor:
    """A tensor of the shape and dtype of ``input`` filled with a number."""
    spec = as_node(input).sig.out
    return full(spec.shape, fill_value, dtype=spec.dtype if dtype is None else dtype,
                requires_grad=requires_grad)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """``start + i * step`` below ``end``; ``arange(n)`` counts from 0."""
    check_device(device)
    if end is None:
        start, end = 0, start
    whole = all(isinstance(v, int) for v in (start, end, step))
    d = as_dtype(dtype) if dtype is not None else int64 if whole else get_default_dtype()
    count = max(0, math.ceil((end - start) / step))
    array = (start + np.arange(count) * step).astype(d.numpy)
    made = wrap(value_node(array, d))
    return made.requires_grad_() if requires_grad else made


def linspace(start: float, end: float, steps: int, *, dtype: Any = None) -> Tensor:
    """``steps`` numbers at equal distances from ``start`` to ``end``."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return wrap(value_node(np.linspace(start, end, steps).astype(d.numpy), d))


def logspace(start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None
             ) -> Tensor:
    """``base`` to the powers ``linspace(start, end, steps)``."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return wrap(value_node(np.logspace(start, end, steps, base=base).astype(d.numpy), d))


def eye(n: int, m: int | None = None, *, dtype: Any = None) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return wrap(value_node(np.eye(n, m, dtype=d.numpy), d))


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: each vector along its own axis, repeated along the others."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    nodes = tuple(map(as_node, tensors))
    return wrap(record("meshgrid", nodes, {"indexing": indexing}))


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
