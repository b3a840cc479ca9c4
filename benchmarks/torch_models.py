"""``python -m benchmarks.torch_models``: latency of torch architectures at full size.

Each is exported to ONNX once, for weft, onnxruntime and OpenVINO; torch runs the module itself,
eagerly and through Inductor. Outputs are compared before timing, and rounds are interleaved. The
figures are the fastest calls, because other load on the machine only makes calls slower.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from pathlib import Path

import click
import numpy as np
import onnx
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Contestant, Failures
from benchmarks.torch_zoo import ARCHITECTURES

PEERS = ("weft", "onnxruntime", "openvino", "module", "inductor")
LENGTH = 128


def export(name: str, folder: Path, batch: int) -> tuple[Path, dict[str, np.ndarray]]:
    """Export an architecture to ONNX; returns the file and the inputs by their ONNX names."""
    architecture = ARCHITECTURES[name]
    inputs = architecture.inputs(batch, LENGTH, full=True)
    path = folder / f"{name}.onnx"
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(architecture.module(full=True), inputs, dynamo=True,
                                    verbose=False)
        program.save(str(path))
    graph = onnx.load(path, load_external_data=False).graph
    return path, {i.name: x.numpy() for i, x in zip(graph.input, inputs, strict=True)}


def row(name: str, contestants: list[Contestant], peers: tuple[str, ...]) -> list[str]:
    best = {c.peer: min(c.times) for c in contestants}
    cells = [f"{best[p] * 1e3:.2f}" if p in best else "-" for p in peers]
    both = "weft" in best and "onnxruntime" in best
    return [name, *cells, f"{best['weft'] / best['onnxruntime']:.2f}" if both else "-"]


def slowest_kernels(path: Path, feeds: dict[str, np.ndarray]) -> str:
    """The profile of a model, by kernel."""
    import weft

    return weft.compile(path).profile(**feeds).table()


@click.command()
@click.option("--models", default=",".join(ARCHITECTURES), help="Architectures to run.")
@click.option("--peers", default=",".join(PEERS), help="Runtimes to compare, weft among them.")
@click.option("--threads", default="1,2", help="Thread counts.")
@click.option("--batch", default=1, help="How many images or sequences at once.")
@click.option("--rounds", default=3, help="Rounds in turn.")
@click.option("--seconds", default=0.5, help="Seconds of each peer in each round.")
@click.option("--profile/--no-profile", default=False, help="Also print weft's kernels.")
def main(models: str, peers: str, threads: str, batch: int, rounds: int, seconds: float,
         profile: bool) -> None:
    """Compare the latency of torch architectures in weft and its peers."""
    console = Console(width=120)
    chosen = tuple(p for p in peers.split(",") if p)
    failures = Failures()
    with tempfile.TemporaryDirectory() as folder:
        exported = {n: export(n, Path(folder), batch) for n in models.split(",") if n}
        for count in (int(t) for t in threads.split(",")):
            table = Table(title=f"best latency, ms, batch {batch}, fp32, {count} thread(s)")
            table.add_column("model")
            for peer in chosen:
                table.add_column(peer, justify="right")
            table.add_column("weft / onnxruntime", justify="right")
            for name, (path, feeds) in exported.items():
                results = failures.measured(path, feeds, chosen, count, rounds=rounds,
                                            seconds_per_round=seconds)
                cells = row(name, results, chosen)
                table.add_row(*cells)
                click.echo("  ".join(cells), err=True)  # progress
            console.print(table)
        if profile:
            for name, (path, feeds) in exported.items():
                console.print(f"{name}\n{slowest_kernels(path, feeds)}")
    failures.raise_any()


if __name__ == "__main__":
    main()
