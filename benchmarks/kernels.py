"""``python -m benchmarks.kernels``: single kernels compared with peers and hardware limits."""

from __future__ import annotations

import fnmatch
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.agreement import DisagreementError, check_agreement, reference_outputs
from benchmarks.attention_kernels import ATTENTIONS
from benchmarks.contraction_kernels import CONTRACTIONS
from benchmarks.harness import SETTLE_SECONDS, WINOGRAD_NOTE, Failures, by_winograd
from benchmarks.kernel_models import KERNELS, Kernel, traffic
from benchmarks.models import random_inputs, save
from benchmarks.peak import fma_peak
from benchmarks.peers import PEERS, Feeds

# Smallest GFLOP/s shown in the table.
CLOSE = 2e-3


@dataclass
class Peer:
    """One runtime in a separate process, which loads models one after another."""

    name: str
    process: subprocess.Popen[str]
    times: list[float] = field(default_factory=list)

    def ask(self, **command: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.name} ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


def start(name: str, threads: int) -> Peer:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "WEFT_THREADS": str(threads)}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kernel_worker", name, str(threads)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        cwd=Path(__file__).resolve().parents[1],
    )
    return Peer(name, process)


@dataclass
class Result:
    """Median seconds by peer, bytes moved, and the copy bandwidth in GB/s for as many bytes."""

    kernel: Kernel
    seconds: dict[str, float]
    nbytes: int
    copy_rate: float
    implementations: tuple[str, ...] = ()  # weft's

    @property
    def ratio(self) -> float:
        """weft's time over the best peer's; NaN if either is missing."""
        others = [t for name, t in self.seconds.items() if name != "weft"]
        mine = self.seconds.get("weft")
        return mine / min(others) if mine and others else math.nan


