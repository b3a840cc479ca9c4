"""The constants of a program, deduplicated by content."""

from __future__ import annotations

import hashlib

import numpy as np

# Larger arrays are compared instead of hashed: most of them differ in the first sample.
_HASHED_BYTES = 64 << 10
_SAMPLES = 64


def constant_key(data: np.ndarray) -> tuple[object, ...]:
    """A key that is equal for arrays with the same bytes, regardless of shape and dtype."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return raw.size, hashlib.blake2b(raw.data, digest_size=32).digest()


class ConstantPool:
    """Distinct arrays, by number.

    Most weights differ in size, so only arrays of equal size are read. Large arrays with elements
    of different sizes stay apart.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._first: dict[int, int] = {}  # number of the first array of each size
        self._is_read: set[int] = set()  # arrays that have been read
        self._known: dict[int, int] = {}  # numbers of arrays, by the identity of the objects
        self._numbers: dict[tuple[object, ...], list[int]] = {}

    def number_of(self, data: np.ndarray) -> int:
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

    def _added(self, data: np.ndarray) -> int:
        number = self._known[id(data)] = len(self.arrays)
        self.arrays.append(data)  # which keeps the identity
        return number


def _key(data: np.ndarray) -> tuple[object, ...]:
    """Equal for arrays with the same bytes, of large ones if their elements have one size."""
    if data.nbytes <= _HASHED_BYTES:
        return constant_key(data)
    positions = np.linspace(0, data.size - 1, _SAMPLES).astype(np.int64)
    return data.nbytes, data.itemsize, data[np.unravel_index(positions, data.shape)].tobytes()


def _have_same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        one, other = one.reshape(-1), other.reshape(-1)
    bits = np.dtype(f"V{one.itemsize}") if one.itemsize > 8 else np.dtype(f"u{one.itemsize}")
    return bool(np.array_equal(one.view(bits), other.view(bits)))
