"""Copying constants to one block, and the block to the disk cache, in threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Protocol

import numpy as np

from weft.runtime.arena import AlignedBlock, address_of
from weft.runtime.devices.cpu.host import usable_cpus
from weft.support.cache_entry import EntryWriter
from weft.support.dataclass import dataclass
from weft.support.stage_times import stage

# Fewer bytes are packed at once, without a thread.
_THREAD_BYTES = 1 << 20
# Fewer bytes are packed by one thread.
_MANY_THREADS_BYTES = 32 << 20
_MAX_THREADS = 4
_PART_BYTES = 4 << 20


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
    """Rows of a constant that are copied at once; ``start`` to ``end`` in the block.

    The last part of a constant has the zeros up to the next one.
    """

    source: np.ndarray
    place: np.ndarray
    start: int
    end: int


class Packing:
    """Constants on their way to a block, from ``sources`` of the same content.

    ``entry`` is written with the block; ``memory`` forgets each source that no part reads any
    more.
    """

    def __init__(self, constants: Sequence[np.ndarray], sources: Sequence[np.ndarray],
                 offsets: Sequence[int], total: int, entry: EntryWriter | None = None,
                 memory: SourceMemory | None = None) -> None:
        self.originals = tuple(constants)
        self.offsets = tuple(offsets)
        self.block = AlignedBlock(total, purpose="the constants of the program").array
        self.entry = entry
        self._parts = [*_parts(self.block, sources, self.offsets)]
        self._ends = [part.end for part in self._parts]
        self._forgetting = None
        if memory is not None:
            memory.keep_only(sources)
            self._forgetting = _Forgetting(self._parts, memory)
        self._taken = 0
        self._done = [False] * len(self._parts)
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._writer: threading.Thread | None = None
        self._threads: list[threading.Thread] = []
        if total <= _THREAD_BYTES:
            self._pack()
            self._write()
        else:
            self._start(total)

    def _start(self, total: int) -> None:
        count = min(usable_cpus(), _MAX_THREADS) if total >= _MANY_THREADS_BYTES else 1
        self._threads = [_thread(self._pack, "weft pack") for _ in range(count)]
        if self.entry is not None:
            self._writer = _thread(self._write, "weft write")
            self._writer.start()
        for thread in self._threads:
            thread.start()

    def is_of(self, constants: Sequence[np.ndarray]) -> bool:
        """Whether these are the constants, in this order."""
        return len(constants) == len(self.originals) and all(
            one is other for one, other in zip(constants, self.originals, strict=True))

    def copy_of(self, array: np.ndarray) -> np.ndarray:
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
        self._parts, self._forgetting = [], None  # which hold the sources
        if self._error is not None:
            raise self._error
        self.block.flags.writeable = False

    def finish_writing(self) -> None:
        """Wait until the block is in the file of the cache; the constants are not needed then."""
        self.originals = ()
        if self._writer is not None:
            self._writer.join()

    def abandon(self) -> None:
        """Remove the file of the cache, if it is not finished."""
        if self.entry is not None:
            self.entry.abandon()

    @stage("packing of weights")
    def _pack(self) -> None:
        try:
            while (number := self._next()) is not None:
                part = self._parts[number]
                np.copyto(part.place, part.source)  # packs and transposes
                self.block[part.start + part.place.nbytes : part.end] = 0
                with self._changed:
                    self._done[number] = True
                    self._changed.notify_all()
                if self._forgetting is not None:
                    self._forgetting.copied(number)
        except BaseException as error:  # noqa: BLE001 - raised by finish()
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            if self._taken == len(self._ends) or self._error is not None:
                return None
            self._taken += 1
            return self._taken - 1

    @stage("writing to the cache")
    def _write(self) -> None:
        start = 0
        for number, end in enumerate(self._ends):
            with self._changed:
                self._changed.wait_for(lambda n=number: self._done[n] or self._error is not None)
            if self._error is not None or self.entry is None or not self.entry.is_open:
                self.abandon()
                return
            self.entry.append(self.block[start:end].data)
            start = end


def _thread(run: Callable[[], None], name: str) -> threading.Thread:
    """A thread that has the settings of this one."""
    return threading.Thread(target=copy_context().run, args=(run,), daemon=True, name=name)


class _Forgetting:
    """Which parts have been copied, to forget those that share no memory with others left."""

    def __init__(self, parts: Sequence[_Part], memory: SourceMemory) -> None:
        self._sources = [part.source for part in parts]
        self._memory = memory
        self._sharing = _sharing(self._sources)
        self._left = [True] * len(self._sources)
        self._lock = threading.Lock()

    def copied(self, number: int) -> None:
        """Note that a part has been copied."""
        with self._lock:
            self._left[number] = False
            if not any(self._left[n] for n in self._sharing[number]):
                for n in self._sharing[number]:
                    self._memory.forget(self._sources[n])


def _parts(block: np.ndarray, sources: Sequence[np.ndarray], offsets: Sequence[int]
           ) -> Iterator[_Part]:
    for number, (array, offset) in enumerate(zip(sources, offsets, strict=True)):
        place = block[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
        end = offsets[number + 1] if number + 1 < len(offsets) else block.size
        rows = array.shape[0] if array.ndim else 1
        count = min(rows, -(-array.nbytes // _PART_BYTES)) if array.nbytes else 1
        cuts = [rows * n // count for n in range(count + 1)]
        start = offset
        for first, last in itertools.pairwise(cuts):
            source, to = (array[first:last], place[first:last]) if count > 1 else (array, place)
            stop = start + to.nbytes if last < rows else end
            yield _Part(source, to, start, stop)
            start = stop


def _sharing(arrays: Sequence[np.ndarray]) -> list[list[int]]:
    """For each array the numbers of those that share memory with it, itself among them."""
    bounds = np.array([*map(byte_bounds, arrays)], np.uint64).reshape(-1, 2)
    lows, highs = bounds[:, 0], bounds[:, 1]
    return [[*map(int, np.union1d(np.flatnonzero((lows < high) & (highs > low)), [n]))]
            for n, (low, high) in enumerate(bounds)]


def byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """The address of the first byte of an array, and the one after its last."""
    low = high = address_of(array)
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    return (low, high + array.itemsize) if array.size else (0, 0)
