"""Tuning on the workers of an executor: each tunes for the CPU that it has.

Workers with the same CPU share the kernels of a model among them; every kind of CPU gets all. A
worker searches as ``weft tune`` does, with a measuring process of its own, and answers with what it
found; a call whose worker is lost is run again by the executor. Where someone watches, the budget
is cut into slices: a worker answers after each, and goes on from there.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import weft.op  # noqa: F401 - programs refer to operators by name
from weft.compiler.extensions import Extensions
from weft.compiler.options import CompileOptions
from weft.ir import IRModule
from weft.runtime.executors import MEASURE, Call, Executor, Shared, Worker
from weft.support.dataclass import dataclass, replace
from weft.support.errors import RunTimeoutError, WeftError, WorkerError
from weft.tune.here import Effort, Share, Watch, tune_here, tuning_settings
from weft.tune.report import TunedKernel, TuningReport
from weft.tune.store import Sample, TuningStore, Winner

MORE_SECONDS = 300.0  # to import, to compile and to answer, beside the budget
SLICE_SECONDS = 30.0  # between two answers of a worker


@dataclass(frozen=True, slots=True)
class Part:
    """The results of one worker for its kernels."""

    samples: tuple[Sample, ...]
    winners: tuple[Winner, ...]
    tuned: tuple[TunedKernel, ...]
    kernels: int
    spent: float
    notes: tuple[str, ...]


NOTHING = Part((), (), (), 0, 0.0, ())


def tune_part(program: bytes, share: Share, effort: Effort, opt_level: int,
              knobs: Mapping[str, Any], known: Part = NOTHING) -> Part:
    """Tune a share of the kernels of a pickled program here; runs on a worker.

    It goes on from what is ``known``, which the answer has, too. Programs name operators, which
    only this module makes known to a new process.
    """
    module = pickle.loads(program)  # noqa: S301 - ``tune_on`` pickled it
    with tempfile.TemporaryDirectory() as folder, tuning_settings(knobs):
        path = Path(folder) / "part.sqlite"
        with TuningStore(path) as store:
            keep(store, known)
        options = CompileOptions.make(None, opt_level, extensions=Extensions.make((), (), ()))
        report = tune_here(module, None, options, path, effort, share=share)
        with TuningStore(path) as store:
            return Part(tuple(store.samples()), tuple(store.winners()), report.tuned,
                        report.kernels, report.spent, tuple(report.notes))


@dataclass(slots=True, eq=False)
class _Searching:
    """A worker's search: its share of the kernels, and what it has found."""

    share: Share
    worker: str | None
    found: Part = NOTHING
    slices: int = 0
    spent: float = 0.0

    def take(self, part: Part) -> bool:
        """Keep an answer; whether it has something new."""
        is_new = len(part.samples) > len(self.found.samples)
        self.found, self.slices, self.spent = part, self.slices + 1, self.spent + part.spent
        return is_new

    def __str__(self) -> str:
        return f"tuning part {self.share.number + 1} of {self.share.parts}"


def tune_on(executor: Executor, module: IRModule, records: Path, effort: Effort, opt_level: int,
            knobs: Mapping[str, Any], watch: Watch | None = None) -> TuningReport:
    """Tune a program on all workers, and keep what they find in ``records``.

    ``watch`` gets the state whenever a worker has answered. The kernels of a worker that is lost
    keep what they have. Raises ``WorkerError`` without workers or if all are lost, and what else a
    worker raises.
    """
    shared = Shared.of(pickle.dumps(module))
    searches = _searches(executor.workers())
    slices = 1 if watch is None else max(1, round(effort.seconds / SLICE_SECONDS))
    seconds = effort.seconds / slices

    def run(search: _Searching) -> Future[Part]:
        part = replace(effort, seconds=seconds, seed=effort.seed + search.slices)
        return executor.run(Call(
            tune_part, (shared, search.share, part, opt_level, knobs, search.found),
            timeout=seconds + MORE_SECONDS, resources={MEASURE: 1}, worker=search.worker,
            label=str(search)))

    running = {run(search): search for search in searches}
    lost: list[WeftError] = []
    interrupted = False
    with TuningStore(records) as store:
        try:
            for search, part in _answers(running, lost):
                keep(store, part)
                if search.take(part) and search.slices < slices:
                    running[run(search)] = search
                if watch is not None:
                    watch(_report(records, searches, lost))
        except KeyboardInterrupt:
            interrupted = True
            executor.cancel(list(running))
    if lost and not any(search.slices for search in searches):
        raise lost[0]
    return replace(_report(records, searches, lost), interrupted=interrupted)


def _searches(workers: Sequence[Worker]) -> list[_Searching]:
    """A search for each worker; ``WorkerError`` without workers."""
    groups: dict[tuple[str, frozenset[str]], list[Worker]] = defaultdict(list)
    for worker in workers:
        groups[worker.cpu, worker.features].append(worker)
    if not groups:
        raise WorkerError("no workers to tune on", help="start workers, or tune on this machine")
    return [_Searching(Share(number, len(alike)), worker.name if len(groups) > 1 else None)
            for alike in groups.values() for number, worker in enumerate(alike)]


def _answers(running: dict[Future[Part], _Searching], lost: list[WeftError]
             ) -> Iterator[tuple[_Searching, Part]]:
    """The answers as they come, while ``running`` has calls; errors of lost workers to ``lost``."""
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            search = running.pop(future)
            try:
                part = future.result()
            except (WorkerError, RunTimeoutError) as error:  # the others go on
                lost.append(error)
            else:
                yield search, part


def _report(records: Path, searches: Sequence[_Searching], lost: Sequence[WeftError]
            ) -> TuningReport:
    """The results of all workers until now."""
    parts = [search.found for search in searches]
    notes = dict.fromkeys([note for part in parts for note in part.notes]
                          + [f"a worker was lost: {error.args[0]}" for error in lost])
    return TuningReport(
        records, max(part.kernels for part in parts),
        tuple(kernel for part in parts for kernel in part.tuned),
        max(search.spent for search in searches), notes=tuple(notes))


def keep(store: TuningStore, part: Part) -> None:
    """Add what a worker found; a winner stays if the one that is known gains more."""
    store.add(part.samples)
    for winner in part.winners:
        known = store.winner(winner.cpu, winner.kernel, winner.threads)
        if known is None or winner.gain > known.gain:
            store.set_winner(winner)
