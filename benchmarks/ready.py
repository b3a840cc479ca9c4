"""``python -m benchmarks.ready``: how long a model takes from nothing to its first result.

Each figure is of a fresh process: it imports a runtime, loads the model from its file, and runs it
once. weft does so with an empty cache (cold), with a cache that ``weft warm`` filled for the model,
which has its kernels but not the model (new), and with the cache of the cold process (warm). Rounds
are interleaved, and the fastest one counts, because other load only makes a process slower. Memory
counts the whole process: ``peak`` is its maximum, ``resident`` its value after the first call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

Figures = dict[str, float]
SPLIT = "weft split"
NEW = "weft new"
COLUMNS = ("weft cold", NEW, "weft warm", "onnxruntime",
           *(["openvino"] if importlib.util.find_spec("openvino") else []))


def main_of_child(runtime: str, path: str) -> None:
    """Print the figures of this process as JSON; those of ``SPLIT`` are a table."""
    if runtime == SPLIT:
        sys.stdout.write(json.dumps({"table": _split(path)}))
        return
    begin = time.perf_counter()
    np.empty(0)
    if runtime.startswith("weft"):
        load = importlib.import_module("benchmarks.peers").load_weft
    else:
        load = getattr(importlib.import_module("benchmarks.peers"), f"load_{runtime}")
    run = load(Path(path), len(os.sched_getaffinity(0)))
    loaded = time.perf_counter()
    feeds = dict(np.load(Path(path).with_suffix(".npz")))
    called = time.perf_counter()
    run(feeds)
    end = time.perf_counter()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    sys.stdout.write(json.dumps({
        "seconds": loaded - begin + end - called,
        "cpu seconds": usage.ru_utime + usage.ru_stime,
        "peak": _status("VmHWM") / 1024,
        "resident": _status("VmRSS") / 1024,
    }))


def _split(path: str) -> str:
    """How the time of weft's first result splits into stages."""
    begin = time.perf_counter()
    times_of = importlib.import_module("weft.support.stage_times")
    with times_of.collected() as times:
        run = importlib.import_module("benchmarks.peers").load_weft(
            Path(path), len(os.sched_getaffinity(0)))
        with times_of.stage("first call"):
            run(dict(np.load(Path(path).with_suffix(".npz"))))
    seconds = time.perf_counter() - begin
    return importlib.import_module("weft.compiler.report.timing").timing_table(times, seconds)


def _status(name: str) -> int:
    """An amount of memory of this process in KiB; ``ru_maxrss`` may be that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measured(runtime: str, path: Path, cache: Path) -> dict[str, Any]:
    """The figures of a fresh process; raises ``CalledProcessError``."""
    begin = time.perf_counter()
    found = run_module(["benchmarks.ready", "--child", runtime, str(path)], cache)
    figures: dict[str, Any] = json.loads(found)
    return figures | {"process seconds": time.perf_counter() - begin}


def run_module(command: Sequence[str], cache: Path) -> str:
    """What ``python -m`` with ``command`` prints; raises ``CalledProcessError``."""
    environment = {**os.environ, "WEFT_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("PYTHONPYCACHEPREFIX", str(cache.parent / "bytecode"))
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True,
                          check=True, env=environment).stdout


def rounds_of(path: Path, rounds: int, folder: Path) -> dict[str, Figures]:
    """The least of each figure over interleaved rounds, by column."""
    best: dict[str, Figures] = {}
    cache, new, kernels = folder / "cache", folder / "new", folder / "kernels"
    run_module(["weft", "warm", str(path)], kernels)
    for _ in range(rounds):
        for old in (cache, new):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(kernels, new)
        for column in COLUMNS:
            figures = measured(column, path, new if column == NEW else cache)
            known = best.setdefault(column, figures)
            best[column] = {name: min(known[name], figures[name]) for name in figures}
    return best


def split(path: Path, folder: Path) -> str:
    """The stages of a cold start, measured in a process of their own."""
    return str(measured(SPLIT, path, folder / "cache of the split")["table"])


def models() -> dict[str, Callable[[], object]]:
    """The models by name."""
    from benchmarks import large_models
    from benchmarks import models as small

    return {"mlp": small.mlp, "mobilenet_v2": small.mobilenet_v2, "resnet50": small.resnet50,
            "bert_base": large_models.bert_base, "gpt2": large_models.gpt2,
            "vgg16": large_models.vgg16}


def saved(name: str, folder: Path) -> Path:
    """Write a model and an input for it."""
    from benchmarks.models import random_inputs, save

    model = models()[name]()
    path = save(model, folder, name)  # type: ignore[arg-type]
    feeds = random_inputs(model)  # type: ignore[arg-type]
    if name in ("bert_base", "gpt2"):
        feeds = {"x": np.random.default_rng(0).integers(0, 30000, feeds["x"].shape)}
    np.savez(path.with_suffix(".npz"), **feeds)
    return path


def show(name: str, weights: float, best: dict[str, Figures]) -> None:
    """Print the rows of one model."""
    for figure, unit in (("seconds", "s"), ("cpu seconds", "s"), ("peak", "MB"),
                         ("resident", "MB")):
        digits = 2 if unit == "s" else 0
        cells = "".join(f"{best[c][figure]:13.{digits}f}" for c in COLUMNS)
        click.echo(f"{name:13}{figure + ', ' + unit:16}{cells}")
    ready, other = best["weft cold"], best["onnxruntime"]
    click.echo(f"{'':13}cold / onnxruntime {ready['seconds'] / other['seconds']:.2f}; file "
               f"{weights:.0f} MB; peak / file {ready['peak'] / weights:.2f}; warm resident / file "
               f"{best['weft warm']['resident'] / weights:.2f}")


@click.command()
@click.option("--only", default="", help="Models by name, separated by commas.")
@click.option("--rounds", default=3, help="Interleaved rounds.")
@click.option("--child", nargs=2, default=None, hidden=True)
def main(only: str, rounds: int, child: tuple[str, str] | None) -> None:
    """Seconds and MB until the first result, beside other runtimes."""
    if child is not None:
        main_of_child(*child)
        return
    click.echo(f"{'':29}" + "".join(f"{c:>13}" for c in COLUMNS))
    for name in filter(None, only.split(",") if only else models()):
        with tempfile.TemporaryDirectory() as folder:
            path = saved(name, Path(folder))
            # Files that changed within two seconds are not known to be unchanged.
            time.sleep(2.1)
            show(name, path.stat().st_size / 2**20, rounds_of(path, rounds, Path(folder)))
            click.echo(f"\n{split(path, Path(folder))}\n")


if __name__ == "__main__":
    main()
