"""Run the whole suite and print the counts: ``python -m tests.onnx.count [FRAGMENT ...]``.

Tests run in worker processes, one for each CPU, so that one that ends its process is a failure of
its own. Tests that pass are counted apart by how they were compiled: as given, so that the program
takes any values of its inputs, or again with the values of small inputs (shapes, axes) as
constants; ``--bound`` lists the latter.

With fragments only the tests whose names contain one of them run. ``--write FILE`` keeps the
failures, one ``name: reason`` a line. Ends with 1 where a test fails that is not excluded, an
excluded one passes, or an exclusion names no test.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.onnx.suite import How, load_exclusions, load_suite
from weft.runtime.devices.cpu.host import usable_cpus

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """``how`` a test that passes was compiled, or the first line of what went wrong."""

    how: str | None = None
    failure: str | None = None


def run_one(name: str) -> Outcome:
    """Run a test of the suite; nothing that it raises leaves."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Outcome(how=load_suite()[name]())
    except Exception as error:  # noqa: BLE001 - any failure is one line of the report
        notes = " | ".join(getattr(error, "notes", None) or ())
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        return Outcome(failure=f"{type(error).__name__}: {' '.join(lines[:3])} {notes}".strip())


def _serve(names: Connection) -> None:
    """A worker: names come in, results go out."""
    with suppress(EOFError):
        while True:
            names.send(run_one(names.recv()))


def _start() -> tuple[Connection, BaseProcess]:
    """A worker that inherits the suite, whose cases take seconds to make."""
    ours, theirs = _FORK.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which are those of the linear algebra
        worker = _FORK.Process(target=_serve, args=(theirs,), daemon=True)
        worker.start()
    theirs.close()
    return ours, worker


def run_many(names: list[str]) -> dict[str, Outcome]:
    """The result of every test, in the order of ``names``; a worker that ends is replaced."""
    left, results = deque(names), dict[str, Outcome]()
    at_work: dict[Connection, tuple[str, BaseProcess]] = {}
    for _ in range(min(usable_cpus(), len(names))):
        _give(left, at_work, *_start())
    while at_work:
        for line in map(_as_connection, wait(list(at_work))):
            name, worker = at_work.pop(line)
            try:
                results[name] = line.recv()
            except (EOFError, ConnectionResetError):
                worker.join()
                results[name] = Outcome(failure=f"the process ended with {worker.exitcode}")
                _give(left, at_work, *_start())
            else:
                _give(left, at_work, line, worker)
    return {name: results[name] for name in names}


def _as_connection(ready: object) -> Connection:
    assert isinstance(ready, Connection)
    return ready


def _give(left: deque[str], at_work: dict[Connection, tuple[str, BaseProcess]], line: Connection,
          worker: BaseProcess) -> None:
    """Send the next name to a worker; one that gets none ends."""
    if left:
        name = left.popleft()
        line.send(name)
        at_work[line] = name, worker
    else:
        line.close()


def summary(results: Mapping[str, Outcome], unexpected: Sequence[str], excluded: int) -> str:
    """The closing line: what passes of both kinds, what fails."""
    given = sum(outcome.how == How.GIVEN for outcome in results.values())
    bound = sum(outcome.how == How.BOUND for outcome in results.values())
    failed = len(results) - given - bound
    return (f"{given + bound} passed, {failed} failed of {len(results)} CPU tests; of those that "
            f"pass {given} were compiled {How.GIVEN}, {bound} {How.BOUND}; "
            f"{excluded} excluded, {len(unexpected)} not as the exclusions say")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fragments", nargs="*")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--bound", action="store_true")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = load_suite()  # before workers start
    names = [n for n in suite if not options.fragments or any(f in n for f in options.fragments)]
    results = run_many(names)
    failures = {n: o.failure for n, o in results.items() if o.failure is not None}
    excluded = load_exclusions()
    if options.write is not None:
        options.write.write_text("".join(f"{n}: {r}\n" for n, r in failures.items()))
    unexpected = [n for n in names if (n in failures) != (n in excluded)]
    unknown = [n for n in excluded if n not in suite]
    for name in unexpected:
        print(f"{name}: {failures.get(name, 'passes, and is excluded')}")
    for name in unknown:
        print(f"{name}: is excluded, and is no test of the suite")
    if options.bound:
        print(*(n for n, outcome in results.items() if outcome.how == How.BOUND), sep="\n")
    print(summary(results, unexpected, len(excluded)))
    return 1 if unexpected or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
