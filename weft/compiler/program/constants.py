"""The constants of a program: deduplicated by content, packed by threads, and kept in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

import numpy as np

from weft.compiler.program.memory_plan import aligned
from weft.compiler.program.packing import Packing, SourceMemory
from weft.ir.deferred import Array, Deferred, copy_elements
from weft.ir.dtype import DType
from weft.runtime.arena import AlignedBlock, address_of
from weft.runtime.manifest import ConstantSpec, Manifest
from weft.support.cache_entry import EntryWriter
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PlacedConstants:
    """``offsets``, in bytes from the start of ``block``, of the constants of a program.

    ``block`` has ``nbytes``; offsets outside of it are in ``kept``, which the code must not
    outlive.
    """

    offsets: tuple[int, ...]
    block: np.ndarray
    nbytes: int
    kept: tuple[np.ndarray, ...] = ()


class ConstantMemory(Protocol):
    """Memory for constants.

    ``source`` is the memory that they are copied from, if parts of it can be given back.
    """

    source: SourceMemory | None

    def begin(self, constants: Sequence[Array]) -> None:
        """Start to copy constants there, before it is known whether they are needed."""
        ...

    def place(self, constants: Sequence[Array]) -> PlacedConstants:
        """Copy constants there, or find them."""
        ...


# Gives the memory of the constants; ``True``: a failure is not followed by another attempt.
Memory: TypeAlias = "Callable[[bool], ConstantMemory]"


class BesideBlock:
    """The block of another program, and memory of its own for constants that are not in it.

    The code addresses both from the start of the block, so it is valid in this process only.
    """

    source = None

    def __init__(self, manifest: Manifest, block: np.ndarray) -> None:
        self._block = block
        self._known: dict[int, list[int]] = {}
        for spec in manifest.constants:
            self._known.setdefault(spec.nbytes, []).append(spec.offset)

    def begin(self, constants: Sequence[Array]) -> None:
        """See ``ConstantMemory``; most of them are there."""

    def place(self, constants: Sequence[Array]) -> PlacedConstants:
        """See ``ConstantMemory``."""
        found = [self._find(array) for array in constants]
        new = [array for array, offset in zip(constants, found, strict=True) if offset is None]
        offsets_of_new, total = constant_layout(new)
        own = pack_constants(new, offsets_of_new, total)
        distance = address_of(own) - address_of(self._block)
        rest = iter(offsets_of_new)
        offsets = [next(rest) + distance if offset is None else offset for offset in found]
        return PlacedConstants(tuple(offsets), self._block, self._block.nbytes,
                               (own,) if new else ())

    def _find(self, array: Array) -> int | None:
        raw = _bytes_of(array)
        for offset in self._known.get(raw.nbytes, ()):
            if np.array_equal(self._block[offset : offset + raw.nbytes], raw):
                return offset
        return None


def constant_layout(constants: Iterable[Array]) -> tuple[list[int], int]:
    """The aligned byte offset of every constant, and the size of all."""
    offsets, at = [], 0
    for array in constants:
        offsets.append(at)
        at += aligned(array.nbytes)
    return offsets, at


def pack_constants(
    constants: Sequence[Array], offsets: Sequence[int], total: int
) -> np.ndarray:
    """The constants at their offsets in one block, aligned to 64 bytes and read-only."""
    blob = AlignedBlock(total, purpose="the constants of the program").array
    for _ in pack_into(blob, constants, offsets):
        pass
    blob.flags.writeable = False
    return blob


def pack_into(blob: np.ndarray, constants: Sequence[Array], offsets: Sequence[int]
              ) -> Iterator[int]:
    """Copy each constant to its offset; yields how many bytes from the start are there."""
    at = 0
    for array, offset in zip(constants, offsets, strict=True):
        blob[at:offset] = 0  # padding is part of artifacts, and equal models give equal artifacts
        at = offset + array.nbytes
        copy_elements(blob[offset:at].view(array.dtype).reshape(array.shape), array)
        yield at
    blob[at:] = 0
    yield blob.size


def constant_specs(constants: Sequence[Array], offsets: Sequence[int]
                   ) -> tuple[ConstantSpec, ...]:
    """The constants as a manifest describes them."""
    return tuple(ConstantSpec(offset, str(DType.of(array.dtype)), tuple(array.shape))
                 for array, offset in zip(constants, offsets, strict=True))


def _bytes_of(array: Array) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# Larger arrays are compared instead of hashed: most of them differ in the first sample.
_HASHED_BYTES = 64 << 10
_SAMPLES = 64


def constant_key(data: Array) -> tuple[object, ...]:
    """A key that is equal for arrays with the same bytes, regardless of shape and dtype."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return raw.size, hashlib.blake2b(raw.data, digest_size=32).digest()


