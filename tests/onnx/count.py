"""Run the whole suite and print the counts: ``python -m tests.onnx.count [FRAGMENT ...]``.

Tests run in worker processes, one for each CPU, so that one that ends its process is a failure of
its own. With fragments only the tests whose names contain one of them run. ``--write FILE`` keeps
the failures, one ``name: reason`` a line. Ends with 1 where a test fails that is not excluded,
an excluded one passes, or an exclusion names no test.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

from tests.onnx.suite import load_exclusions, load_suite


def run_one(name: str) -> str | None:
    """``None`` where the test passes, else the first line of what went wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_suite()[name]()
    except Exception as error:  # noqa: BLE001 - any failure is one line of the report
        notes = " | ".join(getattr(error, "notes", None) or ())
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        return f"{type(error).__name__}: {' '.join(lines[:3])} {notes}".strip()
    return None


def serve() -> None:
    """A worker: names come in, results go out, one line each."""
    for line in sys.stdin:
        print(json.dumps(run_one(line.strip())), flush=True)


def _work(names: SimpleQueue[str]) -> dict[str, str | None]:
    """Take names until none is left; a worker process that ends is replaced."""
    results: dict[str, str | None] = {}
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
            results[name] = f"the process ended with {worker.wait()}"
            worker = None
        else:
            results[name] = json.loads(answer)
    if worker is not None:
        worker.communicate()
    return results


def _start() -> subprocess.Popen[str]:
    # The generators of the suite overflow on purpose, in every process.
    command = [sys.executable, "-W", "ignore", "-c", "from tests.onnx.count import serve; serve()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_many(names: list[str]) -> dict[str, str | None]:
    """The result of every test, in the order of ``names``."""
    queue: SimpleQueue[str] = SimpleQueue()
    for name in names:
        queue.put(name)
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        shares = list(pool.map(lambda _: _work(queue), range(workers)))
    merged = {name: result for share in shares for name, result in share.items()}
    return {name: merged[name] for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fragments", nargs="*")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = load_suite()
    names = [n for n in suite if not options.fragments or any(f in n for f in options.fragments)]
    results = run_many(names)
    failures = {name: reason for name, reason in results.items() if reason is not None}
    excluded = load_exclusions()
    if options.write is not None:
        options.write.write_text("".join(f"{n}: {r}\n" for n, r in failures.items()))
    unexpected = [n for n in names if (n in failures) != (n in excluded)]
    unknown = [n for n in excluded if n not in suite]
    for name in unexpected:
        print(f"{name}: {failures.get(name, 'passes, and is excluded')}")
    for name in unknown:
        print(f"{name}: is excluded, and is no test of the suite")
    print(f"{len(names) - len(failures)} passed, {len(failures)} failed of {len(names)} CPU tests; "
          f"{len(excluded)} excluded, {len(unexpected)} not as the exclusions say")
    return 1 if unexpected or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
