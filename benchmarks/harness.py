"""Interleaved rounds over worker processes; medians, and ratios of one run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.agreement import DisagreementError, check_agreement, reference_outputs

SETTLE_SECONDS = 0.05  # until the last peer's spinning threads have gone to sleep


@dataclass
class Contestant:
    """One peer with one model and one thread count, in a separate process."""

    peer: str
    process: subprocess.Popen[str]
    outputs: list[np.ndarray]
    ready_seconds: float
    times: list[float] = field(default_factory=list)
    implementations: tuple[str, ...] = ()  # of weft: how each kernel is computed
    limit: dict[str, Any] | None = None  # of weft: what ``benchmarks.worker.limit`` tells

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def time_round(self, warmup: int, calls: int) -> None:
        self.times.extend(self.ask(warmup=warmup, calls=calls)["times"])

    def ask(self, **command: Any) -> dict[str, Any]:
        """The answer of the worker to a command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


def start(peer: str, model: Path, threads: int, inputs: Path) -> Contestant | None:
    """Start a worker for a peer; ``None`` if it is not installed or cannot run the model."""
    outputs = inputs.with_name(f"{model.stem}-{peer}-{threads}.npz")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "WEFT_THREADS": str(threads)}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", peer, str(model), str(threads), str(inputs),
         str(outputs)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        return None
    results = np.load(outputs)
    arrays = [results[key] for key in results.files]
    told = json.loads(line)
    return Contestant(peer, process, arrays, told["ready"],
                      implementations=tuple(told.get("implementations", ())))


def measure(
    model: Path, feeds: dict[str, np.ndarray], peers: Sequence[str], threads: int,
    *, rounds: int, seconds_per_round: float, limit: bool = False,
) -> list[Contestant]:
    """Time every peer that runs ``model``: compare outputs, then time interleaved rounds.

    With ``limit``, weft tells the limit of its kernels. Raises ``DisagreementError`` if outputs
    differ.
    """
    inputs = model.with_suffix(".npz")
    np.savez(inputs, **feeds)
    contestants = [c for p in peers if (c := start(p, model, threads, inputs)) is not None]
    try:
        check_agreement(model.stem, {c.peer: c.outputs for c in contestants},
                        lambda: reference_outputs(model, feeds))
        for contestant in contestants:  # estimates the number of calls per round
            contestant.time_round(1, 2)
        calls = {id(c): max(3, int(seconds_per_round / c.median)) for c in contestants}
        for contestant in contestants:
            contestant.times.clear()
        for _ in range(rounds):
            for contestant in contestants:
                time.sleep(SETTLE_SECONDS)
                contestant.time_round(2, calls[id(contestant)])
        for contestant in contestants:
            if contestant.peer == "weft" and limit:
                contestant.limit = contestant.ask(limit=True)
    finally:
        for contestant in contestants:
            contestant.stop()
    return contestants


@dataclass
class Failures:
    """Failures of a run; the run exits with status 1 if there are any."""

    texts: list[str] = field(default_factory=list)

    def measured(
        self, model: Path, feeds: dict[str, np.ndarray], peers: Sequence[str], threads: int,
        *, rounds: int, seconds_per_round: float, limit: bool = False,
    ) -> list[Contestant]:
        """Like ``measure``; empty if outputs disagree. A model that weft cannot run is a failure.
        """
        try:
            found = measure(model, feeds, peers, threads, rounds=rounds,
                            seconds_per_round=seconds_per_round, limit=limit)
        except DisagreementError as error:
            self.texts.append(str(error))
            return []
        self.expect_weft(model.stem, peers, [c.peer for c in found])
        return found

    def expect_weft(self, what: str, wanted: Sequence[str], able: Sequence[str]) -> None:
        """Record a failure if weft was requested but could not run."""
        if "weft" in wanted and "weft" not in able:
            self.texts.append(f"{what}: weft failed")

    def raise_any(self) -> None:
        """Exit with status 1 if there were failures."""
        if self.texts:
            raise click.ClickException("\n".join(self.texts))


def by_winograd(implementations: Sequence[str]) -> bool:
    """Whether a kernel uses Winograd, which multiplies less often than its FLOPs say."""
    return any("winograd" in name for name in implementations)


WINOGRAD_NOTE = ("W: a Winograd convolution, which multiplies less often than the direct one whose "
                 "FLOPs are counted")
