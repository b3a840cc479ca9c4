"""``python -m benchmarks.training``: steps of training beside torch, Inductor and JAX.

A step is forward, backward and SGD with momentum. Each peer runs in a process of its own over the
same weights and batches; the losses of the first steps are compared before anything is measured.
Rounds are interleaved and the medians reported (``--minimum``: the fastest steps, for a machine
with other load). Peak memory is the
resident memory of the process while it steps, less what it had before the first step.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.training_peers import PEERS, SkippedError, step_of

MODELS = ("mlp", "resnet9", "resnet18", "lstm", "gru", "gpt2", "bert")
STEPS = 3  # whose losses are compared
TOLERANCE = 1e-3


@dataclass
class Runner:
    """A peer in its process."""

    peer: str
    process: subprocess.Popen[str]
    losses: list[float]
    megabytes: float
    seconds: list[float] = field(default_factory=list)

    def ask(self, request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.peer} ended")
        return json.loads(line)


def start(peer: str, model: str, batch: int, threads: int) -> Runner | str:
    """A runner that has made its first steps, or why there is none."""
    names = ("WEFT_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environment = {**os.environ, **dict.fromkeys(names, str(threads)),
                   **({"XLA_FLAGS": flags} if threads == 1 else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.training", "--worker", peer, model, str(batch),
         str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = json.loads(line) if line else {"skipped": "failed"}
    if "skipped" in found:
        process.kill()
        process.wait()
        return found["skipped"]
    return Runner(peer, process, found["losses"], found["megabytes"])


def worker(peer: str, model: str, batch: int, threads: int) -> None:
    """Serve one peer: the first steps, then rounds of as many seconds as asked for."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print

    def say(value: Any) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    try:
        step = step_of(peer, model, batch, threads)
        before = _resident("VmRSS")
        losses = [step() for _ in range(STEPS)]
    except SkippedError as reason:
        say({"skipped": str(reason)})
        return
    except Exception as error:  # noqa: BLE001 - a table with a gap is of more use than none
        say({"skipped": f"{type(error).__name__}: {str(error)[:200]}"})
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again here
    step()
    say({"losses": losses, "megabytes": _resident("VmHWM") - before})
    for line in sys.stdin:
        say(_round(step, json.loads(line)))


def _round(step: Any, seconds: float) -> list[float]:
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return times


def _resident(name: str) -> float:
    """A figure of /proc/self/status in MB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return float(text.partition(name + ":")[2].split()[0]) / 1024


def compare(runners: list[Runner]) -> None:
    """Drop runners whose losses are not those of torch."""
    reference = next((r for r in runners if r.peer == "torch"), runners[0])
    for runner in list(runners):
        worst = max(abs(a - b) / abs(b)
                    for a, b in zip(runner.losses, reference.losses, strict=True))
        if not worst <= TOLERANCE:
            click.echo(f"{runner.peer}: losses {runner.losses}, expected {reference.losses}",
                       err=True)
            runners.remove(runner)
            runner.process.kill()


def row(model: str, batch: int, threads: int, peers: tuple[str, ...], rounds: int,
        seconds: float, typical: Callable[[list[float]], float]
        ) -> tuple[list[str], dict[str, float]]:
    """The cells of one line, and the times by peer."""
    with ExitStack() as stack:
        started = [(p, start(p, model, batch, threads)) for p in peers]
        runners = [r for _, r in started if isinstance(r, Runner)]
        for runner in runners:
            stack.callback(runner.process.wait)
            stack.callback(runner.process.kill)
        skipped = {p: r for p, r in started if isinstance(r, str)}
        for peer, reason in skipped.items():
            click.echo(f"{model}, {peer}: {reason}", err=True)
        compare(runners)
        for _ in range(rounds):
            for runner in runners:
                runner.seconds += runner.ask(seconds)
    times = {r.peer: typical(r.seconds) for r in runners}
    memory = {r.peer: r.megabytes for r in runners}
    cells = [f"{times[p] * 1e3:.2f} ({memory[p]:.0f})" if p in times else "-" for p in peers]
    best = min((t for p, t in times.items() if "weft" not in p), default=math.nan)
    ratios = [f"{times[p] / best:.2f}" if p in times else "-" for p in PEERS[:2]]
    return [model, str(batch), str(threads), *cells, *ratios], times


def cpu_name() -> str:
    """The processor's name and family."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return text.partition("model name")[2].partition(":")[2].partition("\n")[0].strip()


@click.command()
@click.option("--models", default=",".join(MODELS), help="models to train")
@click.option("--batches", default="1,8,64", help="batch sizes")
@click.option("--threads", default="1,2", help="thread counts")
@click.option("--peers", default=",".join(PEERS), help="who trains them")
@click.option("--rounds", default=4, help="interleaved rounds")
@click.option("--seconds", default=0.5, help="seconds of each peer in each round")
@click.option("--minimum", is_flag=True, help="report the fastest steps")
@click.option("--worker", "as_worker", nargs=4, default=None, hidden=True)
def main(models: str, batches: str, threads: str, peers: str, rounds: int, seconds: float,
         *, minimum: bool, as_worker: tuple[str, ...] | None) -> None:
    """Time and memory of a training step; ratios are to the best peer that is not weft."""
    if as_worker:
        peer, model, *numbers = as_worker
        worker(peer, model, *map(int, numbers))
        return
    chosen = tuple(peers.split(","))
    table = Table(title=f"step, ms (peak MB), on {cpu_name()}, {os.cpu_count()} CPUs")
    for name in ("model", "batch", "threads", *chosen, "weft / best", "torch+weft / best"):
        table.add_column(name, justify="right")
    logs: dict[str, list[float]] = {p: [] for p in PEERS[:2]}
    for count in map(int, threads.split(",")):
        for model in models.split(","):
            for batch in map(int, batches.split(",")):
                cells, times = row(model, batch, count, chosen, rounds, seconds,
                                   min if minimum else statistics.median)
                click.echo("  ".join(cells), err=True)
                table.add_row(*cells)
                best = min((t for p, t in times.items() if "weft" not in p), default=None)
                for peer, found in logs.items():
                    if best and peer in times:
                        found.append(math.log(times[peer] / best))
    Console(width=160).print(table)
    for peer, found in logs.items():
        if found:
            click.echo(f"{peer}: geometric mean {math.exp(statistics.fmean(found)):.2f} "
                       f"of the best peer")


if __name__ == "__main__":
    main()
