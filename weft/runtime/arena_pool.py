"""The arenas of a program: memory for temporaries, used by one call at a time.

The free arenas form a linked list through two words in front of each: the next free arena, and its
size in bytes. ``weft_python_call`` takes arenas from the list and returns them in machine code;
Python does the same here. Python's lock protects the list. All sizes that a program runs at share
one pool, which keeps arenas of the largest size seen.
"""

from __future__ import annotations

import ctypes

from weft.runtime.arena import ALIGNMENT, AlignedBlock

# Byte offsets of the two words, relative to the arena.
NEXT, NBYTES = -16, -8


class ArenaPool:
    """``head`` is the address of the word that points to the first free arena."""

    __slots__ = ("_blocks", "_head", "head")

    def __init__(self) -> None:
        self._head = ctypes.c_uint64(0)
        self.head = ctypes.addressof(self._head)
        self._blocks: dict[int, AlignedBlock] = {}

    def take(self, nbytes: int) -> int:
        """The address of an arena of at least ``nbytes``; may raise ``MemoryError``."""
        while (arena := self._head.value) != 0:
            self._head.value = _word(arena + NEXT).value
            if _word(arena + NBYTES).value >= nbytes:
                return arena
            del self._blocks[arena]  # too small now, and so for most calls to come
        return self._new(nbytes)

    def give_back(self, arena: int) -> None:
        """Return an arena to the list."""
        _word(arena + NEXT).value = self._head.value
        self._head.value = arena

    def add(self, nbytes: int) -> None:
        """Make sure that the first free arena has at least ``nbytes``."""
        self.give_back(self.take(nbytes))

    @property
    def nbytes(self) -> int:
        """The memory of all arenas, those in use included."""
        return sum(block.nbytes for block in self._blocks.values())

    def _new(self, nbytes: int) -> int:
        block = AlignedBlock(nbytes + ALIGNMENT)
        arena = block.address + ALIGNMENT
        self._blocks[arena] = block
        _word(arena + NBYTES).value = nbytes
        return arena


def _word(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)
