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
import json
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from tests.onnx.suite import How, load_exclusions, load_suite
from weft.runtime.cpu import usable_cpus


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


def serve() -> None:
    """A worker: names come in, results go out, one line each."""
    for line in sys.stdin:
        print(json.dumps(asdict(run_one(line.strip()))), flush=True)


def _work(names: SimpleQueue[str]) -> dict[str, Outcome]:
    """Take names until none is left; a worker process that ends is replaced."""
    results: dict[str, Outcome] = {}
    worker: subprocess.Popen[str] | None = None
    while True:
        try:
            name = names.get_nowait()
        except Empty:
            break
        worker = worker or _start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(name + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        if not answer:
            results[name] = Outcome(failure=f"the process ended with {worker.wait()}")
            worker = None
        else:
            results[name] = Outcome(**json.loads(answer))
    if worker is not None:
        worker.communicate()
    return results


def _start() -> subprocess.Popen[str]:
    # The generators of the suite overflow on purpose, in every process.
    command = [sys.executable, "-W", "ignore", "-c", "from tests.onnx.count import serve; serve()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_many(names: list[str]) -> dict[str, Outcome]:
    """The result of every test, in the order of ``names``."""
    queue: SimpleQueue[str] = SimpleQueue()
    for name in names:
        queue.put(name)
    workers = usable_cpus()
    with ThreadPoolExecutor(workers) as pool:
        shares = list(pool.map(lambda _: _work(queue), range(workers)))
    merged = {name: result for share in shares for name, result in share.items()}
    return {name: merged[name] for name in names}


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
        suite = load_suite()
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
