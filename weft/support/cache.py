"""A content-addressed disk cache, safe against concurrent and killed writers.

An entry is one file, written under a temporary name and then renamed, so readers see a complete
entry or none. A checksum in the header detects corrupt entries, which are removed and count as
misses. If the folder is not writable, the cache warns once and stores nothing. Folders and entries
that other users may write are not read (``private_files``): entries are code. The modification
time of a file is when the entry was written, the access time when it was last used. When the cache
exceeds its size limit, the least recently used entries are evicted.

Behind the cache stand stores (``WEFT_STORE``): folders of the same entries under the same keys,
which an image or a wheel carries. They are read where the cache has no entry, and never written.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from weft.support.cache_entry import HEADER_BYTES, EntryWriter, checked_payload
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.fallback import Fallback, report
from weft.support.fork_locks import renew_in_child
from weft.support.log import Level, debug, logger
from weft.support.private_files import folder_objection, make_private, objection

_STALE_TEMPORARY = 3600.0  # seconds after which a temporary file is abandoned
_CHECK_EVERY = 64 << 20  # bytes written between checks of the folder's size


def default_directory() -> Path:
    """``config.cache_dir``, or the user's cache folder."""
    if config.cache_dir is not None:
        return config.cache_dir
    from platformdirs import user_cache_path

    return user_cache_path("weft", appauthor=False)


# Inode, size in bytes, and time of writing in nanoseconds of the file of an entry.
EntryState: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the cache; times in seconds since the epoch."""

    path: Path
    size: int
    used: float
    written: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Size and growth of a cache, and the size of stale entries; in bytes."""

    entries: int
    size: int
    written_today: int
    written_this_week: int
    unused_for_a_month: int


_DAY = 86400.0


# The keys that a block looks up, and those of entries that it writes.
_recorded: ContextVar[set[str] | None] = ContextVar("weft_cache_keys", default=None)


@contextlib.contextmanager
def recorded_keys() -> Iterator[set[str]]:
    """The keys that the block looks up in caches, whether or not there are entries."""
    keys: set[str] = set()
    token = _recorded.set(keys)
    try:
        yield keys
    finally:
        _recorded.reset(token)


def is_recording() -> bool:
    """Whether a block of ``recorded_keys`` is running."""
    return _recorded.get() is not None


