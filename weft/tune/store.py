"""The database of what was measured, which many processes write, and its winners.

It holds samples, one for each measured point of a kernel's space, with the features that a learned
cost model takes, and winners, one for each kernel, CPU and number of threads, which compilations
read (``weft.strategy.records``). SQLite's write-ahead log lets several processes read and write at
a time; every change is one transaction, so that a killed process loses at most its last.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from weft.strategy.records import (
    DATABASE_HEAD,
    SCHEMA_VERSION,
    Record,
    check_schema,
    lines_of,
)
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError

BUSY_SECONDS = 60.0  # how long a writer waits for another one
_SCHEMA = """
CREATE TABLE IF NOT EXISTS samples (
  cpu TEXT, kernel TEXT, threads INTEGER, implementation TEXT, text TEXT NOT NULL,
  seconds REAL, baseline REAL, status TEXT NOT NULL, features TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (cpu, kernel, threads, implementation)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS winners (
  cpu TEXT, kernel TEXT, implementation TEXT NOT NULL, text TEXT NOT NULL, seconds REAL NOT NULL,
  baseline REAL NOT NULL, threads INTEGER NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (cpu, kernel, threads)) WITHOUT ROWID;
"""
_WINNER = "cpu, kernel, implementation, text, seconds, baseline, threads"
_SAMPLE = "cpu, kernel, threads, implementation, text, seconds, baseline, status, features"
# A merge keeps the later of two samples, and the winner with the larger gain.
_MERGE = (
    """INSERT INTO samples SELECT * FROM other.samples WHERE true
       ON CONFLICT DO UPDATE SET text=excluded.text, seconds=excluded.seconds,
       baseline=excluded.baseline, status=excluded.status, features=excluded.features,
       at=excluded.at WHERE excluded.at > samples.at""",
    """INSERT INTO winners SELECT * FROM other.winners WHERE true
       ON CONFLICT DO UPDATE SET implementation=excluded.implementation, text=excluded.text,
       seconds=excluded.seconds, baseline=excluded.baseline, threads=excluded.threads,
       at=excluded.at WHERE excluded.baseline * winners.seconds
       > winners.baseline * excluded.seconds""")


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of a kernel: its time beside that of the model's choice, or why it has none.

    ``status`` is ``ok``, or why the point cannot be used; ``seconds`` is then ``None``.
    """

    cpu: str
    kernel: str
    threads: int
    implementation: str
    text: str
    seconds: float | None
    baseline: float | None
    status: str = "ok"
    features: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Winner:
    """The point of a kernel that is faster than the model's choice, which takes ``baseline``."""

    cpu: str
    kernel: str
    implementation: str
    text: str
    seconds: float
    baseline: float
    threads: int

    @property
    def gain(self) -> float:
        """How many times as fast."""
        return self.baseline / self.seconds


class TuningStore:
    """A database of records, which is made if it does not exist.

    Raises ``OptionError`` for a file that is not one, or that cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_head(path)
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            with _told(path):
                self._set_up()
        except (OSError, sqlite3.Error) as error:
            raise _unwritable(path, error) from None

    def _set_up(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            # Several processes may do so at a time, to the same effect.
            database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} "
                                   f"PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
        check_schema(database, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; the last one to do so moves the log into the file."""
        self._database.close()

    def add(self, samples: Iterable[Sample]) -> None:
        """Keep samples; one of a point that has one replaces it."""
        now = time.time()
        rows = [(s.cpu, s.kernel, s.threads, s.implementation, s.text, s.seconds, s.baseline,
                 s.status, json.dumps(list(s.features)), now) for s in samples]
        with self._transaction():
            self._database.executemany(
                "INSERT OR REPLACE INTO samples VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    def set_winner(self, winner: Winner) -> None:
        """Make ``winner`` that of its kernel."""
        with self._transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO winners VALUES (?,?,?,?,?,?,?,?)",
                (winner.cpu, winner.kernel, winner.implementation, winner.text, winner.seconds,
                 winner.baseline, winner.threads, time.time()))

    def drop_winner(self, cpu: str, kernel: str, threads: int) -> None:
        """Leave the choice for a kernel to the cost model."""
        with self._transaction():
            self._database.execute("DELETE FROM winners WHERE cpu=? AND kernel=? AND threads=?",
                                   (cpu, kernel, threads))

    def winner(self, cpu: str, kernel: str, threads: int) -> Winner | None:
        """The winner of a kernel on a CPU with a number of threads."""
        return next(iter(self._winners("WHERE cpu=? AND kernel=? AND threads=?",
                                       (cpu, kernel, threads))), None)

    def winners(self) -> list[Winner]:
        """All winners."""
        return self._winners("ORDER BY cpu, kernel, threads", ())

    def _winners(self, where: str, values: tuple[object, ...]) -> list[Winner]:
        query = f"SELECT {_WINNER} FROM winners {where}"  # noqa: S608 - of this module alone
        return [Winner(*row) for row in self._database.execute(query, values)]

    def samples(self, kernel: str = "", cpu: str = "") -> list[Sample]:
        """The samples of a kernel on a CPU; those of all without."""
        where, values = ("WHERE kernel=? AND cpu=?", (kernel, cpu)) if kernel else ("", ())
        query = (f"SELECT {_SAMPLE} FROM samples {where} "  # noqa: S608 - of this module alone
                 "ORDER BY cpu, kernel, threads, implementation")
        return [Sample(*row[:8], features=tuple(json.loads(row[8])))
                for row in self._database.execute(query, values)]

    def merge(self, other: Path) -> None:
        """Add the content of another database, or the fastest of a file of a former version.

        Nothing is lost: of two samples of a point the later one stays, of two winners that with the
        larger gain. Raises ``OptionError`` for a file that is neither.
        """
        if _is_database(other):
            self._merge_database(other)
        else:
            self._merge_lines(other)

    def _merge_database(self, other: Path) -> None:
        with _told(other):
            TuningStore(other).close()  # checks the version
            self._database.execute("ATTACH ? AS other", (str(other),))
            try:
                with self._transaction():
                    for statement in _MERGE:
                        self._database.execute(statement)
            finally:
                self._database.execute("DETACH other")

    def _merge_lines(self, other: Path) -> None:
        """The times of a former version: the slower ones are the baselines of the fastest."""
        kernels: dict[tuple[str, str], list[Record]] = {}
        try:
            found = lines_of(other.read_bytes())
        except OSError as error:
            raise OptionError("the records file cannot be read", where=str(other),
                              got=str(error)) from None
        if not found:
            raise OptionError("not a records file", where=str(other),
                              expected="a database that `weft tune` writes")
        for record in found:
            kernels.setdefault((record.target, record.kernel), []).append(record)
        for (target, kernel), records in kernels.items():
            best = min(records, key=lambda r: (r.seconds, r.implementation))
            slowest = max(r.seconds for r in records)
            if best.seconds < slowest:
                self.set_winner(Winner(target, kernel, best.implementation, best.text,
                                       best.seconds, slowest, best.threads))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _told(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(DATABASE_HEAD)) == DATABASE_HEAD
    except OSError as error:
        raise OptionError("the records file cannot be read", where=str(path),
                          got=str(error)) from None


def _check_head(path: Path) -> None:
    if path.exists() and path.stat().st_size and not _is_database(path):
        raise OptionError(
            "not a database of records", where=str(path),
            expected="a file that `weft tune` writes", got="a file of another kind",
            help=f"a file of a former version: `weft records merge NEW {path}`")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: Exception) -> OptionError:
    return OptionError("the records file cannot be written", where=str(path), got=str(error))
