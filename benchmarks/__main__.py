"""``python -m benchmarks``: whole models, weft beside its peers and beside the machine's limit."""

from __future__ import annotations

import fnmatch
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Failures
from benchmarks.peers import PEERS, ZOO_PEERS
from benchmarks.suite import SUITE, Model
from weft.runtime.devices.cpu.host import model_name

DEFAULT_PEERS = "weft,onnxruntime,openvino"
CAPTION = ("limit: the sum over kernels of the larger of arithmetic at the FMA peak and traffic at "
           "measured bandwidths; reached: limit / best call of weft; kernels: their sum, timed "
           "within a call, over that call; * no schedule was tuned with this model")


@dataclass(frozen=True)
class Row:
    """The result of a model: its cells, and weft's time over that of the best peer.

    ``machine`` is what the machine reached at that time.
    """

    cells: Sequence[str]
    ratio: float | None
    machine: str


@click.command()
@click.option("--models", default="*", help="Patterns of names, separated by commas; see --list.")
@click.option("--peers", default=DEFAULT_PEERS,
              help=f"Runtimes, of {', '.join((*PEERS, *ZOO_PEERS))}.")
@click.option("--threads", default="1,2", help="Thread counts.")
@click.option("--batch", default="1", help="Batch sizes (an MLP takes 64 rows for each).")
@click.option("--rounds", default=5, help="Rounds in turn; figures are medians over all calls.")
@click.option("--seconds", default=0.3, help="Seconds of each peer in each round.")
@click.option("--list", "only_list", is_flag=True, help="Print the names of the models.")
def main(models: str, peers: str, threads: str, batch: str, rounds: int, seconds: float,
         only_list: bool) -> None:
    """Latency of whole models, weft compared with its peers and with the limit of its kernels.

    Every peer runs in a separate process with the same thread count. Outputs are compared before
    timing, rounds are interleaved, and the figures are medians. Exits with status 1 if weft fails
    or results differ.
    """
    chosen = [m for m in SUITE.values()
              if any(fnmatch.fnmatch(m.name, p) for p in models.split(","))]
    if only_list:
        click.echo("\n".join(f"{m.name}{'*' if m.is_new else ''}" for m in chosen))
        return
    console, failures = Console(width=130), Failures()
    for size in map(int, batch.split(",")):
        for count in map(int, threads.split(",")):
            console.print(latency_table(chosen, [p for p in peers.split(",") if p], count, size,
                                        rounds, seconds, failures))
    failures.raise_any()


def latency_table(models: Sequence[Model], peers: Sequence[str], threads: int, batch: int,
                  rounds: int, seconds: float, failures: Failures) -> Table:
    """A row per model, and the geometric mean of weft's time over that of the best peer."""
    columns = ("model", *(f"{peer}, ms" for peer in peers), "/ best peer", "limit, ms", "reached",
               "kernels")
    table = Table(title=f"batch {batch}, fp32, {threads} thread(s), {cpu_name()}",
                  caption=CAPTION)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    ratios = []
    for model in models:
        row = measure(model, peers, threads, batch, rounds, seconds, failures)
        table.add_row(*row.cells)
        click.echo("  ".join((*row.cells, row.machine)), err=True)  # progress
        if row.ratio is not None:
            ratios.append(row.ratio)
    if ratios:
        mean = statistics.geometric_mean(ratios)
        table.add_row("geometric mean", *("" for _ in peers), f"{mean:.2f}", "", "", "")
    return table


def measure(model: Model, peers: Sequence[str], threads: int, batch: int, rounds: int,
            seconds: float, failures: Failures) -> Row:
    """Time one model."""
    with tempfile.TemporaryDirectory() as folder:
        path, feeds = model.write(Path(folder), batch)
        results = failures.measured(path, feeds, peers, threads, rounds=rounds,
                                    seconds_per_round=seconds, limit=True)
    medians = {c.peer: c.median for c in results}
    others = [median for peer, median in medians.items() if peer != "weft"]
    ratio = medians["weft"] / min(others) if "weft" in medians and others else None
    told = next((c.limit for c in results if c.limit is not None), None)
    name = f"{model.name}*" if model.is_new else model.name
    cells = [name, *(f"{medians[p] * 1e3:.3f}" if p in medians else "-" for p in peers),
             "-" if ratio is None else f"{ratio:.2f}", *_limit_cells(told)]
    return Row(cells, ratio, "" if told is None else told["machine"])


def cpu_name() -> str:
    """The name of the processor, with family and model where the name says little."""
    facts = model_name().split("; ")
    return ", ".join(sorted((fact.removeprefix("model name ") for fact in facts if fact.startswith(
        ("model name", "cpu family", "CPU part"))), key=str.islower))


def _limit_cells(told: dict[str, Any] | None) -> list[str]:
    if told is None or math.isnan(told["limit"]):
        return ["-", "-", "-"]
    kind = "dense" if told["arithmetic"] > told["traffic"] else "memory"
    return [f"{told['limit'] * 1e3:.3f}", f"{told['limit'] / told['call']:.0%} {kind}",
            f"{told['kernels'] / told['call']:.0%}"]


if __name__ == "__main__":
    main()