def measure(kernel: Kernel, peers: Sequence[Peer], folder: Path, rounds: int,
            seconds: float) -> Result:
    """Load a kernel into every peer, compare outputs, then time interleaved rounds.

    Raises ``DisagreementError`` if outputs differ.
    """
    model = kernel.build()
    feeds = random_inputs(model)
    path = save(model, folder, "kernel")
    np.savez(folder / "inputs.npz", **feeds)
    ready = {peer.name: answer for peer in peers if (answer := _load(peer, path, folder))}
    outputs = {name: _arrays(answer) for name, answer in ready.items()}
    check_agreement(kernel.name, outputs, lambda: reference_outputs(path, feeds))
    able = [peer for peer in peers if peer.name in ready]
    calls = {}
    for peer in able:
        peer.times.clear()
        first = peer.ask(warmup=1, calls=2)["times"]
        calls[peer.name] = max(3, int(seconds / min(first)))
    for _ in range(rounds):
        for peer in able:
            time.sleep(SETTLE_SECONDS)
            peer.times += peer.ask(warmup=2, calls=calls[peer.name])["times"]
    nbytes = _nbytes(kernel, model, feeds, outputs) if outputs else 0
    rate = next((p.ask(copy=nbytes // kernel.passes)["rate"] for p in able if p.name == "weft"),
                math.nan)
    return Result(kernel, {p.name: statistics.median(p.times) for p in able}, nbytes, rate,
                  tuple(ready.get("weft", {}).get("implementations", ())))


def measured(failures: Failures, kernel: Kernel, peers: Sequence[Peer], folder: Path, rounds: int,
             seconds: float) -> Result:
    """Like ``measure``; records failures, and returns an empty result if outputs differ."""
    try:
        result = measure(kernel, peers, folder, rounds, seconds)
    except DisagreementError as error:
        failures.texts.append(str(error))
        return Result(kernel, {}, 0, math.nan)
    failures.expect_weft(kernel.name, [p.name for p in peers], list(result.seconds))
    return result


def _load(peer: Peer, path: Path, folder: Path) -> dict[str, Any] | None:
    answer = peer.ask(load=str(path), inputs=str(folder / "inputs.npz"),
                      outputs=str(folder / f"{peer.name}.npz"))
    if "error" in answer:
        print(f"{peer.name}: {answer['error'][:200]}", file=sys.stderr)
        return None
    return answer


def _arrays(answer: dict[str, Any]) -> list[np.ndarray]:
    results = np.load(answer["outputs"])
    return [results[key] for key in results.files]


def _nbytes(kernel: Kernel, model: Any, feeds: Feeds,
            outputs: dict[str, list[np.ndarray]]) -> int:
    return traffic(model, feeds, next(iter(outputs.values()))) * kernel.passes


@click.command()
@click.option("--only", default="*", help="Pattern of the kernels' names.")
@click.option("--peers", default=",".join(PEERS), help="Runtimes to compare, weft among them.")
@click.option("--threads", default="1,2", help="Thread counts.")
@click.option("--rounds", default=3, help="Rounds in turn; the medians are over all calls, with "
                                          "--predictions the shortest times.")
@click.option("--seconds", default=0.03, help="Seconds of each peer in each round.")
@click.option("--predictions", is_flag=True,
              help="Compare the times that the machine model predicts with measured ones.")
@click.option("--models", default="", help="With --predictions: patterns of whole models, too.")
def main(only: str, peers: str, threads: str, rounds: int, seconds: float, predictions: bool,
         models: str) -> None:
    """Speed of single kernels: GB/s, share of the limits measured in the same run, and ratios.

    The limits are the bandwidth of copying as many bytes as the kernel moves, and the FMA peak;
    the share is the larger of the two. Exits with status 1 if weft fails or results differ.
    """
    console, failures = Console(width=140), Failures()
    kernels = [k for k in (*KERNELS, *CONTRACTIONS, *ATTENTIONS) if fnmatch.fnmatch(k.name, only)]
    if predictions:
        print_predictions(kernels, models.split(","), rounds)
        return
    for count in (int(t) for t in threads.split(",")):
        workers = [start(name, count) for name in peers.split(",") if name]
        try:
            with tempfile.TemporaryDirectory() as folder:
                results = [measured(failures, k, workers, Path(folder), rounds, seconds)
                           for k in kernels]
        finally:
            for worker in workers:
                worker.stop()
        console.print(table_of(results, [w.name for w in workers], count, fma_peak(count)))
    failures.raise_any()


def print_predictions(kernels: Sequence[Kernel], models: Sequence[str], rounds: int) -> None:
    """Predicted and measured times of kernels, and of the models whose names match."""
    from benchmarks import predictions
    from benchmarks.suite import SUITE

    console, machine = Console(width=180), predictions.Machine()
    if kernels:
        rows = predictions.kernel_rows(kernels, machine, rounds)
        console.print(predictions.table_of(f"kernels on {machine.target.cpu}", rows))
    chosen = [m for m in SUITE.values() if any(fnmatch.fnmatch(m.name, p) for p in models)]
    if chosen:
        rows = predictions.model_rows(chosen, machine)
        console.print(predictions.table_of(f"models on {machine.target.cpu}", rows))


def table_of(results: Sequence[Result], peers: Sequence[str], threads: int,
             peak: float) -> Table:
    table = Table(title=f"single kernels, us, {threads} thread(s); FMA peak {peak:.0f} GFLOP/s")
    for name in ("kernel", *peers, "GB/s", "copy GB/s", "GFLOP/s", "% of limit",
                 "time / best peer"):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    for result in results:
        table.add_row(*_row(result, peers, peak))
    ratios = [r.ratio for r in results if not math.isnan(r.ratio)]
    if ratios:
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        worst = sum(ratio > 1 for ratio in ratios)
        table.caption = (f"geometric mean of time / best peer: {mean:.2f}; "
                         f"slower than the best peer: {worst} of {len(ratios)}\n{WINOGRAD_NOTE}")
    return table


def _row(result: Result, peers: Sequence[str], peak: float) -> list[str]:
    times = [f"{result.seconds[p] * 1e6:.1f}" if p in result.seconds else "-" for p in peers]
    mine = result.seconds.get("weft")
    if mine is None:
        return [result.kernel.name, *times, "-", "-", "-", "-", "-"]
    rate, flops = 1e-9 * result.nbytes / mine, 1e-9 * result.kernel.flops / mine
    share = max(rate / result.copy_rate, flops / peak)
    shown = f"{flops:.0f}" if flops > CLOSE else ""
    winograd = "W " if by_winograd(result.implementations) else ""
    return [result.kernel.name, *times, f"{rate:.1f}", f"{result.copy_rate:.0f}", shown,
            f"{winograd}{100 * share:.0f}", f"{result.ratio:.2f}"]


if __name__ == "__main__":
    main()
