"""A caching allocator of device memory with stream-ordered reuse.

Allocating from the driver waits for the device, so freed blocks are kept, by size class. A block
that was last used on a stream may be used again on that stream at once: the new work comes after
the old. On another stream it is used again once an event says that the old work is done. When the
device's memory is exhausted, all kept blocks are returned to the driver, and the allocation is
tried again.

Blocks are freed by garbage collection, which may run at any bytecode of any thread, also of one
that holds the lock. ``give_back`` therefore only appends to a queue.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator

from weft.runtime.devices.cuda.driver import DEFAULT_STREAM, Driver
from weft.runtime.devices.cuda.errors import CudaError, DeviceMemoryError
from weft.support.dataclass import dataclass

ALIGNMENT = 512
_LARGE = 1 << 20


def size_class(nbytes: int) -> int:
    """The bytes of the block for ``nbytes``.

    Multiples of 512 up to 1 MiB; then an eighth of a power of two, so that at most 12.5 % are
    wasted.
    """
    if nbytes <= _LARGE:
        return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


class DeviceBlock:
    """Device memory from an allocator, which gets it back when the object is deleted.

    ``stream`` is the stream that uses it last.
    """

    __slots__ = ("__weakref__", "_finalizer", "address", "nbytes", "stream")

    def __init__(self, address: int, nbytes: int, stream: int, allocator: CachingAllocator) -> None:
        self.address = address
        self.nbytes = nbytes
        self.stream = stream
        self._finalizer = weakref.finalize(self, allocator.give_back, address, nbytes, stream)
        setattr(self._finalizer, "atexit", False)  # noqa: B010 - a property that the stubs lack

    @property
    def is_freed(self) -> bool:
        """Whether ``free`` was called."""
        return not self._finalizer.alive

    def free(self) -> None:
        """Give the memory back now; later uses of the address are errors."""
        self._finalizer()


@dataclass(slots=True)
class _Free:
    """A kept block; ``event`` happens when the work on ``stream`` that used it is done."""

    address: int
    stream: int
    event: int


class CachingAllocator:
    """Memory of one device; ``device`` is its number."""

    def __init__(self, driver: Driver, device: int) -> None:
        self._driver = driver
        self._device = device
        self._lock = threading.Lock()
        self._free: dict[int, list[_Free]] = {}
        self._returned: deque[tuple[int, int, int]] = deque()
        self._events: list[int] = []
        self._used = 0
        self._peak = 0
        self._kept = 0

    @property
    def used_bytes(self) -> int:
        """The bytes of blocks in use."""
        with self._lock:
            self._collect()
            return self._used

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were in use at a time."""
        with self._lock:
            return self._peak

    def reset_peak(self) -> None:
        """Count the peak from what is in use now."""
        with self._lock:
            self._collect()
            self._peak = self._used

    @property
    def kept_bytes(self) -> int:
        """The bytes of free blocks that are kept."""
        with self._lock:
            self._collect()
            return self._kept

    def allocate(self, nbytes: int, stream: int = DEFAULT_STREAM) -> DeviceBlock:
        """Memory for work on ``stream``; its content is undefined.

        Raises ``DeviceMemoryError`` with the amounts in use if the memory is exhausted.
        """
        size = size_class(nbytes)
        with self._lock:
            self._driver.activate(self._device)
            self._collect()
            address = self._reused(size, stream)
            if address is None:
                address = self._new(size)
            self._used += size
            self._peak = max(self._peak, self._used)
        return DeviceBlock(address, size, stream, self)

    def give_back(self, address: int, nbytes: int, stream: int) -> None:
        """Keep a block for reuse; safe in finalizers."""
        self._returned.append((address, nbytes, stream))

    def trim(self) -> None:
        """Return all free blocks to the driver, once the work that used them is done."""
        with self._lock:
            self._driver.activate(self._device)
            self._collect()
            self._release()

    def _collect(self) -> None:
        """Enter returned blocks into the lists of free blocks."""
        while self._returned:
            address, nbytes, stream = self._returned.popleft()
            event = self._events.pop() if self._events else self._driver.create_event()
            self._driver.record(event, stream)
            self._free.setdefault(nbytes, []).append(_Free(address, stream, event))
            self._used -= nbytes
            self._kept += nbytes

    def _reused(self, size: int, stream: int) -> int | None:
        """The address of a kept block that work on ``stream`` may use."""
        kept = self._free.get(size, [])
        for number in reversed(range(len(kept))):  # the last freed is most likely in the cache
            block = kept[number]
            if block.stream == stream or self._driver.is_done(block.event):
                del kept[number]
                self._events.append(block.event)
                self._kept -= size
                return block.address
        return None

    def _new(self, size: int) -> int:
        try:
            return self._driver.allocate(size)
        except DeviceMemoryError:
            self._release()
        try:
            return self._driver.allocate(size)
        except DeviceMemoryError as error:
            raise self._exhausted(size, error) from None

    def _release(self) -> None:
        if self._kept:
            self._driver.synchronize_device()
        for block in self._blocks():
            self._driver.free(block.address)
            self._events.append(block.event)
        self._free.clear()
        self._kept = 0

    def _blocks(self) -> Iterator[_Free]:
        for kept in self._free.values():
            yield from kept

    def _exhausted(self, size: int, error: CudaError) -> DeviceMemoryError:
        free, total = self._driver.memory()
        made = DeviceMemoryError(
            f"the memory of device cuda:{self._device} is exhausted",
            expected=f"{_mib(size)} more", got=f"{_mib(free)} free of {_mib(total)}",
            notes=(f"{_mib(self._used)} are in use by weft", ),
            help="delete device arrays and modules, or use smaller inputs")
        made.status = error.status
        return made


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 19 else f"{nbytes} bytes"
