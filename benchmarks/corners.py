"""``python -m benchmarks.corners``: rare contractions on one thread, compared with all peers."""

from __future__ import annotations

import fnmatch
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.agreement import check_agreement, reference_outputs
from benchmarks.corner_kernels import CORNERS
from benchmarks.harness import Failures
from benchmarks.kernel_models import Kernel, traffic
from benchmarks.lite_kernels import LiteModel, load_litert
from benchmarks.models import random_inputs, save
from benchmarks.peers import PEERS, Feeds, Runner

HOPELESS = 30  # times the fastest first call


@dataclass
class Contest:
    """The runners of one kernel in this process, and the smallest seconds of each."""

    kernel: Kernel
    runners: dict[str, Runner]
    nbytes: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """weft's time over the best peer's; NaN if either is missing."""
        others = [t for name, t in self.seconds.items() if name != "weft"]
        mine = self.seconds.get("weft")
        return mine / min(others) if mine and others else math.nan

    def time(self, feeds: Feeds, rounds: int, seconds: float) -> None:
        """Interleaved rounds of a few calls each; hopeless peers are called once."""
        self.seconds = {name: max(_fastest(run, feeds, 1), 1e-7)
                        for name, run in self.runners.items()}
        first, limit = dict(self.seconds), HOPELESS * min(self.seconds.values())
        for _ in range(rounds):
            for name, run in self.runners.items():
                if first[name] > limit:
                    continue
                took = _fastest(run, feeds, max(2, int(seconds / first[name])))
                self.seconds[name] = min(took, self.seconds[name])


def _fastest(run: Runner, feeds: Feeds, calls: int) -> float:
    """CPU seconds of all threads: other programs on the same core do not count."""
    best = math.inf
    for _ in range(calls):
        start = time.process_time()
        run(feeds)
        best = min(best, time.process_time() - start)
    return best


def contest(kernel: Kernel, peers: Sequence[str], folder: Path) -> tuple[Contest, Feeds]:
    """Load a kernel into every peer that can run it and compare their results."""
    model = kernel.build()
    if isinstance(model, LiteModel):
        feeds, path = model.feeds, folder / "kernel.tflite"
        path.write_bytes(model.content)
        peers = [*(name for name in peers if name == "weft"), "litert"]
    else:
        feeds, path = random_inputs(model), save(model, folder, "kernel")
    runners: dict[str, Runner] = {}
    outputs: dict[str, list[np.ndarray]] = {}
    for name in peers:
        try:
            if name == "openvino" and any(f.dtype.name == "bfloat16" for f in feeds.values()):
                raise TypeError("it reads bfloat16 of NumPy as other numbers")
            run = _load(name, path)
            outputs[name] = [_comparable(array) for array in run(feeds)]
        except Exception as error:  # noqa: BLE001 - a peer may refuse a model in any way
            print(f"{kernel.name}: {name}: {str(error)[:160]}", file=sys.stderr)
            continue
        runners[name] = run
    check_agreement(kernel.name, outputs, model.expected if isinstance(model, LiteModel)
                    else lambda: reference_outputs(path, feeds), kernel.tolerance)
    results = next(iter(outputs.values()))
    nbytes = (len(model.content) + sum(a.nbytes for a in (*feeds.values(), *results))
              if isinstance(model, LiteModel) else traffic(model, feeds, results))
    return Contest(kernel, runners, nbytes), feeds


def _load(peer: str, path: Path) -> Runner:
    if peer == "litert":
        return load_litert(path, 1)
    if peer == "torch":
        from benchmarks.torch_kernels import load

        return load(path, 1)
    return PEERS[peer](path, 1)


def _comparable(array: np.ndarray) -> np.ndarray:
    """Floats in float32, whatever dtype a peer returns."""
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float32) if is_float else array


@click.command()
@click.option("--only", default="*", help="Pattern of the kernels' names.")
@click.option("--peers", default=",".join(PEERS), help="Runtimes to compare, weft among them.")
@click.option("--rounds", default=5, help="Interleaved rounds; the minima are over all calls.")
@click.option("--seconds", default=0.02, help="Seconds of each peer in each round.")
def main(only: str, peers: str, rounds: int, seconds: float) -> None:
    """Minima of weft and its peers on one thread, in one process; outputs are compared first.

    Exits with status 1 if weft fails or results differ.
    """
    os.environ["OMP_NUM_THREADS"] = os.environ["WEFT_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks.bandwidth import copy_bandwidth
    from benchmarks.peak import fma_peak

    names, failures, done = [name for name in peers.split(",") if name], Failures(), []
    with tempfile.TemporaryDirectory() as folder:
        for kernel in (k for k in CORNERS if fnmatch.fnmatch(k.name, only)):
            try:
                made, feeds = contest(kernel, names, Path(folder))
            except Exception as error:  # noqa: BLE001 - the other kernels are measured
                failures.texts.append(f"{kernel.name}: {error}")
                continue
            failures.expect_weft(kernel.name, names, list(made.runners))
            made.time(feeds, rounds, seconds)
            made.runners.clear()
            done.append(made)
            print(f"{kernel.name}: {made.ratio:.2f}", file=sys.stderr, flush=True)
    Console(width=140).print(table_of(done, names, fma_peak(1), copy_bandwidth(1 << 26, 1)))
    failures.raise_any()


def table_of(contests: Sequence[Contest], peers: Sequence[str], peak: float,
             copy: float) -> Table:
    """Microseconds, the share of the FMA peak or of the copy bandwidth, and ratios."""
    table = Table(title=f"corner kernels, us, 1 thread; FMA peak of float32 {peak:.0f} GFLOP/s, "
                        f"copying 64 MB {copy:.0f} GB/s")
    for name in ("kernel", *peers, "% of peak", "% of copy", "time / best peer"):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    for made in contests:
        mine = made.seconds.get("weft", math.nan)
        times = [f"{made.seconds[p] * 1e6:.1f}" if p in made.seconds else "-" for p in peers]
        if "litert" in made.seconds:
            times[-1] = f"{made.seconds['litert'] * 1e6:.1f} L"
        table.add_row(made.kernel.name, *times, f"{1e-7 * made.kernel.flops / mine / peak:.0f}",
                      f"{1e-7 * made.nbytes / mine / copy:.0f}", f"{made.ratio:.2f}")
    table.caption = "L: TensorFlow Lite, for its files"
    ratios = [made.ratio for made in contests if not math.isnan(made.ratio)]
    if ratios:
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        table.caption += (f"\ngeometric mean of time / best peer: {mean:.2f}; above 1.1: "
                         f"{sum(ratio > 1.1 for ratio in ratios)} of {len(ratios)}")
    return table


if __name__ == "__main__":
    main()
