"""The block of the constants of a program, packed in a thread while its kernels are built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from weft.compiler.program.constants import PlacedConstants, constant_layout, pack_into
from weft.runtime.arena import AlignedBlock, address_of
from weft.support.cache_entry import EntryWriter
from weft.support.dataclass import dataclass

# Fewer bytes are packed at once, without a thread.
_THREAD_BYTES = 1 << 20
# Bytes after which the entry in the cache is continued.
_WRITE_BYTES = 4 << 20


@dataclass
class OwnBlock:
    """One block for the constants of a program, aligned to 64 bytes and read-only.

    ``new_entry`` gives the file of the cache that starts with the block of a number of bytes, and
    is written while the block is packed. ``forget`` is called with each constant that will not be
    read again.
    """

    new_entry: Callable[[int], EntryWriter | None] | None = None
    forget: Callable[[np.ndarray], None] | None = None
    _packing: _Packing | None = field(default=None, init=False)

    def begin(self, constants: Sequence[np.ndarray]) -> None:
        """See ``ConstantMemory``."""
        self._packing = self._begun(constants)

    def place(self, constants: Sequence[np.ndarray]) -> PlacedConstants:
        """See ``ConstantMemory``."""
        packing = self._packing = self._begun(constants)
        packing.finish()
        return PlacedConstants(packing.offsets, packing.block, packing.block.nbytes)

    def _begun(self, constants: Sequence[np.ndarray]) -> _Packing:
        """The packing of these constants, begun now or before.

        A program that is lowered again may have others than at first, of which some are forgotten.
        """
        packing = self._packing
        if packing is not None and packing.is_of(constants):
            return packing
        offsets, total = constant_layout(constants)
        if packing is None:
            entry = None if self.new_entry is None else self.new_entry(total)
            return _Packing(constants, constants, offsets, total, entry, self.forget)
        packing.finish()
        packing.abandon()
        return _Packing(constants, [*map(packing.copy_of, constants)], offsets, total)

    def entry_of(self, block: np.ndarray) -> EntryWriter | None:
        """The file whose content so far is ``block``."""
        packing = self._packing
        if packing is None or packing.block is not block:
            return None
        entry = packing.entry
        return entry if entry is not None and entry.is_open else None

    def abandon(self) -> None:
        """Remove a file that was begun and is not needed."""
        if self._packing is not None:
            self._packing.finish(quietly=True)
            self._packing.abandon()


class _Packing:
    """Constants on their way to a block, from ``sources`` of the same content."""

    def __init__(self, constants: Sequence[np.ndarray], sources: Sequence[np.ndarray],
                 offsets: Sequence[int], total: int, entry: EntryWriter | None = None,
                 forget: Callable[[np.ndarray], None] | None = None) -> None:
        self.originals = tuple(constants)
        self.offsets = tuple(offsets)
        self.block = AlignedBlock(total).array
        self.entry = entry
        self._sources = tuple(sources)
        self._forget = forget
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if total > _THREAD_BYTES:
            self._thread = threading.Thread(target=self._pack, daemon=True, name="weft pack")
            self._thread.start()
        else:
            self._pack()

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

    def finish(self, *, quietly: bool = False) -> None:
        """Wait for the end; raises what packing raised."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None and not quietly:
            raise self._error
        self.block.flags.writeable = False

    def abandon(self) -> None:
        if self.entry is not None:
            self.entry.abandon()

    def _pack(self) -> None:
        try:
            last_uses = _last_uses(self._sources) if self._forget is not None else ()
            written = 0
            for number, end in enumerate(pack_into(self.block, self._sources, self.offsets)):
                if end - written >= _WRITE_BYTES or end == self.block.size:
                    self._write(written, end)
                    written = end
                if number < len(last_uses) and last_uses[number] and self._forget is not None:
                    self._forget(self._sources[number])
        except BaseException as error:  # noqa: BLE001 - raised by finish()
            self._error = error

    def _write(self, start: int, end: int) -> None:
        if self.entry is not None:
            self.entry.append(self.block[start:end].data)


def byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """The address of the first byte of an array, and the one after its last."""
    low = high = address_of(array)
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    return (low, high + array.itemsize) if array.size else (0, 0)


def _last_uses(arrays: Sequence[np.ndarray]) -> list[bool]:
    """Whether no later array shares memory with each, such as another view of a tied weight."""
    bounds = np.array([*map(byte_bounds, arrays)], np.uint64).reshape(-1, 2)
    lows, highs = bounds[:, 0], bounds[:, 1]
    return [not bool(np.any((lows[n + 1 :] < high) & (highs[n + 1 :] > low)))
            for n, (low, high) in enumerate(bounds)]