class ConstantPool:
    """Distinct arrays, by number.

    Most weights differ in size, so only arrays of equal size are read. Large arrays with elements
    of different sizes stay apart.
    """

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._first: dict[int, int] = {}  # number of the first array of each size
        self._is_read: set[int] = set()  # arrays that have been read
        self._known: dict[int, int] = {}  # numbers of arrays, by the identity of the objects
        self._numbers: dict[tuple[object, ...], list[int]] = {}

    def number_of(self, data: Array) -> int:
        """The number of the array with the bytes of ``data``; it may have another shape."""
        known = self._known.get(id(data))
        if known is not None:
            return known
        first = self._first.setdefault(data.nbytes, len(self.arrays))
        if first == len(self.arrays):
            return self._added(data)
        if first not in self._is_read:
            self._is_read.add(first)
            self._numbers[_key(self.arrays[first])] = [first]
        alike = self._numbers.setdefault(_key(data), [])
        for number in alike:
            if data.nbytes <= _HASHED_BYTES or _have_same_bytes(self.arrays[number], data):
                return number
        alike.append(len(self.arrays))
        return self._added(data)

    def _added(self, data: Array) -> int:
        number = self._known[id(data)] = len(self.arrays)
        self.arrays.append(data)  # which keeps the identity
        return number


def _key(data: Array) -> tuple[object, ...]:
    """Equal for arrays with the same bytes, of large ones if their elements have one size."""
    if data.nbytes <= _HASHED_BYTES:
        return constant_key(data)
    at = np.unravel_index(np.linspace(0, data.size - 1, _SAMPLES).astype(np.int64), data.shape)
    samples = data.take(at) if isinstance(data, Deferred) else data[at]
    return data.nbytes, data.itemsize, samples.tobytes()


def _have_same_bytes(first: Array, second: Array) -> bool:
    one, other = np.asarray(first), np.asarray(second)
    if one.shape != other.shape:
        one, other = one.reshape(-1), other.reshape(-1)
    bits = np.dtype(f"V{one.itemsize}") if one.itemsize > 8 else np.dtype(f"u{one.itemsize}")
    return bool(np.array_equal(one.view(bits), other.view(bits)))


class SharedBlock:
    """One block for the constants of several programs, in which equal bytes are once.

    ``chunks`` are its bytes, whose sizes are multiples of the alignment.
    """

    source = None

    def __init__(self, block: np.ndarray | None = None, specs: Sequence[ConstantSpec] = ()) -> None:
        self.chunks: list[np.ndarray] = []
        self.nbytes = 0
        self._offsets: dict[tuple[object, ...], int] = {}
        if block is not None:
            self._append(np.asarray(block).reshape(-1).view(np.uint8))
            for spec in specs:
                part = self.chunks[0][spec.offset:spec.offset + spec.nbytes]
                self._offsets.setdefault(constant_key(part), spec.offset)

    def begin(self, constants: Sequence[Array]) -> None:
        """See ``ConstantMemory``; the constants are copied when they are placed."""

    def place(self, constants: Sequence[Array]) -> PlacedConstants:
        """See ``ConstantMemory``; the block is joined at the end."""
        offsets = tuple(map(self.add, constants))
        return PlacedConstants(offsets, np.empty(0, np.uint8), self.nbytes)

    def find(self, array: Array) -> int | None:
        """The offset of the bytes of ``array``; ``None`` if the block does not have them."""
        return self._offsets.get(constant_key(array))

    def add(self, array: Array) -> int:
        """The offset of the bytes of ``array``, which are added if the block lacks them."""
        key = constant_key(array)
        if key not in self._offsets:
            self._offsets[key] = self.nbytes
            self._append(_bytes_of(array).copy())
        return self._offsets[key]

    def _append(self, raw: np.ndarray) -> None:
        gap = aligned(raw.nbytes) - raw.nbytes
        self.chunks += [raw, np.zeros(gap, np.uint8)] if gap else [raw]
        self.nbytes += raw.nbytes + gap


@dataclass
class OwnBlock:
    """One block for the constants of a program, aligned to 64 bytes and read-only.

    ``new_entry`` gives the file of the cache that starts with the block of a number of bytes, and
    is written while the block is packed. ``source`` forgets each constant that will not be read
    again.
    """

    new_entry: Callable[[int], EntryWriter | None] | None = None
    source: SourceMemory | None = None
    _packing: Packing | None = field(default=None, init=False)

    def begin(self, constants: Sequence[Array]) -> None:
        """See ``ConstantMemory``."""
        self._packing = self._started(constants)

    def place(self, constants: Sequence[Array]) -> PlacedConstants:
        """See ``ConstantMemory``."""
        packing = self._packing = self._started(constants)
        packing.finish()
        return PlacedConstants(packing.offsets, packing.block, packing.block.nbytes)

    def _started(self, constants: Sequence[Array]) -> Packing:
        """The packing of these constants, which starts now unless ``begin`` has started it.

        A program that is lowered again may have other constants than at first. The content of some
        sources has been given back then, so those are copied from the first block.
        """
        packing = self._packing
        if packing is not None and packing.is_of(constants):
            return packing
        offsets, total = constant_layout(constants)
        if packing is None:
            entry = None if self.new_entry is None else self.new_entry(total)
            return Packing(constants, constants, offsets, total, entry, self.source)
        packing.finish()
        packing.abandon()
        return Packing(constants, [*map(packing.copy_of, constants)], offsets, total)

    def packing_of(self, block: np.ndarray) -> Packing | None:
        """The packing that writes ``block`` to the cache."""
        packing = self._packing
        is_kept = packing is not None and packing.block is block and packing.entry is not None
        return packing if is_kept else None

    def abandon(self) -> None:
        """Remove the unfinished file of a block that does not become an entry."""
        if self._packing is not None:
            self._packing.abandon()
