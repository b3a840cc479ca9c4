"""Tuning records: measured times of implementations, which override the cost models.

A records file has one JSON object per line, for one implementation of one kernel. ``weft tune``
appends to it, ``WEFT_RECORDS`` names the file that selection reads. Lines are appended under a
lock, so concurrent writers do not interleave; an incomplete line of a killed writer is skipped.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from pathlib import Path

from weft.ir import Function, structural_hash
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.target import Target


@dataclass(frozen=True, slots=True)
class Record:
    """``implementation`` of ``kernel`` took ``seconds`` per call on ``threads`` threads.

    ``kernel`` is the structural hash of the primitive function, ``text`` its operators in readable
    form, ``target`` the text of the target.
    """

    kernel: str
    text: str
    target: str
    implementation: str
    seconds: float
    threads: int


@dataclass(frozen=True, slots=True)
class Records:
    """The content of a records file; a later record replaces an earlier one of the same key."""

    digest: str = ""  # of the file's content
    seconds: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)

    @staticmethod
    def of(records: Iterable[Record], digest: str = "") -> Records:
        table: dict[tuple[str, str], dict[str, float]] = {}
        for record in records:
            kernel = table.setdefault((record.kernel, record.target), {})
            kernel[record.implementation] = record.seconds
        return Records(digest, table)

    def times(self, kernel: str, target: Target) -> Mapping[str, float]:
        """Seconds by implementation; empty for a kernel without records for this target."""
        return self.seconds.get((kernel, str(target)), {})

    def ranking(self, kernel: str, target: Target) -> tuple[str, ...]:
        """The names of a kernel's recorded implementations, the fastest first."""
        times = self.times(kernel, target)
        return tuple(sorted(times, key=lambda name: (times[name], name)))


def active_records() -> Records:
    """The records of the file that ``config.records`` names; empty if it is unset.

    Raises ``OptionError`` for a file that cannot be read or that contains no record.
    """
    path = config.records
    if path is None:
        return Records()
    try:
        status = path.stat()
    except OSError as error:
        raise OptionError("the records file cannot be read", where=str(path), got=str(error),
                          help=f"`weft tune MODEL --records {path}` writes one") from None
    return _read_cached(path, status.st_mtime_ns, status.st_size)


def ranking_of(function: Function, target: Target) -> tuple[str, ...]:
    """The recorded implementations of a primitive function by name, the fastest first."""
    records = active_records()
    return records.ranking(structural_hash(function), target) if records.seconds else ()


@functools.lru_cache(maxsize=4)
def _read_cached(path: Path, modified: int, size: int) -> Records:
    del modified, size  # part of the cache key: a changed file is read again
    return read_records(path)


def read_records(path: Path) -> Records:
    """All records of a file; raises ``OptionError`` for a non-empty file without a record."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OptionError("the records file cannot be read", where=str(path),
                          got=str(error)) from None
    found = [record for line in content.splitlines() if (record := _parsed(line)) is not None]
    if content.strip() and not found:
        raise OptionError("not a records file", where=str(path),
                          expected="one JSON object a line, as `weft tune` writes them")
    return Records.of(found, hashlib.sha256(content).hexdigest())


def _parsed(line: bytes) -> Record | None:
    """The record of a line; ``None`` for an incomplete or malformed line."""
    try:
        fields = json.loads(line)
        record = Record(**fields)
    except (ValueError, TypeError, RecursionError):
        return None
    names = (record.kernel, record.text, record.target, record.implementation)
    numbers = (record.seconds, record.threads)
    is_sound = all(isinstance(name, str) for name in names) and all(
        isinstance(number, int | float) and number > 0 for number in numbers)
    return record if is_sound else None


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Append records to a file, which is created if needed.

    Raises ``OptionError`` if the file cannot be written.
    """
    from filelock import FileLock

    text = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"), path.open("a+b") as file:
            file.write(_missing_line_feed(path) + text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OptionError("the records file cannot be written", where=str(path),
                          got=str(error)) from None


def _missing_line_feed(path: Path) -> bytes:
    """A line feed if the last line of the file is incomplete, because its writer was killed."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"
