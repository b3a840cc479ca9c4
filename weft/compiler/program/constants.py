"""Where the constants of a program are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from weft.compiler.program.memory_plan import aligned
from weft.ir.dtype import DType
from weft.runtime.arena import AlignedBlock, address_of
from weft.runtime.manifest import ConstantSpec, Manifest
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
    """Memory for constants."""

    def begin(self, constants: Sequence[np.ndarray]) -> None:
        """Start to copy constants there, before it is known whether they are needed."""
        ...

    def place(self, constants: Sequence[np.ndarray]) -> PlacedConstants:
        """Copy constants there, or find them."""
        ...


class BesideBlock:
    """The block of another program, and memory of its own for constants that are not in it.

    The code addresses both from the start of the block, so it is valid in this process only.
    """

    def __init__(self, manifest: Manifest, block: np.ndarray) -> None:
        self._block = block
        self._known: dict[int, list[int]] = {}
        for spec in manifest.constants:
            self._known.setdefault(spec.nbytes, []).append(spec.offset)

    def begin(self, constants: Sequence[np.ndarray]) -> None:
        """See ``ConstantMemory``; most of them are there."""

    def place(self, constants: Sequence[np.ndarray]) -> PlacedConstants:
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

    def _find(self, array: np.ndarray) -> int | None:
        raw = _bytes_of(array)
        for offset in self._known.get(raw.nbytes, ()):
            if np.array_equal(self._block[offset : offset + raw.nbytes], raw):
                return offset
        return None


def constant_layout(constants: Iterable[np.ndarray]) -> tuple[list[int], int]:
    """The aligned byte offset of every constant, and the size of all."""
    offsets, at = [], 0
    for array in constants:
        offsets.append(at)
        at += aligned(array.nbytes)
    return offsets, at


def pack_constants(
    constants: Sequence[np.ndarray], offsets: Sequence[int], total: int
) -> np.ndarray:
    """The constants at their offsets in one block, aligned to 64 bytes and read-only."""
    blob = AlignedBlock(total, purpose="the constants of the program").array
    for _ in pack_into(blob, constants, offsets):
        pass
    blob.flags.writeable = False
    return blob


def pack_into(blob: np.ndarray, constants: Sequence[np.ndarray], offsets: Sequence[int]
              ) -> Iterator[int]:
    """Copy each constant to its offset; yields how many bytes from the start are there."""
    at = 0
    for array, offset in zip(constants, offsets, strict=True):
        blob[at:offset] = 0  # padding is part of artifacts, and equal models give equal artifacts
        at = offset + array.nbytes
        place = blob[offset:at].view(array.dtype).reshape(array.shape)
        np.copyto(place, array)  # packs and transposes
        yield at
    blob[at:] = 0
    yield blob.size


def constant_specs(constants: Sequence[np.ndarray], offsets: Sequence[int]
                   ) -> tuple[ConstantSpec, ...]:
    """The constants as a manifest describes them."""
    return tuple(ConstantSpec(offset, str(DType.of(array.dtype)), tuple(array.shape))
                 for array, offset in zip(constants, offsets, strict=True))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
