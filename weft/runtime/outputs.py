"""Memory of results: that of earlier results is used again once nobody can see it.

The allocator returns large blocks to the operating system, which then zeroes every page once more
on first use: writing 32 MB took 0.8 ms in memory that was there and 2.4 ms in an array of its own.
So large results are views of blocks that are kept here, and one that no view refers to is free.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Callable

import numpy as np

from weft.runtime.arena import aligned_memory

# Smaller results come from memory that the allocator has at hand.
SMALLEST = 64 << 10
KEPT = 3  # blocks for each output: the results of some calls may be held while others come


def _references_of_one() -> int:
    """What ``getrefcount`` says of an array that one local name holds: it differs by version."""
    queue = deque([(np.empty(1, np.uint8), 0)])
    memory, _ = queue.popleft()
    return sys.getrefcount(memory)


_UNSHARED = _references_of_one()


def output_maker(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    """What makes the arrays for one output, not initialised; ``MemoryError`` if there is no more.

    Only large ones are worth keeping.
    """
    if math.prod(shape) * dtype.itemsize < SMALLEST:
        return functools.partial(np.empty, shape, dtype)
    return OutputMemory(shape, dtype).make


class OutputMemory:
    """Makes large arrays of one shape and dtype; safe to use from many threads."""

    __slots__ = ("_blocks", "_dtype", "_nbytes", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._shape = shape
        self._dtype = dtype
        self._nbytes = math.prod(shape) * dtype.itemsize
        self._blocks: deque[tuple[np.ndarray, int]] = deque(maxlen=KEPT)

    def make(self) -> np.ndarray:
        """An array that nobody else sees, not initialised; ``MemoryError`` if there is no more."""
        memory, start = self._unused() or aligned_memory(self._nbytes)
        # NumPy makes ``memory`` the base of this array, and of every view of it.
        result = np.ndarray(self._shape, self._dtype, memory, start)
        self._blocks.append((memory, start))
        return result

    def _unused(self) -> tuple[np.ndarray, int] | None:
        """A block without views, taken out of the queue, so that no other thread finds it."""
        for _ in range(len(self._blocks)):
            try:
                memory, start = self._blocks.popleft()
            except IndexError:  # other threads have them all
                return None
            if sys.getrefcount(memory) == _UNSHARED:
                return memory, start
            self._blocks.append((memory, start))
        return None
