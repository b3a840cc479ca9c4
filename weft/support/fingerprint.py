"""Keys of the disk cache: equal if and only if the generated code would be equal.

A key covers the program, the target and the compiler: the sources of weft and the versions of its
libraries are part of it, so a change of the compiler invalidates the cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time

from weft.support import file_content
from weft.support.cache import DiskCache, open_cache
from weft.support.plugins import LIBRARIES, library_version

_ROOT = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - a tenth of the time of Path

_PART_BYTES = 1 << 20


@functools.lru_cache(maxsize=1)
def compiler_digest() -> str:
    """A digest of weft's sources and of the versions of libraries that affect its output.

    The sources are read again only if the state of one of them has changed.
    """
    cache = open_cache()
    key = None if cache is None else _sources_key()
    found = None if cache is None or key is None else cache.get(key)
    if found is not None:
        return str(found, "ascii")
    digest = _digest_of_sources()
    if cache is not None and key is not None:
        cache.put(key, digest.encode())
    return digest


def _sources_key() -> str | None:
    """A digest of the states of the sources; ``None`` if one has changed just now."""
    states = file_content.own_sources(_ROOT)
    if time.time_ns() - max(changed for *_, changed in states) < file_content.RACY_NS:
        return None
    versions = [library_version(library) for library in LIBRARIES]
    return hashlib.sha256(f"sources {states} {versions}".encode()).hexdigest()


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path, *_ in file_content.own_sources(_ROOT):
        digest.update(path[len(_ROOT) + 1 :].encode())
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half of the time of ``open``
        try:
            while part := os.read(source, _PART_BYTES):
                digest.update(part)
        finally:
            os.close(source)
    for library in LIBRARIES:
        digest.update(f"{library} {library_version(library)}".encode())
    return digest.hexdigest()


def holds_kernels() -> bool:
    """Whether the disk cache or a store holds kernels that this compiler built, for any model."""
    cache = open_cache()
    if cache is None or not (cache.directory.is_dir() or cache.stores):
        return False
    return cache.get(key_of("kernels")) is not None


def note_kernels(cache: DiskCache) -> None:
    """Make ``holds_kernels`` true."""
    cache.put(key_of("kernels"), b"some")


def key_of(kind: str, *parts: str | bytes | memoryview) -> str:
    """The cache key of ``parts``, each preceded by its length."""
    digest = hashlib.sha256(f"{kind}\0{compiler_digest()}\0".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
