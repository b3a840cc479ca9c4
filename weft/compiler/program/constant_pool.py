"""The constants of a program, deduplicated by content."""

from __future__ import annotations

import hashlib

import numpy as np


def constant_key(data: np.ndarray) -> tuple[object, ...]:
    """A key that is equal for arrays with the same bytes, regardless of shape and dtype."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return raw.size, hashlib.blake2b(raw.data, digest_size=32).digest()


class ConstantPool:
    """Distinct arrays, by number.

    Most weights differ in size, so only arrays of equal size are hashed, once each.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._first: dict[int, int] = {}  # number of the first array of each size
        self._is_read: set[int] = set()  # arrays that have been hashed
        self._numbers: dict[tuple[object, ...], int] = {}

    def number_of(self, data: np.ndarray) -> int:
        """The number of the array with the bytes of ``data``; it may have another shape."""
        first = self._first.setdefault(data.nbytes, len(self.arrays))
        if first == len(self.arrays):
            self.arrays.append(data)
            return first
        if first not in self._is_read:
            self._is_read.add(first)
            self._numbers[constant_key(self.arrays[first])] = first
        number = self._numbers.setdefault(constant_key(data), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(data)
        return number
