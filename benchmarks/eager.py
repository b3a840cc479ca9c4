"""``python -m benchmarks.eager``: tensors without ``jit`` beside torch eager, on one thread.

Small operators run in this process: a figure is the median over interleaved rounds of the shortest
time in a round. Models train in processes of their own (``benchmarks.training``), by the median or
with ``--minimum`` by the shortest step. Values and losses are compared before anything is timed.
First use is measured in fresh processes, whose programs are in the cache from one before. The
columns are weft, torch (for ``train_step`` the best of torch, Inductor and JAX), their ratio, and
what the ratio or weft's figure shall be at most.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import weft
from benchmarks.training import Runner, compare, start
from benchmarks.training_peers import EAGER
from weft.runtime.devices.cpu.host import model_name

OPERATORS = 100
PEERS = ("torch", "inductor", "jax")
# What stays of a process: the first operator, and the first step of a small network.
FIRST = {
    "first operator": "y = lib.ones(16)\nstart = time.process_time()\n(y + y).numpy()",
    "first MLP step": """
from benchmarks.training_models import loss_of, mlp
model = mlp(lib.nn)
x, y = lib.ones(64, 784), lib.zeros(64, dtype=lib.int64)
optimizer = lib.optim.SGD(model.parameters(), 0.01)
start = time.process_time()
loss_of(lib.nn.functional, model, x, y).backward()
optimizer.step()
model[0].weight.detach().numpy()"""}


class Row(NamedTuple):
    """A line of the table; ``limit`` is of the ratio, or with ``absolute`` of weft's figure."""

    name: str
    weft: float
    torch: float
    limit: float
    absolute: bool = False


def chain(x: Any, y: Any) -> Any:
    """``OPERATORS`` elementwise operators."""
    for _ in range(OPERATORS // 4):
        x = x * y
        x = x + y
        x = x - 0.5
        x = x.tanh()
    return x


def small(rounds: int) -> Iterator[Row]:
    """Operators on 16 elements, in microseconds."""
    import torch

    torch.set_num_threads(1)
    a, b = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    cases = [_cases(make(a), make(b), make(a).requires_grad_())
             for make in (weft.tensor, torch.tensor)]
    limits = {"an operator, recorded": (1.0, OPERATORS), f"{OPERATORS} operators": (1.0, 0),
              "an operator and its value": (5.0, 1),
              f"backward of {OPERATORS} operators": (1.0, 0)}
    for name, (limit, per) in limits.items():
        own, other = cases[0][name], cases[1][name]
        np.testing.assert_allclose(own(), other(), rtol=1e-4, atol=1e-5)
        times: tuple[list[float], list[float]] = [], []
        for _ in range(rounds):
            for found, run in zip(times, (own, other), strict=True):
                found.append(_best(run) / (per or 1))
        yield Row(f"{name}, us", *map(statistics.median, times), limit, per > 0)


def _cases(x: Any, y: Any, leaf: Any) -> dict[str, Callable[[], Any]]:
    """What is timed, by name, on the tensors of a library."""
    def backward() -> Any:
        leaf.grad = None
        chain(leaf, y).sum().backward()
        return leaf.grad.numpy()

    def recorded() -> Any:
        chain(x, y)
        return 0.0

    def one() -> Any:
        return (x + y).numpy()

    def many() -> Any:
        return chain(x, y).numpy()

    return {"an operator, recorded": recorded, f"{OPERATORS} operators": many,
            "an operator and its value": one, f"backward of {OPERATORS} operators": backward}


def _best(run: Callable[[], object], seconds: float = 0.02) -> float:
    found, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - started)
    return found * 1e6


def models(chosen: Sequence[str], rounds: int, typical: Callable[[list[float]], float]
           ) -> Iterator[Row]:
    """Steps of training, in ms, and the memory of a process, in MB."""
    for name, batch, peers, limit in (("mlp", 64, (EAGER, "torch"), 1.0),
                                      ("resnet18", 8, (EAGER, "torch"), 1.05),
                                      ("transformer6", 8, (EAGER, "torch"), 1.05),
                                      ("mlp", 64, ("weft", *PEERS), 0.6)):
        if name not in chosen:
            continue
        with ExitStack() as stack:
            runners = _started(stack, name, batch, peers)
            for _ in range(rounds):
                for runner in runners:
                    runner.seconds += runner.ask(0.5)
        own = next(r for r in runners if "weft" in r.peer)
        others = [r for r in runners if r is not own]
        best = min(others, key=lambda r: typical(r.seconds))
        what = "train_step" if own.peer == "weft" else "step"
        yield Row(f"{name}, batch {batch}: {what}, ms", typical(own.seconds) * 1e3,
                  typical(best.seconds) * 1e3, limit)
        if own.peer == EAGER:
            yield Row(f"{name}, batch {batch}: memory, MB", own.megabytes, best.megabytes, 1.1)


def _started(stack: ExitStack, name: str, batch: int, peers: tuple[str, ...]) -> list[Runner]:
    """The processes of those that run the model, with equal losses."""
    # The first fills the cache: what compiles has more in memory.
    runners = [r for peer in (peers[0], *peers)
               if isinstance(r := start(peer, name, batch, 1), Runner)]
    for runner in runners:
        stack.callback(runner.process.wait)
        stack.callback(runner.process.kill)
    del runners[0]
    compare(runners)
    return runners


def first_use(rounds: int) -> Iterator[Row]:
    """Milliseconds of CPU until the first result of a process, after the imports."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WEFT_CACHE_DIR": folder, "WEFT_THREADS": "1",
                       "OMP_NUM_THREADS": "1"}
        for (name, code), limit in zip(FIRST.items(), (20.0, 300.0), strict=True):
            text = (f"import time, {{0}} as lib\nimport {{0}}.nn, {{0}}.optim\n{code}\n"
                    "print(time.process_time() - start)")
            times: dict[str, list[float]] = {"weft": [], "torch": []}
            for _ in range(rounds + 1):
                for lib, found in times.items():
                    done = subprocess.run([sys.executable, "-c", text.format(lib)], check=True,
                                          env=environment, stdout=subprocess.PIPE, text=True)
                    found.append(float(done.stdout) * 1e3)
            yield Row(f"{name} of a process, CPU ms",
                      *[statistics.median(found[1:]) for found in times.values()], limit, True)


@click.command()
@click.option("--rounds", default=5, help="interleaved rounds")
@click.option("--minimum", is_flag=True, help="report the fastest steps")
@click.option("--models", "chosen", default="mlp,resnet18,transformer6", help="models to train")
def main(rounds: int, chosen: str, *, minimum: bool) -> None:
    """Print the table."""
    table = Table(title=f"eager tensors, one thread, on {model_name()}")
    for name in ("", "weft", "torch", "ratio", "at most"):
        table.add_column(name, justify="right" if name else "left")
    typical = min if minimum else statistics.median
    for source in (small(rounds), first_use(rounds),
                   models(chosen.split(","), rounds, typical)):
        for row in source:
            ratio = row.weft / row.torch
            is_met = (row.weft if row.absolute else ratio) <= row.limit
            table.add_row(row.name, f"{row.weft:.2f}", f"{row.torch:.2f}", f"{ratio:.2f}",
                          f"{row.limit:g}{'' if is_met else ' *'}")
            click.echo(f"{row.name}: {row.weft:.2f} {row.torch:.2f} {ratio:.2f}", err=True)
    Console(width=110).print(table)
    click.echo("* missed")


if __name__ == "__main__":
    main()