class Store:
    """A folder of entries by key (hex digest), which is only read; never raises ``OSError``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._safe: set[Path] = set()  # folders of entries that were checked

    def path(self, key: str) -> Path:
        return self.directory / key[:2] / key

    def get(self, key: str) -> memoryview | None:
        """The payload of ``key``, memory-mapped read-only, 64-byte aligned; ``None`` on a miss."""
        try:
            view, _ = self._map(self.path(key))
        except (OSError, ValueError):
            return None
        payload = checked_payload(view)
        if payload is None:
            debug(Level.CACHE, "cache", f"the store has a corrupt entry: {self.path(key)}")
        return payload

    def size(self) -> tuple[int, int]:
        """The number and the bytes of the entries."""
        entries = self._entries()
        return len(entries), sum(entry.size for entry in entries)

    def _map(self, path: Path) -> tuple[memoryview, int]:
        """The memory-mapped bytes of an entry, and its modification time in nanoseconds."""
        self._check_folder(path.parent)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            _refuse(objection(found, path))
            view = memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(handle)
        return view, found.st_mtime_ns

    def _check_folder(self, folder: Path) -> None:
        """Raise ``PermissionError`` for a folder of entries that others may write."""
        if folder not in self._safe:
            _refuse(folder_objection(self.directory))
            _refuse(objection(folder.lstat(), folder))
            self._safe.add(folder)

    def _entries(self) -> list[Entry]:
        found = []
        for path in self.directory.glob("??/[!.]*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                # Earlier versions updated both times, so the later one is the last use.
                used = max(status.st_atime, status.st_mtime)
                found.append(Entry(path, status.st_size, used, status.st_mtime))
        return found


class DiskCache(Store):
    """Maps keys to bytes, in files under ``directory``; never raises ``OSError``.

    ``stores`` are asked, in order, for keys without an entry.
    """

    def __init__(self, directory: Path, max_bytes: int = 4 << 30, stores: Sequence[Store] = ()
                 ) -> None:
        super().__init__(directory)
        self.max_bytes = max_bytes
        self.stores = tuple(stores)
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._unchecked_bytes = _CHECK_EVERY  # the first write of a process looks at the size
        self._warned = False

    def get(self, key: str) -> memoryview | None:
        """The payload of ``key``, memory-mapped read-only, 64-byte aligned; ``None`` on a miss."""
        keys = _recorded.get()
        if keys is not None:
            keys.add(key)
        found = self._own(key)
        if found is not None:
            return found
        return next((payload for store in self.stores
                     if (payload := store.get(key)) is not None), None)

    def _own(self, key: str) -> memoryview | None:
        """The payload of an entry of the cache itself; a corrupt one is removed."""
        path = self.path(key)
        try:
            view, written = self._map(path)
        except (OSError, ValueError):
            return None
        payload = checked_payload(view)
        if payload is None:
            logger("cache").info("removed a corrupt entry: %s", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time.time_ns(), written))
        return payload

    def get_unchanged(self, key: str, state: EntryState) -> memoryview | None:
        """``get`` of an entry that had ``state`` when it was verified: its checksum is trusted."""
        if self.state(key) != state:
            return None
        try:
            view, written = self._map(self.path(key))
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path(key), ns=(time.time_ns(), written))
        return view[HEADER_BYTES:]

    def state(self, key: str) -> EntryState | None:
        """What changes if another file takes the place of an entry; ``None`` without an entry."""
        try:
            found = self.path(key).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def put(self, key: str, *parts: bytes | memoryview) -> bool:
        """Store the concatenation of ``parts``; ``False`` if it could not be written."""
        writer = self.writer(key, sum(len(part) for part in parts))
        if writer is None:
            return False
        for part in parts:
            writer.append(part)
        return self.keep(writer)

    def writer(self, key: str, size: int) -> EntryWriter | None:
        """A new entry of at least ``size`` bytes; ``None`` if it would be larger than the cache."""
        if size + HEADER_BYTES > self.max_bytes:
            return None
        path = self.path(key)
        try:
            make_private(path.parent)
            self._check_folder(path.parent)
        except OSError as error:
            self._warn(error)
            return None
        return EntryWriter(path, self._warn)

    def keep(self, writer: EntryWriter) -> bool:
        """Finish an entry; ``False`` if it could not be written."""
        if writer.size + HEADER_BYTES > self.max_bytes:
            writer.abandon()
        if not writer.finish():
            return False
        self._account(writer.size)
        return True

    def clear(self, keep: int = 0) -> tuple[int, int]:
        """Evict the least recently used entries until at most ``keep`` bytes are left.

        Returns the number and bytes of removed entries. Other processes may use the cache
        meanwhile: mapped entries stay valid, and later writes are kept.
        """
        self._remove_temporaries(time.time() - _STALE_TEMPORARY)
        return self._drop(keep)

    def usage(self) -> Usage:
        """Size and growth of the cache."""
        entries, now = self._entries(), time.time()
        return Usage(
            len(entries), sum(entry.size for entry in entries),
            sum(entry.size for entry in entries if now - entry.written < _DAY),
            sum(entry.size for entry in entries if now - entry.written < 7 * _DAY),
            sum(entry.size for entry in entries if now - entry.used > 30 * _DAY),
        )

    def _warn(self, error: OSError) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            logger("cache").warning("the cache folder %s is not writable (%s), so compiled code is "
                                    "not cached; set WEFT_CACHE_DIR to a writable folder",
                                    self.directory, error.strerror or error)

    def _account(self, size: int) -> None:
        with self._lock:
            self._unchecked_bytes += size
            due = self._unchecked_bytes >= min(_CHECK_EVERY, self.max_bytes // 16)
            if due:
                self._unchecked_bytes = 0
        if due:
            self.evict()

    def evict(self) -> None:
        """Evict the least recently used entries down to the size limit; one process at a time."""
        self._remove_temporaries(time.time() - _STALE_TEMPORARY)
        if sum(entry.size for entry in self._entries()) <= self.max_bytes:
            return
        from filelock import FileLock, Timeout  # as long to import as to compile a small model

        try:
            with FileLock(self.directory / ".lock", timeout=0):
                self._drop(self.max_bytes)
        except (Timeout, OSError):
            return  # another process evicts, or the folder is read-only

    def _drop(self, keep: int) -> tuple[int, int]:
        """Evict the least recently used entries until ``keep`` bytes are left; count and bytes."""
        entries = sorted(self._entries(), key=lambda entry: (entry.used, entry.path))
        total = sum(entry.size for entry in entries)
        count = freed = 0
        for entry in entries:
            if total - freed <= keep:
                break
            with contextlib.suppress(OSError):
                entry.path.unlink()
                count, freed = count + 1, freed + entry.size
                debug(Level.CACHE, "cache", f"evicted {entry.path.name}")
        return count, freed

    def _remove_temporaries(self, oldest: float) -> None:
        for path in self.directory.glob("??/.tmp-*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise PermissionError(errno.EPERM, reason)


_caches: dict[tuple[Path, int, tuple[Path, ...]], DiskCache] = {}

# The folder that a wheel beside weft's installs.
_SHIPPED = Path(__file__).parents[2] / "weft_store"


def open_cache() -> DiskCache | None:
    """The cache of the current configuration; ``None`` if caching is off.

    A folder that other users may write is not used, which is reported as a ``Fallback``.
    """
    if config.no_cache:
        return None
    key = (default_directory(), config.cache_size, config.store)
    if key not in _caches:
        reason = unsafe_folder(key[0])
        if reason is not None:
            report(_without_cache(key[0], reason))
            return None
        _caches[key] = DiskCache(key[0], key[1], open_stores())
    return _caches[key]


def store_folders() -> tuple[Path, ...]:
    """The folders of stores: those of the configuration, then that of an installed wheel."""
    return *config.store, *((_SHIPPED,) if _SHIPPED.is_dir() else ())


def open_stores() -> list[Store]:
    """The stores of the configuration, in the order in which they are asked.

    One that is missing or that other users may write is not used, which is reported as a
    ``Fallback``.
    """
    opened = []
    for folder in store_folders():
        reason = store_objection(folder)
        if reason is None:
            opened.append(Store(folder))
        else:
            report(Fallback(f"the store of compiled code, {folder}, is not used", reason,
                            "kernels that it holds are built again",
                            "mend the folder, or leave it out of WEFT_STORE"))
    return opened


def store_objection(folder: Path) -> str | None:
    """Why a folder cannot be a store, as a sentence; ``None`` if it can."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    return unsafe_folder(folder)


def unsafe_folder(folder: Path) -> str | None:
    """Why a folder cannot hold compiled code, as a sentence; ``None`` if it can."""
    try:
        return folder_objection(folder)
    except OSError:  # writing reports it
        return None


def _without_cache(folder: Path, reason: str) -> Fallback:
    return Fallback(f"the cache of compiled code, {folder}, is not used",
                    f"{reason}; who writes the folder can run code as you",
                    "each process compiles its models again",
                    f"take the folder for yourself: chown -R {os.geteuid()} {folder} && "
                    f"chmod -R go-w {folder}; or set WEFT_CACHE_DIR to a folder of your own")
