"""The file of one entry of the disk cache: a header, then the payload."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from weft.support.file_content import PART_BYTES, DigestPart, PartChecksum, as_bytes, checksum_of
from weft.support.libc import reserve_space

_MAGIC = b"weftcch4"
# Magic, payload length, checksum; keeps a mapped payload 64-byte aligned.
HEADER_BYTES = 64
# The system gives the file pages as large as a write; hypervisors take long for new pages of 2 MB.
_WRITE_BYTES = 1 << 20


class EntryWriter:
    """An entry that is written part by part, under a temporary name until ``finish``.

    Its folder exists; only the user may read and write the file.

    ``on_error`` is called with the error that ends the writing, such as a full disk; nothing else
    raises ``OSError``. An entry that is not finished is removed.
    """

    def __init__(self, path: Path, on_error: Callable[[OSError], None]) -> None:
        self._path = path
        self._on_error = on_error
        self._checksum = PartChecksum()
        self._process = os.getpid()
        self._handle = -1
        self._name = ""
        self._placed: dict[int, tuple[DigestPart, int]] = {}
        self._error: OSError | None = None
        self.size = 0
        with self._errors_reported():
            self._handle, self._name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)

    @property
    def is_open(self) -> bool:
        """Whether more can be written."""
        return self._handle >= 0

    def append(self, data: bytes | memoryview) -> None:
        """Write more of the payload."""
        view = as_bytes(data)
        with self._errors_reported():
            while len(view) and self.is_open:
                part, view = view[:PART_BYTES], view[PART_BYTES:]
                self._checksum.update(part)
                _write_all(self._handle, part, HEADER_BYTES + self.size)  # while it is in a cache
                self.size += len(part)

    def file(self, nbytes: int = 0) -> int:
        """A file descriptor of the entry for ``place``, which the caller closes; -1: no file.

        ``nbytes`` of the payload get their space on the disk at once: page by page takes longer.
        """
        with self._errors_reported():
            if self.is_open:
                reserve_space(self._handle, HEADER_BYTES + nbytes)
                return os.dup(self._handle)
        return -1

    def place(self, file: int, start: int, data: memoryview) -> bool:
        """Write the part at ``start``, from any thread; ``False`` if that is not possible.

        The payload begins with such parts, all of which but the last have ``PART_BYTES``.
        """
        part = self._checksum.new_part()
        part.update(data)
        self._placed[start] = part, len(data)
        try:
            if self.is_open and self._error is None:
                _write_all(file, data, HEADER_BYTES + start)
                return True
        except OSError as error:  # ``join`` reports it: other threads may be writing
            self._error = error
        return False

    def join(self) -> bool:
        """Continue with ``append`` behind the parts; ``False`` if one could not be written."""
        with self._errors_reported():
            if self._error is not None:
                raise self._error
        parts = [self._placed[start] for start in sorted(self._placed)]
        self._checksum.extend(parts)
        self.size = sum(nbytes for _, nbytes in parts)
        return self.is_open

    def finish(self) -> bool:
        """Give the entry its name; ``False`` if it was not written."""
        with self._errors_reported():
            if self.is_open:
                header = _MAGIC + self.size.to_bytes(8, "little") + self._checksum.digest()
                _write_all(self._handle, memoryview(header.ljust(HEADER_BYTES, b"\0")), 0)
                handle, self._handle = self._handle, -1
                os.close(handle)
                Path(self._name).replace(self._path)
                self._name = ""
                return True
        return False

    def abandon(self) -> None:
        """Remove what was written of an entry that is not finished."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
        name, self._name = self._name, ""
        if name and self._process == os.getpid():  # else the parent goes on writing it
            with contextlib.suppress(OSError):
                Path(name).unlink()

    @contextlib.contextmanager
    def _errors_reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.abandon()
            self._on_error(error)
        except BaseException:
            self.abandon()
            raise

    def __del__(self) -> None:
        self.abandon()


def _write_all(handle: int, data: memoryview, at: int) -> None:
    while len(data):
        count = os.pwrite(handle, data[:_WRITE_BYTES], at)
        data, at = data[count:], at + count


def checked_payload(view: memoryview) -> memoryview | None:
    """The payload after the header; ``None`` if length or checksum do not match."""
    if len(view) < HEADER_BYTES or view[:8] != _MAGIC:
        return None
    payload = view[HEADER_BYTES:]
    if len(payload) != int.from_bytes(view[8:16], "little"):
        return None
    return payload if checksum_of(payload) == view[16:48] else None
