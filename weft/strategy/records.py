"""Tuning records: measured times of implementations, which override the cost models.

``weft tune`` keeps what it measured in a database of SQLite (``weft.tune.store``), of which
selection reads the winners: implementations that were faster than the cost model's choice beyond
noise, by CPU, kernel and number of threads. ``WEFT_RECORDS`` names the file; without it the one in
the cache folder is read, if there is one. Files of former versions, with one JSON object per line
for each measured implementation, are read too.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from weft.ir import Function, structural_hash
from weft.runtime.devices.cpu.threads import num_threads
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.records_file import records_file, records_state
from weft.target import CpuTarget, Target

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION = 1
DATABASE_HEAD = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Record:
    """``implementation`` of ``kernel`` took ``seconds`` per call on ``threads`` threads.

    ``kernel`` is the structural hash of the primitive function, ``text`` its operators in readable
    form, ``target`` the CPU (``cpu_of``), or the text of the target in a file of a former version.
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
        return (self.seconds.get((kernel, cpu_of(target)))
                or self.seconds.get((kernel, str(target)), {}))

    def ranking(self, kernel: str, target: Target) -> tuple[str, ...]:
        """The names of a kernel's recorded implementations, the fastest first."""
        times = self.times(kernel, target)
        return tuple(sorted(times, key=lambda name: (times[name], name)))


def cpu_of(target: Target) -> str:
    """The CPU that a time holds for: its model and its instruction sets, whatever its caches.

    Measuring the machine again changes the text of a target, but not what its kernels take.
    """
    if not isinstance(target, CpuTarget):
        return str(target)
    return f"{target.triple} {target.cpu} {','.join(target.features)}"


def active_records() -> Records:
    """The records that selection follows; empty without a file.

    Raises ``OptionError`` for a file that cannot be read or that contains no record.
    """
    path = records_file()
    if path is None:
        return Records()
    try:
        state = records_state(path)
    except OSError as error:
        raise OptionError("the records file cannot be read", where=str(path), got=str(error),
                          help=f"`weft tune MODEL --records {path}` writes one") from None
    return _read_cached(path, state, num_threads())


def ranking_of(function: Function, target: Target) -> tuple[str, ...]:
    """The recorded implementations of a primitive function by name, the fastest first."""
    records = active_records()
    return records.ranking(structural_hash(function), target) if records.seconds else ()


@functools.lru_cache(maxsize=4)
def _read_cached(path: Path, state: tuple[int, ...], threads: int) -> Records:
    del state  # part of the cache key: a changed file is read again
    return read_records(path, threads)


def read_records(path: Path, threads: int) -> Records:
    """The records of a file for code on ``threads`` threads; all of one of a former version.

    Raises ``OptionError`` for a non-empty file without a record.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(DATABASE_HEAD)) == DATABASE_HEAD:
                return Records.of(*_winners(path, threads))
        content = path.read_bytes()
    except OSError as error:
        raise OptionError("the records file cannot be read", where=str(path),
                          got=str(error)) from None
    found = lines_of(content)
    if content.strip() and not found:
        raise OptionError("not a records file", where=str(path),
                          expected="a database that `weft tune` writes")
    return Records.of(found, hashlib.sha256(content).hexdigest())


def lines_of(content: bytes) -> list[Record]:
    """The records of a file of a former version."""
    return [record for line in content.splitlines() if (record := _parsed(line)) is not None]


def _winners(path: Path, threads: int) -> tuple[list[Record], str]:
    """The winners of a database, and a digest of them."""
    import sqlite3

    query = ("SELECT kernel, text, cpu, implementation, seconds, threads FROM winners "
             "WHERE threads = ? ORDER BY cpu, kernel")
    try:
        with closing(sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)) as database:
            check_schema(database, path)
            rows = database.execute(query, (threads,)).fetchall()
    except sqlite3.Error as error:
        raise OptionError("the records file cannot be read", where=str(path),
                          got=str(error)) from None
    digest = hashlib.sha256(json.dumps([row[:4] for row in rows]).encode()).hexdigest()
    return [Record(*row) for row in rows], digest if rows else ""


def check_schema(database: sqlite3.Connection, path: Path) -> None:
    """Raise ``OptionError`` for a database of another program, or of a later version of weft."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise OptionError("the records file has another format", where=str(path),
                          expected=f"version {SCHEMA_VERSION}", got=f"version {version}",
                          help="records of another version of weft cannot be used: tune again")


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
