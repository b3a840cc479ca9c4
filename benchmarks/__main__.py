"""``python -m benchmarks``: weft compared with its peers, on one and two threads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.harness import WINOGRAD_NOTE, Contestant, Failures, by_winograd
from benchmarks.models import MODELS, conv_layer, matmul, random_inputs, save
from benchmarks.peak import fma_peak
from benchmarks.peers import PEERS

# The micro-kernels: name, model, GFLOP of one call.
KERNELS: list[tuple[str, Callable[[], onnx.ModelProto], float]] = [
    *(
        (f"gemm {n}x{n}x{n}", lambda n=n: matmul(n, n, n), 2e-9 * n**3)
        for n in (512, 1024, 2048)
    ),
    *(
        (
            f"conv{k}x{k}/{stride} {c_in}-{c_out}@{size}",
            lambda a=(c_in, c_out, k, stride, size): conv_layer(*a),
            2e-9 * c_in * c_out * k * k * (size // stride) ** 2,
        )
        for c_in, c_out, k, stride, size in (
            (64, 64, 3, 1, 56), (256, 64, 1, 1, 56), (64, 256, 1, 1, 56), (128, 128, 3, 1, 28),
            (256, 256, 3, 1, 14), (1024, 256, 1, 1, 14), (512, 512, 3, 1, 7), (512, 2048, 1, 1, 7),
        )
    ),
    *(
        (
            f"depthwise3x3 {c}@{size}",
            lambda a=(c, c, 3, 1, size, c): conv_layer(*a),
            2e-9 * c * 9 * size**2,
        )
        for c, size in ((32, 112), (144, 56), (576, 14))
    ),
]

ROUNDS_HELP = "Rounds in turn; each peer's median is over all of its calls."


@click.command()
@click.option("--models", default=",".join(MODELS), help="Models to run, or none.")
@click.option("--peers", default=",".join(PEERS), help="Runtimes to compare, weft among them.")
@click.option("--threads", default="1,2", help="Thread counts.")
@click.option("--rounds", default=5, help=ROUNDS_HELP)
@click.option("--seconds", default=0.4, help="Seconds of each peer in each round.")
@click.option("--kernels/--no-kernels", default=True, help="Micro-kernels as a share of the peak.")
def main(models: str, peers: str, threads: str, rounds: int, seconds: float,
         kernels: bool) -> None:
    """Latency of whole models and speed of single kernels, weft compared with its peers.

    Every peer runs in a separate process with the same thread count. Outputs are compared before
    timing, rounds are interleaved, and the figures are medians. Exits with status 1 if weft fails
    or results differ.
    """
    console = Console(width=120)
    peer_names = [p for p in peers.split(",") if p]
    failures = Failures()
    with tempfile.TemporaryDirectory() as folder:
        for count in (int(t) for t in threads.split(",")):
            table = latency_table(
                Path(folder), [m for m in models.split(",") if m], peer_names, count, rounds,
                seconds, failures,
            )
            console.print(table)
            if kernels:
                console.print(kernel_table(Path(folder), peer_names, count, rounds, seconds,
                                           failures))
    failures.raise_any()


def latency_table(folder: Path, models: Sequence[str], peers: Sequence[str], threads: int,
                  rounds: int, seconds: float, failures: Failures) -> Table:
    table = Table(title=f"latency, ms, batch as built, fp32, {threads} thread(s)")
    table.add_column("model")
    for peer in peers:
        table.add_column(peer, justify="right")
    table.add_column("weft / onnxruntime", justify="right")
    for name in models:
        model = MODELS[name]()
        path = save(model, folder, name)
        results = failures.measured(path, random_inputs(model), peers, threads, rounds=rounds,
                                    seconds_per_round=seconds)
        medians = {c.peer: c.median for c in results}
        table.add_row(name, *(_ms(medians.get(p)) for p in peers), _ratio(medians))
    return table


def kernel_table(folder: Path, peers: Sequence[str], threads: int, rounds: int,
                 seconds: float, failures: Failures) -> Table:
    peak = fma_peak(threads)
    table = Table(title=f"GFLOP/s, {threads} thread(s); FMA peak measured now: {peak:.0f} GFLOP/s",
                  caption=WINOGRAD_NOTE)
    table.add_column("kernel")
    for peer in peers:
        table.add_column(peer, justify="right")
    table.add_column("weft, % of peak", justify="right")
    table.add_column("time / best peer", justify="right")
    for index, (name, build, gflop) in enumerate(KERNELS):
        model = build()
        path = save(model, folder, f"kernel{index} {name}".replace("/", "_").replace(" ", "_"))
        results = failures.measured(path, random_inputs(model), peers, threads, rounds=rounds,
                                    seconds_per_round=seconds / 4)
        table.add_row(name, *_kernel_row(results, peers, gflop, peak))
    return table


def _kernel_row(results: Sequence[Contestant], peers: Sequence[str], gflop: float,
                peak: float) -> list[str]:
    medians = {c.peer: c.median for c in results}
    speeds = {peer: gflop / median for peer, median in medians.items()}
    row = [f"{speeds[p]:.1f}" if p in speeds else "-" for p in peers]
    others = [median for peer, median in medians.items() if peer != "weft"]
    share = f"{100 * speeds['weft'] / peak:.0f}" if "weft" in speeds else "-"
    if any(by_winograd(c.implementations) for c in results):
        share = f"W {share}"
    ratio = f"{medians['weft'] / min(others):.2f}" if "weft" in medians and others else "-"
    return [*row, share, ratio]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _ratio(medians: dict[str, float]) -> str:
    if "weft" not in medians or "onnxruntime" not in medians:
        return "-"
    return f"{medians['weft'] / medians['onnxruntime']:.2f}"


if __name__ == "__main__":
    main()
