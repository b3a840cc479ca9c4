"""Arrays whose elements are computed when they are read, so that large weights are stored once.

New memory costs more than the arithmetic on it. A weight that a pass scales or pads is therefore
not stored: the steps that transpose and pack it are views of its operands, and the memory of the
program is the first place where its elements are written.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.ir.dtype import DType

# Smaller arrays are computed at once.
MIN_BYTES = 1 << 20
# Columns of a transposed matrix that are computed at once.
_COLUMNS = 16


class Deferred(ABC):
    """A read-only array whose elements are computed when they are read.

    ``reshape``, ``transpose`` and indices of the first axis give views, which compute nothing
    unless their operands have no such views.
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    @abstractmethod
    def source(self) -> np.ndarray:
        """The large array that the elements are computed from."""

    @abstractmethod
    def reshape(self, shape: Sequence[int]) -> Array:
        """The elements in another shape."""

    @abstractmethod
    def transpose(self, axes: Sequence[int] | None) -> Array:
        """The elements with permuted axes; ``None`` reverses them."""

    @abstractmethod
    def __getitem__(self, at: int | slice) -> Array: ...

    @abstractmethod
    def take(self, indices: Sequence[np.ndarray]) -> np.ndarray:
        """The elements at some indices, an array for each axis."""

    @abstractmethod
    def write(self, to: np.ndarray) -> None:
        """Compute all elements."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        made = np.empty(self.shape, self.dtype)
        self.write(made)
        return made if dtype is None else made.astype(dtype, copy=False)


Array: TypeAlias = "np.ndarray | Deferred"


class Product(Deferred):
    """``source * factor``, of one shape and dtype, with finite elements only."""

    __slots__ = ("_source", "factor")

    def __init__(self, source: np.ndarray, factor: np.ndarray) -> None:
        super().__init__(source.shape, source.dtype)
        self._source = source
        self.factor = factor

    @property
    def source(self) -> np.ndarray:
        """See ``Deferred``."""
        return self._source

    def reshape(self, shape: Sequence[int]) -> Array:
        """See ``Deferred``."""
        factor = self.factor.reshape(shape)
        if not np.may_share_memory(factor, self.factor):  # a copy, as large as the product
            return np.asarray(self).reshape(shape)
        return Product(self._source.reshape(shape), factor)

    def transpose(self, axes: Sequence[int] | None) -> Array:
        """See ``Deferred``."""
        return Product(self._source.transpose(axes), self.factor.transpose(axes))

    def __getitem__(self, at: int | slice) -> Array:
        return Product(self._source[at], self.factor[at])

    def take(self, indices: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Deferred``."""
        found: np.ndarray = self._source[tuple(indices)] * self.factor[tuple(indices)]
        return found

    def write(self, to: np.ndarray) -> None:
        """See ``Deferred``."""
        with np.errstate(all="ignore"):
            for part in _blocks(self._source):
                np.multiply(self._source[part], self.factor[part], out=to[part])


class Joined(Deferred):
    """The rows of ``head``, followed by those of ``tail``, which has its own memory."""

    __slots__ = ("head", "tail")

    def __init__(self, head: np.ndarray, tail: np.ndarray) -> None:
        super().__init__((len(head) + len(tail), *head.shape[1:]), head.dtype)
        self.head = head
        self.tail = tail

    @property
    def source(self) -> np.ndarray:
        """See ``Deferred``."""
        return self.head

    def reshape(self, shape: Sequence[int]) -> Array:
        """See ``Deferred``; where the first axis is split, rows of a broken block are copied."""
        rows = self.shape[1:]
        if len(shape) != self.ndim + 1 or tuple(shape[2:]) != rows or shape[1] < 1:
            return np.asarray(self).reshape(shape)
        block = shape[1]
        whole = len(self.head) // block * block
        tail = np.concatenate([self.head[whole:], self.tail])
        return Joined(self.head[:whole].reshape(whole // block, block, *rows),
                      tail.reshape(len(tail) // block, block, *rows))

    def transpose(self, axes: Sequence[int] | None) -> Array:
        """See ``Deferred``."""
        if not axes or axes[0] != 0:
            return np.asarray(self).transpose(axes)
        return Joined(self.head.transpose(axes), self.tail.transpose(axes))

    def __getitem__(self, at: int | slice) -> Array:
        count = len(self.head)
        if not isinstance(at, slice):
            at += self.shape[0] if at < 0 else 0
            return self.head[at] if 0 <= at < count else self.tail[at - count]
        first, last, step = at.indices(self.shape[0])
        if step != 1:
            return np.asarray(self)[at]
        if last <= count:
            return self.head[first:last]
        tail = self.tail[max(first - count, 0) : last - count]
        return tail if first >= count else Joined(self.head[first:], tail)

    def take(self, indices: Sequence[np.ndarray]) -> np.ndarray:
        """See ``Deferred``."""
        first, *others = indices
        count = len(self.head)
        found = np.empty(first.shape, self.dtype)
        is_head = first < count
        for part, rows, start in ((is_head, self.head, 0), (~is_head, self.tail, count)):
            found[part] = rows[(first[part] - start, *(one[part] for one in others))]
        return found

    def write(self, to: np.ndarray) -> None:
        """See ``Deferred``."""
        count = len(self.head)
        copy_elements(to[:count], self.head)
        copy_elements(to[count:], self.tail)


def defers(array: Array) -> bool:
    """Whether an array is so large that computations from it are deferred."""
    return array.nbytes >= MIN_BYTES


def memory_of(array: Array) -> np.ndarray:
    """The array itself, or what it is computed from."""
    return array.source if isinstance(array, Deferred) else array


def is_finite(array: Array) -> bool:
    """Whether an array has a floating-point dtype, and neither infinities nor NaN."""
    if isinstance(array, Product):
        return True
    return DType.of(array.dtype).is_float and bool(np.isfinite(np.asarray(array)).all())


def copy_elements(to: np.ndarray, source: Array) -> None:
    """Write an array to contiguous memory."""
    if isinstance(source, Deferred):
        source.write(to)
        return
    for part in _blocks(source):
        np.copyto(to[part], source[part])


def _blocks(source: np.ndarray) -> Iterable[tuple[Any, ...]]:
    """Indices of blocks in which to read an array: the lines of a block stay in the caches."""
    if source.ndim > 1 and source.shape[-1] > _COLUMNS and source.strides[-1] != source.itemsize \
            and source.itemsize in source.strides:
        return [(..., slice(first, first + _COLUMNS))
                for first in range(0, source.shape[-1], _COLUMNS)]
    return ((...,),)
