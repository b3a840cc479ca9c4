"""Memory for compiled code: aligned blocks, and pools of objects for concurrent calls."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from weft.runtime.devices.cpu.numpy_layout import DATA, known_layout
from weft.support.errors import AllocationError
from weft.support.fork_locks import renew_in_child

ALIGNMENT = 64
HUGE_PAGE = 2 << 20
_PURPOSE = "compiled code"

_pointer_at = ctypes.c_void_p.from_address

T = TypeVar("T")
# The address of the first byte, and the number of bytes.
Region: TypeAlias = "tuple[int, int]"


class AlignedBlock:
    """Bytes that start at a multiple of ``alignment``, or of 64; large blocks request huge pages.

    ``array`` is a writable ``uint8`` view of the whole block, ``address`` that of its first byte.
    A new block is zero or uninitialised. Raises ``AllocationError``, which names ``purpose``.
    """

    __slots__ = ("address", "array", "nbytes")

    def __init__(self, nbytes: int, alignment: int = ALIGNMENT, purpose: object = _PURPOSE
                 ) -> None:
        self.nbytes = nbytes
        size = max(nbytes, 1)  # the pointer of an empty array may be NULL
        memory, start = aligned_memory(size, max(alignment, ALIGNMENT), purpose)
        self.array = memory[start : start + nbytes]
        self.address = address_of(memory) + start


def address_of(array: np.ndarray) -> int:
    """The address of the first element."""
    if known_layout():  # six times as fast as __array_interface__, which takes 1 us
        return ctypes.c_void_p.from_address(id(array) + DATA).value or 0
    return int(array.__array_interface__["data"][0])


def addresses_of(arrays: Sequence[np.ndarray]) -> list[int]:
    """The addresses of the first elements."""
    if known_layout():
        return [(_pointer_at(id(array) + DATA).value or 0) for array in arrays]
    return [address_of(array) for array in arrays]


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The memory at an address as a C-contiguous array; the caller keeps the memory alive."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0 or not address:
        return np.empty(shape, dtype)
    raw = np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)
    return raw.view(dtype).reshape(shape)


def aligned_memory(nbytes: int, alignment: int = ALIGNMENT, purpose: object = _PURPOSE
                   ) -> tuple[np.ndarray, int]:
    """New memory, and the offset in it at which ``nbytes`` aligned bytes start.

    Raises ``AllocationError``, which names ``purpose``.
    """
    if nbytes < HUGE_PAGE:
        memory = np.empty(nbytes + alignment, np.uint8)
        return memory, -address_of(memory) % alignment
    alignment = max(alignment, HUGE_PAGE)
    memory = _mapped(nbytes, alignment, purpose)
    return memory, -address_of(memory) % alignment


def _mapped(nbytes: int, alignment: int, purpose: object) -> np.ndarray:
    """Memory in huge pages, which avoid TLB misses in weights and arenas of many MB."""
    try:
        pages = mmap.mmap(-1, nbytes + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):
        raise no_memory(nbytes, purpose) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def no_memory(nbytes: int, purpose: object) -> AllocationError:
    """The error for ``nbytes`` that the system does not give."""
    return AllocationError(f"cannot allocate memory for {purpose}", got=f"{nbytes} bytes",
                           help="use smaller sizes, or a machine with more memory")


def aligned_bytes(data: bytes | bytearray | memoryview | np.ndarray | AlignedBlock) -> np.ndarray:
    """``data`` as ``uint8`` at a multiple of 64: a view if it is aligned, otherwise a copy."""
    if isinstance(data, AlignedBlock):
        return data.array
    if isinstance(data, np.ndarray):
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    else:
        raw = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
    if address_of(raw) % ALIGNMENT == 0:
        return raw
    block = AlignedBlock(raw.size)
    block.array[:] = raw
    return block.array


class Pool(Generic[T]):
    """Objects that are used by one call at a time; it grows to the number of concurrent calls.

    ``deque`` appends and pops atomically, so no lock is needed.
    """

    __slots__ = ("_free", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: deque[T] = deque()

    def take(self) -> T:
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give_back(self, item: T) -> None:
        self._free.append(item)


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

    @property
    def regions(self) -> list[Region]:
        """The addresses and bytes of all arenas, those in use included."""
        with self._lock:
            return [(block.address, block.nbytes) for block in self._blocks.values()]

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
