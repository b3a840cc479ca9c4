"""The header of GGUF files, versions 2 and 3: metadata, and arrays over a memory map.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes the format. Every size is
compared with the bytes that are left before it is used, so a header cannot make the reader
allocate more than the file has.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from weft.models.architecture import BlockWeight
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.support.safetensors_file import map_file
from weft.topi.nn.block_formats import FORMATS

VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_MOST_DIMENSIONS, _MOST_DEPTH = 4, 4
# Types of tensors by number: dtypes, and formats of blocks.
_DTYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float16), 24: np.dtype(np.int8),
           25: np.dtype(np.int16), 26: np.dtype(np.int32), 27: np.dtype(np.int64),
           28: np.dtype(np.float64), 30: np.dtype(ml_dtypes.bfloat16)}
_BLOCKS = {2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k",
           12: "q4_k", 13: "q5_k", 14: "q6_k", 20: "iq4_nl"}


@dataclass
class GgufFile:
    """``metadata`` by key, and the tensors by name, in the order of axes of NumPy."""

    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray | BlockWeight] = field(default_factory=dict)


def read_gguf(path: Path) -> GgufFile:
    """The metadata and the mapped tensors of a file.

    Raises ``InvalidModelError`` for a damaged file, ``UnsupportedModelError`` for other versions
    and for types of tensors that weft does not know.
    """
    cursor = _Cursor(path, map_file(path))
    if cursor.read(4) != b"GGUF":
        raise cursor.damaged("the letters GGUF at the start", bytes(cursor.data[:4]))
    version = cursor.scalar("I")
    if version not in VERSIONS:
        raise UnsupportedModelError("a GGUF file of an unknown version", where=path,
                                    expected=" or ".join(map(str, VERSIONS)), got=version)
    tensors, entries = cursor.scalar("Q"), cursor.scalar("Q")
    found = GgufFile(path)
    for _ in range(entries):
        key = cursor.string()
        found.metadata[key] = cursor.value(cursor.scalar("I"))
    infos = [_read_info(cursor) for _ in _within(tensors, cursor)]
    alignment = found.metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 16:
        raise cursor.damaged("an alignment between 1 and 65536", alignment)
    start = -(-cursor.at // alignment) * alignment
    for name, shape, kind, offset in infos:
        found.tensors[name] = _tensor(cursor, name, shape, kind, start + offset)
    return found


class _Cursor:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0

    def damaged(self, expected: str, got: object) -> InvalidModelError:
        return InvalidModelError("a GGUF file is damaged or cut short", where=self.path,
                                 expected=expected, got=str(got)[:120])

    def take(self, size: int) -> int:
        """The position of the next ``size`` bytes, which it passes."""
        if size > len(self.data) - self.at:
            raise self.damaged(f"{size} bytes at {self.at}", f"{len(self.data)} bytes in all")
        self.at += size
        return self.at - size

    def read(self, size: int) -> bytes:
        at = self.take(size)
        return self.data[at:at + size]

    def scalar(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        return struct.unpack_from(f"<{code}", self.data, self.take(size))[0]

    def string(self) -> str:
        return self.read(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == _MOST_DEPTH:
            raise self.damaged("a known type of a value", kind)
        inner, count = self.scalar("I"), self.scalar("Q")
        if inner not in _SCALARS:
            return [self.value(inner, depth + 1) for _ in _within(count, self)]
        dtype = np.dtype(f"<{_SCALARS[inner]}")
        if count > len(self.data):
            raise self.damaged("an array inside the file", f"{count} elements")
        return np.frombuffer(self.data, dtype, count, self.take(count * dtype.itemsize))


def _within(count: int, cursor: _Cursor) -> range:
    """``range(count)``, of things that take 8 bytes at least."""
    if count > (len(cursor.data) - cursor.at) // 8:
        raise cursor.damaged("a header inside the file", f"{count} entries")
    return range(count)


def _read_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, dimensions = cursor.string(), cursor.scalar("I")
    if dimensions > _MOST_DIMENSIONS:
        raise cursor.damaged(f"at most {_MOST_DIMENSIONS} dimensions of {name}", dimensions)
    shape = tuple(cursor.scalar("Q") for _ in range(dimensions))[::-1]
    return name, shape, cursor.scalar("I"), cursor.scalar("Q")


def _tensor(cursor: _Cursor, name: str, shape: tuple[int, ...], kind: int, offset: int
            ) -> np.ndarray | BlockWeight:
    if kind not in _DTYPES and kind not in _BLOCKS:
        raise UnsupportedModelError("a tensor of an unknown type", where=f"{cursor.path}, {name}",
                                    expected=", ".join(_BLOCKS.values()), got=kind)
    dtype = _DTYPES.get(kind, np.dtype(np.uint8))
    stored = shape
    if kind in _BLOCKS:
        form = FORMATS[_BLOCKS[kind]]
        if not shape or shape[-1] % form.elements:
            raise cursor.damaged(f"rows of {name} of whole blocks of {form.elements}", shape)
        stored = (*shape[:-1], form.row_bytes(shape[-1]))
    size = math.prod(stored) * dtype.itemsize
    if size > len(cursor.data) - offset:
        raise cursor.damaged(f"{size} bytes of {name} at {offset}", f"{len(cursor.data)} bytes")
    array = np.frombuffer(cursor.data, dtype, math.prod(stored), offset).reshape(stored)
    return BlockWeight(array, _BLOCKS[kind]) if kind in _BLOCKS else array
