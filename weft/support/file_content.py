"""Digests of large data, and files that are hashed while they are read in a thread.

A digest is made of those of parts of 4 MB, which can be read and hashed in one go. ``PartDigest``
identifies data: it is the SHA-256 of the SHA-256 of the parts. ``PartChecksum`` detects damage:
with sums of the words of the parts it takes a sixteenth of the time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from weft.support.dataclass import dataclass
from weft.support.fork_locks import renew_in_child
from weft.support.leased_file import LeasedFile, ReleasableMemory

PART_BYTES = 4 << 20
# Device, inode, size, and times of modification and change in nanoseconds.
FileState: TypeAlias = "tuple[int, int, int, int, int]"
# Paths with the states before the files were read; ``None`` if one had changed just before.
FileStates: TypeAlias = "tuple[tuple[str, FileState | None], ...]"

# A file that changes twice within the resolution of its times has the same state afterwards.
RACY_NS = 2_000_000_000

# How often a mapped file is looked after, and how long one may still have views after its use.
_LEASE_SECONDS = 0.2
_VIEWED_SECONDS = 10

# Larger files are no models, whose lengths are signed 32-bit numbers (protobuf).
MAX_BYTES = 2**31 - 1


class DigestPart(Protocol):
    """The digest of one part."""

    def update(self, data: memoryview, /) -> object: ...

    def digest(self) -> bytes: ...


class _Sums:
    """The CRC-32 of a part that is not full; of a full one, two tables of sums.

    They hold the sums of the 64-bit words in each of 512 columns, and in each of 1,031. Any damage
    within 8,240 bytes changes one. Two pages that change places change the second: 1,031 is a
    prime number, and there are fewer pages, so no two begin in the same column.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._sums = b""

    def update(self, data: memoryview) -> None:
        if not self._data and len(data) == PART_BYTES:
            self._sums = _sums_of(data)
            return
        self._data += data
        if len(self._data) == PART_BYTES:
            self._sums, self._data = _sums_of(memoryview(self._data)), bytearray()

    def digest(self) -> bytes:
        return self._sums or zlib.crc32(self._data).to_bytes(4, "little")


def _sums_of(part: memoryview) -> bytes:
    import numpy as np

    words, tables = np.frombuffer(part, np.uint64), b""
    for columns in (512, 1031):
        rows, rest = divmod(words.size, columns)
        sums = words[: rows * columns].reshape(rows, columns).sum(axis=0, dtype=np.uint64)
        sums[:rest] += words[rows * columns :]
        tables += sums.tobytes()
    return tables


