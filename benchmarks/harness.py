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

import numpy as np

SETTLE_SECONDS = 0.05  # until the last peer's spinning threads have gone to sleep


@dataclass
class Contestant:
    """One peer with one model and one thread count, in a process of its own."""

    peer: str
    process: subprocess.Popen[str]
    outputs: list[np.ndarray]
    ready_seconds: float
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def time_round(self, warmup: int, calls: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        command = json.dumps({"warmup": warmup, "calls": calls})
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.times.extend(json.loads(self.process.stdout.readline())["times"])

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def start(peer: str, model: Path, threads: int, inputs: Path) -> Contestant | None:
    """Load a peer; ``None`` where it is not installed or cannot run the model."""
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
    return Contestant(peer, process, arrays, json.loads(line)["ready"])


def measure(
    model: Path, feeds: dict[str, np.ndarray], peers: Sequence[str], threads: int,
    *, rounds: int, seconds_per_round: float,
) -> list[Contestant]:
    """Time every peer that runs ``model``: outputs compared first, then rounds in turn."""
    inputs = model.with_suffix(".npz")
    np.savez(inputs, **feeds)
    contestants = [c for p in peers if (c := start(p, model, threads, inputs)) is not None]
    try:
        compare_outputs(contestants)
        for contestant in contestants:  # one call tells how many fill a round
            contestant.time_round(1, 2)
        calls = {id(c): max(3, int(seconds_per_round / c.median)) for c in contestants}
        for contestant in contestants:
            contestant.times.clear()
        for _ in range(rounds):
            for contestant in contestants:
                time.sleep(SETTLE_SECONDS)
                contestant.time_round(2, calls[id(contestant)])
    finally:
        for contestant in contestants:
            contestant.stop()
    return contestants


def compare_outputs(contestants: Sequence[Contestant]) -> None:
    """Fail unless all peers agree to 1e-3 of the output's scale."""
    reference = contestants[-1].outputs
    for contestant in contestants[:-1]:
        for got, expected in zip(contestant.outputs, reference, strict=True):
            scale = float(np.abs(expected).max()) or 1.0
            np.testing.assert_allclose(
                got / scale, expected / scale, rtol=1e-3, atol=1e-3,
                err_msg=f"{contestant.peer} and {contestants[-1].peer} disagree",
            )
