"""Run PyTorch's own operator samples through weft: ``python -m tests.torch.opinfo``.

Prints how many operators weft computes, leaves to torch (in part), refuses or gets wrong, for
every element type, with gradients and without. Operators run in worker processes; one that ends
its process or does not come to an end is counted as crashed. Ends with 1 where an operator raises,
is wrong or crashes and is not excluded, or is not computed though ``opinfo_operators.txt`` says so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.torch.opinfo_names import (
    CONFIGURATIONS,
    EXCLUSIONS,
    OPERATORS,
    load_expected,
    load_lines,
)
from tests.torch.opinfo_samples import operators

COLUMNS = {"COMPUTED": "computed by weft", "TORCH": "partly by torch", "NOT_TRACED": "not traced",
           "RAISES": "raises", "WRONG": "wrong", "CRASHED": "crashes", "EXCLUDED": "excluded"}
_FAILURES = ("RAISES", "WRONG", "CRASHED")
_TIMEOUT = 600

Job = tuple[str, str, bool]
Result = dict[str, Any]


def serve(count: int, runner: str) -> None:
    """A worker: jobs come in, results go out, one line of JSON each.

    ``runner`` is the module of the ``run_operator`` that runs them.
    """
    run_operator = importlib.import_module(runner).run_operator
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is no answer
    for line in sys.stdin:
        name, dtype, gradients = json.loads(line)
        outcome = run_operator(name, dtype, count, gradients=gradients)
        print(json.dumps(outcome.as_json()), file=answers, flush=True)


class Worker:
    """A process that runs jobs until one ends it."""

    def __init__(self, count: int, runner: str) -> None:
        command = [sys.executable, "-W", "ignore", "-c",
                   f"from tests.torch.opinfo import serve; serve({count}, {runner!r})"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True)

    def run(self, job: Job) -> Result | None:
        """The result, ``None`` where the process ended or was ended for taking too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(_TIMEOUT, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watchdog.cancel()
        return json.loads(answer) if answer else None

    def close(self) -> int:
        self._process.communicate()
        return self._process.returncode


def _work(jobs: SimpleQueue[Job], count: int, runner: str, progress: Any) -> list[Result]:
    """Take jobs until none is left; a worker process that ends is replaced."""
    results: list[Result] = []
    worker: Worker | None = None
    while True:
        try:
            job = jobs.get_nowait()
        except Empty:
            break
        worker = worker or Worker(count, runner)
        result = worker.run(job)
        if result is None:
            result = {"operator": job[0], "dtype": job[1], "gradients": job[2], "samples": 0,
                      "status": "CRASHED", "left": [], "agree": 0, "kinds": {"other": 1},
                      "detail": f"the process ended with {worker.close()}"}
            result["details"] = {"other": result["detail"]}
            worker = None
        results.append(result)
        progress(result)
    if worker is not None:
        worker.close()
    return results


def run_many(jobs: list[Job], count: int, workers: int, output: Path | None,
             runner: str = "tests.torch.opinfo_run") -> list[Result]:
    """The results of all jobs, in their order; ``output`` gets each as it comes, a line each."""
    queue: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        queue.put(job)
    done = 0

    lines = None if output is None else output.open("w", encoding="utf-8")

    def progress(result: Result) -> None:
        nonlocal done
        done += 1
        if lines is not None:
            print(json.dumps(result), file=lines, flush=True)
        if sys.stderr.isatty() or done % 50 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{done} of {len(jobs)}", end=end, file=sys.stderr, flush=True)

    with ThreadPoolExecutor(workers) as pool:
        shares = list(pool.map(lambda _: _work(queue, count, runner, progress), range(workers)))
    if lines is not None:
        lines.close()
    found = {(r["operator"], r["dtype"], r["gradients"]): r for share in shares for r in share}
    return [found[job] for job in jobs]


def _summary(results: list[Result], excluded: dict[str, str]) -> Table:
    table = Table(title="PyTorch's operator samples through weft")
    table.add_column("samples")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    table.add_column("operators", justify="right")
    for dtype, gradients in dict.fromkeys((r["dtype"], r["gradients"]) for r in results):
        chosen = [r for r in results if (r["dtype"], r["gradients"]) == (dtype, gradients)
                  and r["status"] != "NO_SAMPLES"]
        kinds = ["EXCLUDED" if r["operator"] in excluded else r["status"] for r in chosen]
        table.add_row(f"{dtype}, forward and backward" if gradients else f"{dtype}, forward",
                      *(str(kinds.count(kind)) for kind in COLUMNS), str(len(chosen)))
    return table


def _details(results: list[Result], excluded: dict[str, str], kinds: set[str]) -> Table:
    table = Table()
    for title in ("operator", "samples", "status", "why"):
        table.add_column(title, overflow="fold")
    for r in results:
        if r["status"] in kinds and r["operator"] not in excluded:
            table.add_row(r["operator"], _samples(r), COLUMNS[r["status"]], r["detail"])
    return table


def _unexpected(results: list[Result], excluded: dict[str, str],
                expected: dict[str, tuple[str, ...]]) -> list[str]:
    found = []
    for r in results:
        name, status = r["operator"], r["status"]
        if name in excluded:
            continue
        if status in _FAILURES:
            found.append(f"{name}, {r['dtype']}: {COLUMNS[status]}")
        elif status != "COMPUTED" and _expected(r, expected) == "computed":
            found.append(f"{name}, {_samples(r)} is no longer computed by weft: {r['detail']}")
    return found


def _expected(result: Result, expected: dict[str, tuple[str, ...]]) -> str:
    """What is expected of an operator and configuration; ``-`` of one that is not listed."""
    one = (result["dtype"], result["gradients"])
    states = expected.get(result["operator"])
    return states[CONFIGURATIONS.index(one)] if states and one in CONFIGURATIONS else "-"


def _samples(result: Result) -> str:
    return result["dtype"] + (" with gradients" if result["gradients"] else "")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", help="names, or parts of names with *, separated by commas")
    parser.add_argument("--samples", type=int, default=10, help="how many of each operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--dtype", help="element types, separated by commas")
    parser.add_argument("--gradients", choices=("yes", "no", "both"), default="both")
    parser.add_argument("--output", type=Path, help="a file for the details, a line of JSON each")
    parser.add_argument("--write", action="store_true",
                        help="keep which operators are computed, in opinfo_operators.txt")
    parser.add_argument("--all", action="store_true", help="list what is left to torch, too")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> list[Job]:
    from fnmatch import fnmatchcase

    patterns = options.ops.split(",") if options.ops else ["*"]
    names = [n for n in operators() if any(fnmatchcase(n, p) for p in patterns)]
    dtypes = options.dtype.split(",") if options.dtype else None
    wanted = {"yes": (True,), "no": (False,), "both": (False, True)}[options.gradients]
    chosen = CONFIGURATIONS if dtypes is None else \
        tuple((d, g) for d in dtypes for g in ((False, True) if "float" in d else (False,)))
    return [(n, d, g) for d, g in chosen if g in wanted for n in names]


def _write(results: list[Result], excluded: dict[str, str]) -> None:
    states = {"COMPUTED": "computed", "NO_SAMPLES": "-"}
    found = {(r["operator"], r["dtype"], r["gradients"]): states.get(r["status"], "torch")
             for r in results}
    names = sorted({name for name, *_ in found} - {*excluded})
    lines = [f"{name}: {' '.join(found.get((name, *one), '-') for one in CONFIGURATIONS)}\n"
             for name in names]
    header = [line for line in OPERATORS.read_text(encoding="utf-8").splitlines(keepends=True)
              if line.startswith("#")]
    OPERATORS.write_text("".join([*header, *lines]), encoding="utf-8")


def main() -> int:
    options = _parsed()
    excluded, expected = load_lines(EXCLUSIONS), load_expected()
    results = run_many(_jobs(options), options.samples, options.jobs, options.output)
    console = Console(width=None if sys.stdout.isatty() else 160)
    shown = {*_FAILURES, *(("TORCH", "NOT_TRACED") if options.all else ())}
    if any(r["status"] in shown for r in results):
        console.print(_details(results, excluded, shown))
    console.print(_summary(results, excluded))
    if options.write:
        _write(results, excluded)
    unexpected = _unexpected(results, excluded, expected)
    for line in unexpected:
        print(line)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
