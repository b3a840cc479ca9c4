"""The memory of the device: a heap whose blocks are freed with the objects that stand for them.

The heap is memory of this process, so that the evaluator can work in it. Nothing else may: data of
the host are copied in and out.
"""

from __future__ import annotations

import weakref

import numpy as np

from weft.runtime.arena import AlignedBlock, array_at
from weft.support.errors import AllocationError

CAPACITY = 64 << 20  # bytes


class ToyBlock:
    """A block of the heap."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The memory as an array, which is valid as long as this object."""
        return array_at(self.address, shape, dtype)


class ToyMemory:
    """A heap of ``CAPACITY`` bytes with first-fit allocation."""

    def __init__(self) -> None:
        self._heap = AlignedBlock(CAPACITY, purpose="the toy device")
        self._used: dict[int, int] = {}  # start -> end of each block, from the start of the heap

    def allocate(self, nbytes: int, alignment: int = 64) -> ToyBlock:
        """A block of uninitialised bytes; ``AllocationError`` if no gap is large enough."""
        start, size = 0, max(nbytes, 1)
        for used, end in sorted(self._used.items()):
            if used - start >= size:
                break
            start = -(-end // alignment) * alignment
        if start + size > CAPACITY:
            raise AllocationError("cannot allocate memory of the toy device", got=f"{nbytes} bytes")
        block = ToyBlock(self._heap.address + start, nbytes)
        self._used[start] = start + size
        weakref.finalize(block, self._used.pop, start)
        return block

    def upload(self, array: np.ndarray) -> ToyBlock:
        """A block with a copy of an array of the host."""
        block = self.allocate(array.nbytes)
        block.array(array.shape, array.dtype)[...] = array
        return block

    def holds(self, address: int) -> bool:
        """Whether an address is in a block of the heap."""
        at = address - self._heap.address
        return any(start <= at < end for start, end in self._used.items())

    @property
    def nbytes(self) -> int:
        """The bytes in use."""
        return sum(end - start for start, end in self._used.items())


MEMORY = ToyMemory()
