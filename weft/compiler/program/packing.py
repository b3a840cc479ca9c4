"""Copying constants to one block, in threads.

Large constants go straight to the file of the cache, part by part through a buffer that stays in
the CPU's caches, and the program maps that file: the same pages are the memory of the program and
the entry that later starts map. Touching new memory costs more than copying, and so does writing
the block to a file once more.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Protocol

import numpy as np

from weft.ir.deferred import Array, copy_elements, memory_of
from weft.runtime.arena import AlignedBlock, address_of
from weft.runtime.devices.cpu.host import usable_cpus
from weft.support.cache_entry import HEADER_BYTES, EntryWriter
from weft.support.dataclass import dataclass
from weft.support.file_content import PART_BYTES, mapped_file
from weft.support.stage_times import stage

# Fewer bytes are packed at once, without a thread.
_THREAD_BYTES = 1 << 20
# Fewer bytes are packed by one thread.
_MANY_THREADS_BYTES = 32 << 20
_MAX_THREADS = 4
# Fewer bytes go to memory with the largest pages, and then to the file.
_MAPPED_BYTES = 16 << 20
# The system lets a process write this share of the machine's memory without waiting for the disk.
_UNHINDERED = 10
_PURPOSE = "the constants of the program"


class SourceMemory(Protocol):
    """The memory that weights are read from."""

    def keep_only(self, arrays: Sequence[np.ndarray]) -> None:
        """Forget what none of these arrays is a view of."""
        ...

    def forget(self, array: np.ndarray) -> None:
        """Forget what ``array`` is a view of, which will not be read again."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Bytes ``start`` to ``end`` of the block: views of constants, zeros between them.

    Each view has its number among all and the byte of the block where it starts.
    """

    start: int
    end: int
    views: tuple[tuple[int, int, Array], ...]

    def pack(self, to: np.ndarray) -> None:
        """Copy the views to memory for this part."""
        at = 0
        for _, start, source in self.views:
            first = start - self.start
            to[at:first] = 0  # padding is part of artifacts, and equal models give equal artifacts
            at = first + source.nbytes
            copy_elements(to[first:at].view(source.dtype).reshape(source.shape), source)
        to[at:] = 0


class Packing:
    """Constants on their way to a block, from ``sources`` of the same content.

    The entry of the cache, ``entry``, starts with the block, which is that file if ``is_mapped``.
    ``memory`` forgets each source that no part reads any more.
    """

    def __init__(self, constants: Sequence[Array], sources: Sequence[Array],
                 offsets: Sequence[int], total: int, entry: EntryWriter | None = None,
                 memory: SourceMemory | None = None) -> None:
        self._file = -1
        self.originals = tuple(constants)
        self.offsets = tuple(offsets)
        self.entry = entry
        self.block = np.empty(0, np.uint8)
        self._total = total
        self._file = entry.file(total) if entry is not None and _is_mapped(total, sources) else -1
        self.is_mapped = self._file >= 0
        if not self.is_mapped:
            self.block = AlignedBlock(total, purpose=_PURPOSE).array
        self._parts = [*_parts(sources, self.offsets, total)]
        self._forgetting = None
        if memory is not None:
            memory.keep_only([*map(memory_of, sources)])
            self._forgetting = _Forgetting([memory_of(view) for part in self._parts
                                            for _, _, view in part.views], memory)
        self._left = iter(self._parts)
        self._written: list[_Part] = []  # to the file
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        if total <= _THREAD_BYTES:
            self._pack()
            return
        count = min(usable_cpus(), _MAX_THREADS) if total >= _MANY_THREADS_BYTES else 1
        self._threads = [_thread(self._pack, "weft pack") for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def is_of(self, constants: Sequence[Array]) -> bool:
        """Whether these are the constants, in this order."""
        return len(constants) == len(self.originals) and all(
            one is other for one, other in zip(constants, self.originals, strict=True))

    def copy_of(self, array: Array) -> Array:
        """The copy in the block of a constant that may have been forgotten."""
        for known, offset in zip(self.originals, self.offsets, strict=True):
            if known is array:
                raw = self.block[offset : offset + array.nbytes]
                return raw.view(array.dtype).reshape(array.shape)
        return array

    def finish(self) -> None:
        """Wait until all constants are in the block; raises what copying raised."""
        for thread in self._threads:
            thread.join()
        self._parts, self._left, self._forgetting = [], iter(()), None  # which hold the sources
        if self._error is not None:
            raise self._error
        if self.is_mapped and not self.block.size:
            try:
                pages = mmap.mmap(self._file, HEADER_BYTES + self._total, access=mmap.ACCESS_READ)
                self.block = np.frombuffer(pages, np.uint8, offset=HEADER_BYTES)
            except (OSError, ValueError):  # a file system whose files cannot be mapped
                self._leave_file()
        self._close()
        self.block.flags.writeable = False

    def finish_writing(self) -> bool:
        """Write the block to the entry; the constants are not needed then. Whether it is there."""
        self.originals = ()
        if self.entry is None:
            return False
        if not self._written:
            self.entry.append(self.block.data)
            return self.entry.is_open
        return self.entry.join()

    def abandon(self) -> None:
        """Copy no more, and remove the file of the cache, if it is not finished."""
        with self._lock:
            self._left = iter(())
        if self.entry is not None:
            self.entry.abandon()

    @stage("packing of weights")
    def _pack(self) -> None:
        try:
            buffer = AlignedBlock(PART_BYTES).array if self.is_mapped else self.block
            while (part := self._next()) is not None:
                self._pack_part(part, buffer)
                if self._forgetting is not None:
                    for number, _, _ in part.views:
                        self._forgetting.copied(number)
        except BaseException as error:  # noqa: BLE001 - raised by finish()
            self._error = error
            self.abandon()

    def _pack_part(self, part: _Part, buffer: np.ndarray) -> None:
        if self.entry is None or not self.is_mapped:
            part.pack(self.block[part.start : part.end])
            return
        packed = buffer[: part.end - part.start]
        part.pack(packed)
        is_written = self.entry.place(self._file, part.start, packed.data)
        with self._lock:
            if is_written and self.is_mapped:
                self._written.append(part)
                return
            if self.is_mapped:
                self._leave_file()
        self.block[part.start : part.end] = packed

    def _leave_file(self) -> None:
        """Continue in memory, with what has been written to the file."""
        self.block = AlignedBlock(self._total, purpose=_PURPOSE).array
        for part in self._written:
            to = self.block[part.start : part.end].data
            os.preadv(self._file, [to], HEADER_BYTES + part.start)
        self.is_mapped = False

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        self._close()

    def _next(self) -> _Part | None:
        with self._lock:
            return next(self._left, None)


def _is_mapped(total: int, sources: Sequence[Array]) -> bool:
    """Whether a block of these bytes is to be the file of the cache.

    Not if writing would have to wait for the disk, unless most weights are mapped from files
    themselves: their user does not expect them to take memory.
    """
    if total < _MAPPED_BYTES or not hasattr(os, "pwrite"):
        return False
    mapped = sum(one.nbytes for one in sources if mapped_file(memory_of(one)) is not None)
    if 2 * mapped > total:
        return True
    return total <= os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // _UNHINDERED


def _thread(run: Callable[[], None], name: str) -> threading.Thread:
    """A thread that has the settings of this one."""
    return threading.Thread(target=copy_context().run, args=(run,), daemon=True, name=name)


def _parts(sources: Sequence[Array], offsets: Sequence[int], total: int) -> Iterator[_Part]:
    """The parts of a block, which have ``PART_BYTES`` each."""
    numbers = itertools.count()
    views: list[tuple[int, int, Array]] = []
    start = 0
    for source, offset in zip(sources, offsets, strict=True):
        at, last = offset, offset + source.nbytes
        while at < last:
            end = min(start + PART_BYTES, total)
            if at >= end:
                yield _Part(start, end, tuple(views))
                start, views = end, []
                continue
            stop = min(last, end)
            first = at
            bounds = (at - offset) // source.itemsize, (stop - offset) // source.itemsize
            for view in _range(source, *bounds):
                views.append((next(numbers), first, view))
                first += view.nbytes
            at = stop
    yield _Part(start, total, tuple(views))


def _range(array: Array, first: int, last: int) -> Iterator[Array]:
    """The elements ``first`` to ``last`` of an array, in the order of its axes, as views of it."""
    if last - first == array.size:
        yield array
        return
    row = array.size // array.shape[0]
    begin, end = -(-first // row), last // row  # of the whole rows
    if begin > end:
        yield from _range(array[end], first - end * row, last - end * row)
        return
    if first < begin * row:
        yield from _range(array[begin - 1], first - (begin - 1) * row, row)
    if begin < end:
        yield array[begin:end]
    if end * row < last:
        yield from _range(array[end], 0, last - end * row)


class _Forgetting:
    """Counts the views left that share memory with each view; with the last it is forgotten."""

    def __init__(self, sources: Sequence[np.ndarray], memory: SourceMemory) -> None:
        self._sources = sources
        self._memory = memory
        self._sharing = _sharing(self._sources)
        self._left = [*map(len, self._sharing)]
        self._lock = threading.Lock()

    def copied(self, number: int) -> None:
        """Note that a view has been copied."""
        with self._lock:
            for n in self._sharing[number]:
                self._left[n] -= 1
                if not self._left[n]:
                    self._memory.forget(self._sources[n])


def _sharing(arrays: Sequence[np.ndarray]) -> list[list[int]]:
    """For each array the numbers of those that share memory with it, itself among them."""
    bounds = np.array([*map(byte_bounds, arrays)], np.uint64).reshape(-1, 2)
    lows, highs = bounds[:, 0], bounds[:, 1]
    share = [(lows < high) & (highs > low) for low, high in bounds]
    for n, mask in enumerate(share):
        mask[n] = True  # also of an empty array
    return [np.flatnonzero(mask).tolist() for mask in share]


def byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """The address of the first byte of an array, and the one after its last."""
    low = high = address_of(array)
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    return (low, high + array.itemsize) if array.size else (0, 0)