class PartDigest:
    """The digest of bytes that are appended; 32 bytes."""

    def __init__(self) -> None:
        self._digests = hashlib.sha256()
        self._part = self.new_part()
        self._left = PART_BYTES  # bytes that the current part lacks

    def new_part(self) -> DigestPart:
        """The digest of an empty part."""
        return hashlib.sha256()

    def update(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        view = as_bytes(data)
        while len(view):
            self._part.update(view[: self._left])
            taken = min(self._left, len(view))
            view = view[taken:]
            self._left -= taken
            if not self._left:
                self._digests.update(self._part.digest())
                self._part, self._left = self.new_part(), PART_BYTES

    def extend(self, parts: Iterable[tuple[DigestPart, int]]) -> None:
        """Append parts, which were updated elsewhere, and their bytes; only the last is not full.

        The digest ends with a full part.
        """
        for part, nbytes in parts:
            self._part, self._left = part, PART_BYTES - nbytes
            if not self._left:
                self._digests.update(part.digest())
                self._part, self._left = self.new_part(), PART_BYTES

    def digest(self) -> bytes:
        """The digest of the bytes so far."""
        found = self._digests.copy()
        if self._left < PART_BYTES:
            found.update(self._part.digest())
        return found.digest()


class PartChecksum(PartDigest):
    """A digest that tells damaged data from the original, but not data made to look like it."""

    def new_part(self) -> DigestPart:
        return _Sums()


def as_bytes(data: bytes | memoryview) -> memoryview:
    """A contiguous buffer as bytes; an empty one cannot be cast."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def digest_of(data: bytes | memoryview) -> bytes:
    """The ``PartDigest`` of ``data``."""
    digest = PartDigest()
    digest.update(data)
    return digest.digest()


def checksum_of(data: bytes | memoryview) -> bytes:
    """The ``PartChecksum`` of ``data``."""
    checksum = PartChecksum()
    checksum.update(data)
    return checksum.digest()


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """The state of a file; ``None`` if there is none, or if it changed within two seconds."""
    try:
        found = os.stat(path)  # noqa: PTH116 - also takes what Path refuses
    except (OSError, ValueError):
        return None
    return state_at(found, time.time_ns())


def state_at(found: os.stat_result, now: int) -> FileState | None:
    """The state that a file had at a time in nanoseconds; ``None`` if it had just changed."""
    if now - max(found.st_mtime_ns, found.st_ctime_ns) < RACY_NS:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# ``madvise`` does not give memory back that is shared with children.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def mapped_file(array: Any) -> mmap.mmap | None:
    """The file that an array of NumPy reads through a map for reading; ``None`` if it has memory.

    Such pages are those of the file: ``release_pages`` gives them back, and reading maps them anew.
    """
    owner = array
    while (below := owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)) \
            is not None:
        owner = below
    is_file = type(owner) is mmap.mmap and memoryview(owner).readonly
    return owner if is_file else None


def release_pages(arrays: Iterable[Any]) -> None:
    """Give back the memory of the maps of files that these arrays read, where systems can do it."""
    found = {id(file): file for array in arrays if (file := mapped_file(array)) is not None}
    if hasattr(mmap, "MADV_DONTNEED"):
        for file in found.values():
            file.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, as read, and their digest.

    ``status`` is that of the file when reading began, at ``began`` nanoseconds since the epoch.
    ``find_digest`` waits for the digest, which may take longer than reading.
    """

    data: memoryview
    status: os.stat_result
    began: int
    find_digest: Callable[[], str]

    @property
    def digest(self) -> str:
        """The digest of the bytes."""
        return self.find_digest()


class FileContent(os.PathLike[str]):
    """The path of a file, and its content between ``hold`` and ``release``.

    The content is read, and then hashed, by a thread, which leaves the interpreter to others. A
    held file is mapped if no process can write to it meanwhile (``leased_file``). Otherwise it is
    read to memory: a file that another process truncates would end this one, and one that it
    writes to would have another digest than what is compiled.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._reader: _Reader | None = None

    @staticmethod
    def of(path: str | os.PathLike[str]) -> FileContent:
        """``path`` itself if it is one already."""
        return path if isinstance(path, FileContent) else FileContent(path)

    def __fspath__(self) -> str:
        return os.fspath(self._path)

    def __str__(self) -> str:
        return str(self._path)

    def __repr__(self) -> str:
        return repr(self._path)

    def hold(self) -> None:
        """Begin to read the file, unless its content is held already."""
        if self._reader is None:
            self._reader = _Reader(Path(self._path), is_held=True)

    def release(self) -> None:
        """Drop the content; views of it stay valid."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the content in a block; an outer block goes on holding it."""
        is_outer = self._reader is None
        self.hold()
        try:
            yield
        finally:
            if is_outer:
                self.release()

    @property
    def is_being_read(self) -> bool:
        """Whether ``content`` would have to wait."""
        return self._reader is not None and self._reader.is_alive

    def content(self) -> Content:
        """The content that is held, or else that of the file now.

        Raises ``OSError`` and ``ValueError`` as ``open`` does, and ``MemoryError``.
        """
        reader = self._reader
        if reader is None or reader.is_spent:
            reader = _Reader(Path(self._path))
        return reader.result()

    def drop(self, start: int, end: int) -> None:
        """Give back the pages between two offsets of the content that is held.

        Whoever still has a view of them reads zeros; ``content`` will read the file again.
        """
        if self._reader is not None:
            self._reader.drop(start, end)


class _Reader:
    """A thread that reads a file, and then hashes its content.

    If the file is to be held until ``close``, the thread maps it where it can, and looks whether
    another process waits to write to it.
    """

    def __init__(self, path: Path, *, is_held: bool = False) -> None:
        self.is_spent = False
        self._path = path
        self._is_held = is_held
        self._lease: LeasedFile | None = None
        self._is_closed = threading.Event()
        self._found: Content | None = None
        self._error: Exception | None = None
        self._digest: str | None = None
        self._dropped: list[tuple[int, int]] = []  # before the content was hashed
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._is_read, self._is_hashed = threading.Event(), threading.Event()
        # A daemon: the program may end before the file is read.
        self._thread = threading.Thread(target=self._run, daemon=True, name="weft read")
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the content is being read."""
        return self._thread.is_alive() and not self._is_read.is_set()

    def result(self) -> Content:
        if self._thread.is_alive():
            self._is_read.wait()
        if self._found is None and self._error is None:
            self._read()  # in a child that was forked meanwhile
        if self._error is not None:
            raise self._error
        if self._found is None:
            raise OSError(f"{self._path} was not read")
        return self._found

    def drop(self, start: int, end: int) -> None:
        self.is_spent = True
        with self._lock:
            if self._digest is None:
                self._dropped.append((start, end))
                return
        self._give_back(start, end)

    def _give_back(self, start: int, end: int) -> None:
        found = self._found
        memory = None if found is None else found.data.obj
        first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
        if isinstance(memory, ReleasableMemory) and first < last:
            memory.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE,
                           (last - first) * mmap.PAGESIZE)

    def close(self) -> None:
        """Unmap the file. If there are views, or it is being hashed, the thread will do so."""
        self._is_closed.set()
        if self._lease is not None and self._is_hashed.is_set():
            self._unmap(self._lease)

    def _unmap(self, lease: LeasedFile) -> bool:
        self._found = None
        return lease.close()

    def _run(self) -> None:
        self._read()
        try:
            if self._found is not None:
                self._hash(self._found)
        finally:
            self._is_hashed.set()
        if self._lease is not None:
            self._keep(self._lease)

    def _keep(self, lease: LeasedFile) -> None:
        """Keep a file mapped until there are no views, or a process waits to write to it."""
        while not lease.is_wanted and not self._is_closed.wait(_LEASE_SECONDS):
            pass
        last = time.monotonic() + _VIEWED_SECONDS
        while not lease.is_wanted and not self._unmap(lease) and time.monotonic() < last:
            time.sleep(_LEASE_SECONDS)
        lease.settle()

    def _read(self) -> None:
        try:
            self._found, self._lease = _read_content(
                self._path, self._find_digest,
                may_map=self._is_held and not self._is_closed.is_set())
        except Exception as error:  # noqa: BLE001 - raised by result()
            self._error = error
        self._is_read.set()

    def _find_digest(self) -> str:
        if self._thread.is_alive():
            self._is_hashed.wait()
        if self._digest is None and self._found is not None:
            self._hash(self._found)  # in a child that was forked meanwhile
        if self._digest is None:
            raise OSError(f"{self._path} was not hashed")
        return self._digest

    def _hash(self, found: Content) -> None:
        digest = digest_of(found.data).hex()
        with self._lock:
            self._digest = digest
        for start, end in self._dropped:
            self._give_back(start, end)


def _read_content(path: Path, find_digest: Callable[[], str], *, may_map: bool
                  ) -> tuple[Content, LeasedFile | None]:
    """The content of a file of at most ``MAX_BYTES``, and its map, which it then is a view of.

    Raises ``OSError`` and ``ValueError`` as ``open`` does, and ``MemoryError``.
    """
    began = time.time_ns()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - also takes what Path refuses
        found = os.fstat(file.fileno())
        if found.st_size > MAX_BYTES:
            raise OSError(f"{path} has {found.st_size} bytes, more than {MAX_BYTES}")
        if may_map and (lease := LeasedFile.of(file.fileno())) is not None:
            found = os.fstat(file.fileno())  # which no process can change any more
            return Content(memoryview(lease.memory), found, began, find_digest), lease
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return Content(memoryview(file.read()), found, began, find_digest), None
        try:
            memory = ReleasableMemory(-1, found.st_size, **_PRIVATE)
        except OSError:
            raise MemoryError(f"cannot allocate {found.st_size} bytes for {path}") from None
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            # The content is read once or twice. Hypervisors may take 4 ms for a new page of 2 MB.
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(mmap.MADV_NOHUGEPAGE)
        view = memoryview(memory)
        count = _fill(file.readinto, view)  # less if the file is truncated
        return Content(view[:count].toreadonly(), found, began, find_digest), None


def _fill(read: object, part: memoryview) -> int:
    """Read to all of ``part``, or to its start at the end of a file; the bytes read."""
    at = 0
    while at < len(part):
        count = read(part[at:])  # type: ignore[operator] - readinto
        if not count:
            break
        at += count
    return at


def digests_later(paths: Sequence[str | os.PathLike[str]]) -> Callable[[], tuple[str, ...]]:
    """A function that waits for the digests of files, which a thread computes from now on.

    It raises ``OSError`` as ``open`` does.
    """
    found: list[str] = []
    errors: list[Exception] = []

    def compute() -> None:
        try:
            found.extend(map(file_digest, paths[len(found):]))
        except Exception as error:  # noqa: BLE001 - raised by the function
            errors.append(error)

    thread = threading.Thread(target=compute, daemon=True, name="weft read")
    thread.start()

    def wait() -> tuple[str, ...]:
        thread.join()
        if len(found) < len(paths) and not errors:
            compute()  # in a child that was forked meanwhile
        if errors:
            raise errors[0]
        return tuple(found)

    return wait


def file_digest(path: str | os.PathLike[str]) -> str:
    """The digest of a file of any size; raises ``OSError`` as ``open`` does."""
    digest = PartDigest()
    part = memoryview(bytearray(PART_BYTES))
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see _read_content
        while count := _fill(file.readinto, part):
            digest.update(part[:count])
    return digest.digest().hex()


@functools.cache
def own_sources(package: str) -> tuple[tuple[str, int, int], ...]:
    """The states of the sources of ``package``, a folder, when this process first asked.

    What the process loads later is taken for what was there then.
    """
    return tuple(sorted(source_states(package)))


def source_states(folder: str) -> Iterator[tuple[str, int, int]]:
    """The path, size and modification time in nanoseconds of each source below a folder.

    Sources are Python files, tables in TOML (machines decide about code, too) and the prelude.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".toml", ".weft")):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from source_states(entry.path)
