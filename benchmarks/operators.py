"""``python -m benchmarks.operators``: kernels besides contractions, beside their peers.

Each library runs in a process of its own. Results are compared first; then rounds are interleaved,
and the fastest call of each peer counts, so that other load on the machine does not.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.agreement import DisagreementError, check_agreement
from benchmarks.corner_operators import CORNERS, Corner
from benchmarks.harness import Failures
from benchmarks.kernels import Peer, start
from benchmarks.training import cpu_name

PEERS = ("weft", "onnxruntime", "torch", "jax", "numpy")
BAR = 1.1


def measure(corner: Corner, peers: Sequence[Peer], folder: Path, rounds: int,
            seconds: float) -> dict[str, float]:
    """The fastest call of each peer that has the kernel, in seconds.

    Raises ``DisagreementError`` if results differ.
    """
    able, outputs = [], {}
    for peer in peers:
        answer = peer.ask(corner=corner.name, folder=str(folder))
        if "error" in answer:
            if "LookupError" not in answer["error"]:
                click.echo(f"{corner.name}, {peer.name}: {answer['error'][:300]}", err=True)
            continue
        results = np.load(answer["outputs"])
        able.append(peer)
        outputs[peer.name] = [results[key] for key in results.files]
    if not corner.random and len(outputs) > 1:
        check_agreement(corner.name, outputs, list)
    calls = {peer.name: max(3, int(seconds / min(peer.ask(warmup=1, calls=2)["times"])))
             for peer in able}
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for peer in able:
            time.sleep(0.01)
            times = peer.ask(warmup=1, calls=min(calls[peer.name], 1000))["times"]
            best[peer.name] = min(best[peer.name], *times)
    return best


def ratio(times: Mapping[str, float]) -> float:
    """The ratio of weft's time to the best peer's; NaN without a peer."""
    others = [t for name, t in times.items() if name != "weft"]
    return times["weft"] / min(others) if others and "weft" in times else math.nan


def table_of(found: Mapping[str, Mapping[str, float]], peers: Sequence[str]) -> Table:
    table = Table(title=f"corner kernels, us, one thread, fastest call, on {cpu_name()}")
    for name in ("kernel", *peers, "weft / best peer"):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    for name, times in found.items():
        share = ratio(times)
        mark = f"[red]{share:.2f}[/red]" if share > BAR else f"{share:.2f}"
        table.add_row(name, *(f"{times[p] * 1e6:.1f}" if p in times else "-" for p in peers), mark)
    ratios = [r for r in map(ratio, found.values()) if not math.isnan(r)]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        table.caption = (f"geometric mean {mean:.2f}; above {BAR}: "
                         f"{sum(r > BAR for r in ratios)} of {len(ratios)}")
    return table


@click.command()
@click.option("--only", default="*", help="Pattern of the kernels' names.")
@click.option("--peers", default=",".join(PEERS), help="Libraries to compare, weft among them.")
@click.option("--rounds", default=5, help="Interleaved rounds.")
@click.option("--seconds", default=0.03, help="Seconds of each peer in each round.")
def main(only: str, peers: str, rounds: int, seconds: float) -> None:
    """Time of kernels besides contractions; exits with status 1 if weft fails or results differ."""
    failures, found = Failures(), {}
    workers = [start(name, 1) for name in peers.split(",")]
    names = [worker.name for worker in workers]
    try:
        with tempfile.TemporaryDirectory() as folder:
            for corner in (c for c in CORNERS if fnmatch.fnmatch(c.name, only)):
                try:
                    times = measure(corner, workers, Path(folder), rounds, seconds)
                except DisagreementError as error:
                    failures.texts.append(str(error))
                    continue
                failures.expect_weft(corner.name, names, list(times))
                found[corner.name] = times
                click.echo(f"{ratio(times):6.2f}  {corner.name}  " + "  ".join(
                    f"{n} {t * 1e6:.1f}" for n, t in times.items()), err=True)
    finally:
        for worker in workers:
            worker.stop()
    Console(width=140).print(table_of(found, names))
    failures.raise_any()


if __name__ == "__main__":
    main()
