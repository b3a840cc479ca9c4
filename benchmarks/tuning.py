"""``python -m benchmarks.tuning``: what a search gains on shapes that estimates were not fitted to.

Each program is tuned for some seconds. Then the winner of its slowest kernel and the cost model's
choice run in turn in a new process, so that the printed gain is not the one that chose the winner.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from weft import op
from weft.compiler.options import CompileOptions
from weft.ir import Constant, Function, IRModule
from weft.ir.expr import var
from weft.strategy.records import cpu_of
from weft.support.config import config
from weft.support.records_file import NO_RECORDS
from weft.tune import TuningStore, tune
from weft.tune.here import work_of
from weft.tune.measure import Measurement
from weft.tune.measuring_process import MeasuringProcess
from weft.tune.task import KernelTask, limit_of

GOOD_SHARE = 0.85  # of the limit: below it half of the gap shall be recovered
NOISE = 0.02
SECONDS = 1.0  # of the last comparison


def weights(*shape: int) -> Constant:
    """Random weights, which are packed or transformed when the program is compiled."""
    return Constant(np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32))


def dense(m: int, k: int, n: int) -> IRModule:
    """A GEMM over constant weights."""
    x = var("x", (m, k), "float32")
    return IRModule.from_expr(Function((x,), op.nn.dense(x, weights(n, k))))


def matmul(m: int, k: int, n: int) -> IRModule:
    """A GEMM of two inputs."""
    x, w = var("x", (m, k), "float32"), var("w", (k, n), "float32")
    return IRModule.from_expr(Function((x, w), op.nn.matmul(x, w)))


def conv(channels: int, outputs: int, size: int, taps: int, stride: int = 1, groups: int = 1
         ) -> IRModule:
    """A convolution over constant weights."""
    x = var("x", (1, channels, size, size), "float32")
    made = op.nn.conv2d(x, weights(outputs, channels // groups, taps, taps),
                        strides=(stride, stride), padding=(taps // 2,) * 4, groups=groups)
    return IRModule.from_expr(Function((x,), op.nn.relu(made)))


SHAPES: dict[str, Callable[[], IRModule]] = {
    "dense 37x1000x777": lambda: dense(37, 1000, 777),
    "dense 3x1536x601": lambda: dense(3, 1536, 601),
    "dense 250x333x257": lambda: dense(250, 333, 257),
    "matmul 65x300x90": lambda: matmul(65, 300, 90),
    "matmul 9x2000x33": lambda: matmul(9, 2000, 33),
    "matmul 511x129x1001": lambda: matmul(511, 129, 1001),
    "conv 3x3 30-50 27x27": lambda: conv(30, 50, 27, 3),
    "conv 1x1 72-100 23x23": lambda: conv(72, 100, 23, 1),
    "conv 5x5/2 20-44 45x45": lambda: conv(20, 44, 45, 5, 2),
    "conv 3x3 96-160 13x13": lambda: conv(96, 160, 13, 3),
    "depthwise 3x3 90 31x31": lambda: conv(90, 90, 31, 3, groups=90),
    "depthwise 5x5/2 48 35x35": lambda: conv(48, 48, 35, 5, 2, groups=48),
}


@dataclass(frozen=True)
class Row:
    """One program: seconds of the slowest kernel by the model's choice and by the winner."""

    shape: str
    kernel: str
    baseline: float
    seconds: float
    limit: float
    implementation: str
    tried: int

    @property
    def share(self) -> float:
        """What the model's choice reaches of the limit."""
        return self.limit / self.baseline

    @property
    def recovered(self) -> float:
        """The share of the gap to the limit that tuning closed."""
        gap = self.baseline - self.limit
        return (self.baseline - self.seconds) / gap if gap > 0 else 0.0


def row_of(name: str, module: IRModule, budget: float, threads: int, folder: Path) -> Row:
    """Tune one program, and time the result again."""
    path = folder / f"{name.replace(' ', '-').replace('/', '-')}.sqlite"
    report = tune(module, path, budget=budget, threads=threads)
    slowest = max(report.tuned, key=lambda kernel: kernel.count * kernel.baseline)
    with config(threads=threads, records=NO_RECORDS):
        work = work_of(module, CompileOptions.make())
        task = next(task for task in work.tasks if task.text == slowest.text)
        with TuningStore(path) as store:
            winner = store.winner(cpu_of(task.target), task.kernel, threads)
        chosen = task.default.name if winner is None else winner.implementation
        found = again(task, chosen, threads)
    seconds = found.baseline if winner is None else found.seconds
    return Row(name, task.text, found.baseline, seconds, limit_of(task) / threads, chosen,
               slowest.measured + slowest.failed)


def again(task: KernelTask, name: str, threads: int) -> Measurement:
    """The times of a point and of the model's choice, in turn in a new process."""
    with MeasuringProcess() as measuring:
        found = measuring.measure(task, name, threads, SECONDS)
    if isinstance(found, str):
        raise click.ClickException(f"{name}: {found}")
    return found


@click.command()
@click.option("--budget", default=30.0, help="Seconds of search for each program.")
@click.option("--threads", default=1, help="Threads of the code.")
@click.option("--only", default="", help="Part of the names of the programs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(budget: float, threads: int, only: str, as_json: bool) -> None:
    """Tune shapes that estimates were not fitted to, and print what that gains."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in SHAPES.items():
            if only in name:
                rows.append(row_of(name, make(), budget, threads, Path(folder)))
                click.echo(f"{name}: {rows[-1].baseline / rows[-1].seconds:.2f}x", err=True)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table(title=f"{threads} thread(s), {budget:.0f} s of search each; times in us")
    for column in ("program", "default", "of limit", "tuned", "of limit", "gain", "gap closed",
                   "points", "winner"):
        table.add_column(column, justify="left" if column in ("program", "winner") else "right")
    for row in rows:
        table.add_row(row.shape, f"{row.baseline * 1e6:.1f}", f"{row.share:.0%}",
                      f"{row.seconds * 1e6:.1f}", f"{row.limit / row.seconds:.0%}",
                      f"{row.baseline / row.seconds:.2f}x", f"{row.recovered:.0%}",
                      str(row.tried), row.implementation)
    Console(width=200).print(table)
    slower = [row.shape for row in rows if row.seconds > row.baseline * (1 + NOISE)]
    open_gaps = [row.shape for row in rows if row.share < GOOD_SHARE and row.recovered < 0.5]
    click.echo(f"slower than the default beyond noise: {', '.join(slower) or 'none'}")
    click.echo(f"below {GOOD_SHARE:.0%} of the limit, less than half of the gap closed: "
               f"{', '.join(open_gaps) or 'none'}")


if __name__ == "__main__":
    main()
