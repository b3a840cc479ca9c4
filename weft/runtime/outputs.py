"""Allocation of output arrays, which reuses the memory of outputs that are no longer referenced.

The allocator returns large blocks to the operating system, which zeroes each page again on first
use: writing 32 MB takes 0.8 ms in reused memory and 2.4 ms in a fresh array. So large outputs are
views of memory blocks kept here. A block without views is free.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from weft.runtime.arena import aligned_memory

# Smaller outputs use NumPy's allocator, which reuses small blocks itself. In bytes.
SMALLEST = 64 << 10
KEPT = 3  # blocks per output: callers may hold the results of several calls


_Block: TypeAlias = tuple[np.ndarray, int]  # memory, offset of its aligned part


def _references(block: _Block) -> int:
    """The reference count of the memory of a block.

    The array is not bound to a local name: since Python 3.14 names may borrow references.
    """
    return sys.getrefcount(block[0])


_UNSHARED = _references((np.empty(1, np.uint8), 0))


def output_maker(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    """A function that allocates uninitialised arrays for one output; it may raise ``MemoryError``.

    Only large outputs reuse memory.
    """
    if math.prod(shape) * dtype.itemsize < SMALLEST:
        return functools.partial(np.empty, shape, dtype)
    return OutputMemory(shape, dtype).make


class OutputMemory:
    """Allocates large arrays of one shape and dtype from reused blocks; thread-safe."""

    __slots__ = ("_blocks", "_dtype", "_nbytes", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._shape = shape
        self._dtype = dtype
        self._nbytes = math.prod(shape) * dtype.itemsize
        self._blocks: deque[_Block] = deque(maxlen=KEPT)

    def make(self) -> np.ndarray:
        """An uninitialised array with memory of its own; may raise ``MemoryError``."""
        block = self._unused() or aligned_memory(self._nbytes)
        # The memory is the ``base`` of this array and of all views of it, which keeps it
        # referenced.
        result = np.ndarray(self._shape, self._dtype, *block)
        self._blocks.append(block)
        return result

    def _unused(self) -> _Block | None:
        """A block without views, removed from the queue so that no other thread takes it."""
        for _ in range(len(self._blocks)):
            try:
                block = self._blocks.popleft()
            except IndexError:  # other threads took them
                return None
            if _references(block) == _UNSHARED:
                return block
            self._blocks.append(block)
        return None
