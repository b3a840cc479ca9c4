"""Tensors of a checkpoint of TensorFlow, a bundle of an index and shards of data.

The index is a sorted table of blocks (``tensorflow/core/lib/io/table``): keys share prefixes with
the key before, each block ends with a checksum, and a footer says where the block of blocks is. The
values are messages that say where a tensor lies in which shard. Tensors are read when they are
asked for; their bytes have checksums, too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from weft.compat.graphdef.crc32c import masked_crc32c
from weft.compat.graphdef.definitions import ForeignType
from weft.compat.graphdef.messages import message_class
from weft.compat.graphdef.tensor_values import shape_of, type_of
from weft.support.errors import InvalidModelError, UnsupportedModelError

_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
_MOST_BYTES = 1 << 40


class Checkpoint:
    """A checkpoint by the common start of the names of its files (``variables/variables``).

    Raises ``InvalidModelError`` for damaged files, ``UnsupportedModelError`` for tensors that are
    stored in slices, compressed, or of a type that weft lacks.
    """

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        self._index = prefix.with_name(f"{prefix.name}.index")
        try:
            data = self._index.read_bytes()
        except OSError as error:
            raise InvalidModelError(f"{self._index} cannot be read", got=str(error)) from None
        entries = dict(self._entries(data))
        header = self._message("BundleHeaderProto", entries.pop(b"", b""))
        if header.endianness:
            raise UnsupportedModelError("a checkpoint of a big-endian machine", where=self._index)
        if not 0 < header.num_shards < 1 << 20:
            raise self._damaged("the number of shards", header.num_shards)
        self._count = int(header.num_shards)
        self._entry = {key.decode("utf-8", "replace"): value for key, value in entries.items()}

    def tensor(self, key: str) -> np.ndarray:
        """The tensor ``key``."""
        if key not in self._entry:
            raise InvalidModelError(f"the checkpoint has no tensor {key!r}", where=self._index)
        entry = self._message("BundleEntryProto", self._entry[key])
        dtype, shape = type_of(entry.dtype), shape_of(entry.shape).dims
        if isinstance(dtype, ForeignType) or entry.slices:
            raise UnsupportedModelError(
                f"the checkpoint's tensor {key!r} cannot be read", where=self._index,
                got="slices" if entry.slices else str(dtype))
        if shape is None or None in shape:
            raise self._damaged(f"the shape of {key!r}", shape)
        sizes = tuple(size for size in shape if size is not None)
        data = self._bytes(entry, key)
        if len(data) != math.prod(sizes) * dtype.itemsize:
            raise self._damaged(f"the size of {key!r}", f"{len(data)} bytes for {sizes} {dtype}")
        if masked_crc32c(data) != entry.crc32c:
            raise self._damaged(f"the data of {key!r}", "another checksum")
        return np.frombuffer(data, dtype.numpy).reshape(sizes)

    def _bytes(self, entry: Any, key: str) -> bytes:
        """The bytes of a tensor. A shard is not mapped: truncating it would end the process."""
        if not 0 <= entry.shard_id < self._count:
            raise self._damaged("the number of a shard", entry.shard_id)
        name = f"{self._prefix.name}.data-{entry.shard_id:05d}-of-{self._count:05d}"
        path = self._prefix.with_name(name)
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if not 0 <= entry.offset <= entry.offset + entry.size <= size:
                    raise self._damaged(f"the position of {key!r}",
                                        f"{entry.offset} + {entry.size} of {size} bytes")
                file.seek(entry.offset)
                return file.read(entry.size)
        except OSError as error:
            raise InvalidModelError(f"{path} cannot be read", got=str(error)) from None

    def _entries(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys and values of the table."""
        if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
            raise self._damaged("the end of the table", repr(data[-8:]))
        try:
            footer = _Bytes(data[-_FOOTER:-8])
            footer.varint(), footer.varint()  # the block of meta data, which is empty
            blocks = self._block(data, footer.varint(), footer.varint())
            for _, handle in _pairs(blocks):
                at = _Bytes(handle)
                yield from _pairs(self._block(data, at.varint(), at.varint()))
        except (IndexError, ValueError, struct.error) as error:
            raise self._damaged("the table", str(error)) from None

    def _block(self, data: bytes, start: int, size: int) -> bytes:
        end = start + size
        if end + _TRAILER > len(data):
            raise ValueError(f"a block of {size} bytes at {start}")
        if data[end]:
            raise UnsupportedModelError("a compressed block", where=self._index)
        (stored,) = struct.unpack("<I", data[end + 1:end + _TRAILER])
        if masked_crc32c(data[start:end + 1]) != stored:
            raise ValueError(f"the block at {start} has another checksum")
        return data[start:end]

    def _message(self, name: str, data: bytes) -> Any:
        from google.protobuf.message import DecodeError

        message = message_class(name)()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise self._damaged("an entry", str(error)) from None
        return message

    def _damaged(self, what: str, got: object) -> InvalidModelError:
        return InvalidModelError(f"the checkpoint is damaged: {what}", where=self._index,
                                 got=str(got))


class _Bytes:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def varint(self) -> int:
        """A number of 7 bits in each byte, the low ones first."""
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        if value > _MOST_BYTES:
            raise ValueError(f"a length of {value} bytes")
        return value

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        found = self._data[self.at:self.at + count]
        if len(found) < count:
            raise ValueError(f"{count} bytes behind the end")
        self.at += count
        return found


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block; the positions of whole keys at its end are left out."""
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError(f"{restarts} positions in a block of {len(block)} bytes")
    read, key = _Bytes(block[:end]), b""
    while read.at < end:
        shared, rest, length = read.varint(), read.varint(), read.varint()
        if shared > len(key):
            raise ValueError(f"a key shares {shared} bytes with one of {len(key)}")
        key = key[:shared] + read.take(rest)
        yield key, read.take(length)
