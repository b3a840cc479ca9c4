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
from typing import TypeAlias

import numpy as np

from weft.runtime.arena import aligned_memory

# Smaller results come from memory that the allocator has at hand.
SMALLEST = 64 << 10
KEPT = 3  # blocks for each output: the results of some calls may be held while others come


_Block: TypeAlias = tuple[np.ndarray, int]  # memory, and where the aligned part of it starts


def _references(block: _Block) -> int:
    """What ``getrefcount`` says of the memory of a block.

    No name holds the array here: since Python 3.14 names may lend objects instead of counting.
    """
    return sys.getrefcount(block[0])


_UNSHARED = _references((np.empty(1, np.uint8), 0))


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
        self._blocks: deque[_Block] = deque(maxlen=KEPT)

    def make(self) -> np.ndarray:
        """An array that nobody else sees, not initialised; ``MemoryError`` if there is no more."""
        block = self._unused() or aligned_memory(self._nbytes)
        # NumPy makes the memory the base of this array, and of every view of it.
        result = np.ndarray(self._shape, self._dtype, *block)
        self._blocks.append(block)
        return result

    def _unused(self) -> _Block | None:
        """A block without views, taken out of the queue, so that no other thread finds it."""
        for _ in range(len(self._blocks)):
            try:
                block = self._blocks.popleft()
            except IndexError:  # other threads have them all
                return None
            if _references(block) == _UNSHARED:
                return block
            self._blocks.append(block)
        return None
