"""The arenas of a program: memory for temporaries, used by one call at a time.

The free arenas form a linked list through two words in front of each: the next free arena, and its
size in bytes. ``PYTHON_CALL`` takes arenas from the list and returns them in machine code, in
one go as it holds Python's lock. Python code may be interrupted anywhere, so it takes the whole
list in one exchange of two words, and puts back what it does not need. All sizes that a program
runs at share one pool, which keeps arenas of the largest size seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from array import array

from weft.runtime.arena import ALIGNMENT, AlignedBlock
from weft.support.fork_locks import renew_in_child

# Byte offsets of the two words, relative to the arena.
NEXT, NBYTES = -16, -8
# From here on memory is mapped, and larger arenas than needed cost addresses alone.
_GROWING = 4 << 20


class ArenaPool:
    """``head`` is the address of the word that points to the first free arena."""

    __slots__ = ("__weakref__", "_blocks", "_largest", "_lock", "_words", "head")

    def __init__(self) -> None:
        # The head of the list, and the word that it is exchanged with.
        self._words = array("Q", (0, 0))
        self.head = self._words.buffer_info()[0]
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._blocks: dict[int, AlignedBlock] = {}
        self._largest = 0

    def take(self, nbytes: int) -> int:
        """The address of an arena of at least ``nbytes``; may raise ``MemoryError``."""
        with self._lock:
            arena = self._exchange(0)
            while arena:
                rest = _word(arena + NEXT).value
                if _word(arena + NBYTES).value >= nbytes:
                    self._put(rest)
                    return arena
                del self._blocks[arena]  # too small now, and so for most calls to come
                arena = rest
            return self._new(nbytes)

    def give_back(self, arena: int) -> None:
        """Return an arena to the list."""
        with self._lock:
            _word(arena + NEXT).value = self._exchange(0)
            self._put(arena)

    def add(self, nbytes: int) -> None:
        """Make sure that the first free arena has at least ``nbytes``."""
        with self._lock:  # ``take`` alone frees arenas
            first = self._words[0]
            if first and _word(first + NBYTES).value >= nbytes:
                return
        self.give_back(self.take(nbytes))

    @property
    def nbytes(self) -> int:
        """The memory of all arenas, those in use included."""
        with self._lock:
            return sum(block.nbytes for block in self._blocks.values())

    def _exchange(self, first: int) -> int:
        """Make ``first`` the head of the list; the old head. No other code runs in between."""
        self._words[1] = first
        self._words.reverse()
        return self._words[1]

    def _put(self, first: int) -> None:
        """Return a list of arenas."""
        while first and (returned := self._exchange(first)):
            # Meanwhile calls in machine code returned these.
            first = _joined(returned, self._exchange(0))

    def _new(self, nbytes: int) -> int:
        block, nbytes = self._allocated(nbytes)
        self._largest = max(self._largest, nbytes)
        arena = block.address + ALIGNMENT
        self._blocks[arena] = block
        _word(arena + NBYTES).value = nbytes
        return arena


    def _allocated(self, nbytes: int) -> tuple[AlignedBlock, int]:
        """Memory for an arena of ``nbytes`` or more, and its size."""
        if _GROWING <= self._largest < nbytes:
            # Lengths often grow step by step. Pages that no call touches take no memory.
            larger = max(nbytes, self._largest + self._largest // 2)
            with contextlib.suppress(MemoryError):
                return AlignedBlock(larger + ALIGNMENT), larger
        purpose = "the intermediate results of a call"
        return AlignedBlock(nbytes + ALIGNMENT, purpose=purpose), nbytes


def _joined(first: int, second: int) -> int:
    """Two lists as one."""
    last = first
    while following := _word(last + NEXT).value:
        last = following
    _word(last + NEXT).value = second
    return first


def _word(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)
