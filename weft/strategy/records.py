"""Measured records: which implementation of a kernel was fastest when somebody timed it.

A file of records has one JSON object a line, one for each implementation of each kernel that was
timed. ``weft tune`` appends to it; ``WEFT_RECORDS`` names the one that choices are made by. Lines
are appended whole under a lock, so concurrent writers do not mix, and the half line of a killed
one is skipped.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from weft.ir.expr import Function
from weft.ir.structural import structural_hash
from weft.support.config import config
from weft.support.errors import OptionError
from weft.target import Target


@dataclass(frozen=True, slots=True)
class Record:
    """One implementation of one kernel took ``seconds`` a call, with ``threads`` threads.

    ``kernel`` is the structural hash of the primitive function, ``text`` its operators for a
    reader, ``target`` the text of the target.
    """

    kernel: str
    text: str
    target: str
    implementation: str
    seconds: float
    threads: int


@dataclass(frozen=True, slots=True)
class Records:
    """What a file of records says; of two records of the same thing the later one holds."""

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
        """Seconds by implementation; empty for a kernel that was never timed for this target."""
        return self.seconds.get((kernel, str(target)), {})

    def ranking(self, kernel: str, target: Target) -> tuple[str, ...]:
        """The implementations of a kernel, the fastest first."""
        times = self.times(kernel, target)
        return tuple(sorted(times, key=lambda name: (times[name], name)))


def records_in_force() -> Records:
    """The records of the file that ``config.records`` names; none where it names none.

    Raises ``OptionError`` for a file that cannot be read or holds something else.
    """
    path = config.records
    if path is None:
        return Records()
    try:
        status = path.stat()
    except OSError as error:
        raise OptionError("the file of records cannot be read", where=str(path), got=str(error),
                          help=f"`weft tune MODEL --records {path}` writes one") from None
    return _read_cached(path, status.st_mtime_ns, status.st_size)


def ranking_of(function: Function, target: Target) -> tuple[str, ...]:
    """The names of implementations that records hold of a primitive function, the fastest first."""
    records = records_in_force()
    return records.ranking(structural_hash(function), target) if records.seconds else ()


@functools.lru_cache(maxsize=4)
def _read_cached(path: Path, modified: int, size: int) -> Records:
    del modified, size  # they tell one state of the file from the next
    return read_records(path)


def read_records(path: Path) -> Records:
    """All records of a file; raises ``OptionError`` for a file without a single one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OptionError("the file of records cannot be read", where=str(path),
                          got=str(error)) from None
    found = [record for line in content.splitlines() if (record := _parsed(line)) is not None]
    if content.strip() and not found:
        raise OptionError("this is no file of records", where=str(path),
                          expected="one JSON object a line, as `weft tune` writes them")
    return Records.of(found, hashlib.sha256(content).hexdigest())


def _parsed(line: bytes) -> Record | None:
    """The record of a line; ``None`` for what a killed writer left."""
    try:
        plain = json.loads(line)
        record = Record(**plain)
    except (ValueError, TypeError, RecursionError):
        return None
    names = (record.kernel, record.text, record.target, record.implementation)
    numbers = (record.seconds, record.threads)
    is_sound = all(isinstance(name, str) for name in names) and all(
        isinstance(number, int | float) and number > 0 for number in numbers)
    return record if is_sound else None


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Append records to a file, which is made if there is none.

    Raises ``OptionError`` where the file cannot be written.
    """
    from filelock import FileLock

    text = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"), path.open("a+b") as file:
            file.write(_mended_end(path) + text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OptionError("the file of records cannot be written", where=str(path),
                          got=str(error)) from None


def _mended_end(path: Path) -> bytes:
    """A line's end, where a killed writer left none."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"
