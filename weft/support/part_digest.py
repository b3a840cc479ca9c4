"""Digests of large data: the digest of the digests of parts of 4 MB.

The parts can be hashed while they are in a cache, by several threads.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

PART_BYTES = 4 << 20
# Below this, starting threads costs more than they save.
_PARALLEL_BYTES = 16 * PART_BYTES


class PartDigest:
    """The digest of a sequence of bytes that are appended."""

    def __init__(self) -> None:
        self._digests = hashlib.sha256()
        self._part = hashlib.sha256()
        self._left = PART_BYTES  # bytes that the current part lacks

    def update(self, data: bytes | memoryview) -> None:
        """Append bytes; ``data`` of a multiple of ``PART_BYTES`` keep parts whole."""
        view = as_bytes(data)
        while len(view):
            self._part.update(view[: self._left])
            taken = min(self._left, len(view))
            view = view[taken:]
            self._left -= taken
            if not self._left:
                self._digests.update(self._part.digest())
                self._part, self._left = hashlib.sha256(), PART_BYTES

    def digest(self) -> bytes:
        """The digest of the bytes so far, of 32 bytes."""
        found = self._digests.copy()
        if self._left < PART_BYTES:
            found.update(self._part.digest())
        return found.digest()


def as_bytes(data: bytes | memoryview) -> memoryview:
    """A contiguous buffer as bytes; an empty one cannot be cast."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def digest_of(data: bytes | memoryview, threads: int = 1) -> bytes:
    """The digest of ``data``, which ``threads`` compute."""
    view = as_bytes(data)
    starts = range(0, len(view), PART_BYTES)
    count = threads if len(view) >= _PARALLEL_BYTES else 1
    found = [b""] * len(starts)

    def hash_parts(numbers: Sequence[int]) -> None:
        for number in numbers:
            at = starts[number]
            found[number] = hashlib.sha256(view[at : at + PART_BYTES]).digest()

    others = [threading.Thread(target=hash_parts, args=(range(n, len(starts), count),), daemon=True)
              for n in range(1, count)]
    for thread in others:
        thread.start()
    hash_parts(range(0, len(starts), count))
    for thread in others:
        thread.join()
    return hashlib.sha256(b"".join(found)).digest()
