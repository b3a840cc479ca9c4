"""Models with dynamic shapes: one program for all sizes, programs for one size, and peers.

``python -m benchmarks.dynamic_shapes [--only bert] [--threads 1]``. Each model is exported to ONNX
with named sizes. At each point of its sizes, weft's general program, weft's program for that size,
ONNX Runtime and OpenVINO run in interleaved rounds; the table has ratios of the shortest times,
which other processes disturb least, after the outputs were compared. The models have the widths of
the published ones and fewer layers.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import weft
from benchmarks.dynamic_models import MODELS, DynamicCase
from weft.target import CpuTarget

Run = Callable[[], Sequence[np.ndarray]]
ROUNDS = 15
NEW_SIZES = 30
# Short calls are repeated within a round, so that the clock's resolution does not matter.
ROUND_SECONDS = 0.01


@dataclass(frozen=True)
class Contestant:
    """One way to run a model; ``at`` prepares a call with the inputs of a point."""

    name: str
    at: Callable[[Mapping[str, np.ndarray]], Run]


def contestants(path: Path, model: weft.Executable, threads: int,
                largest: Mapping[str, np.ndarray]) -> list[Contestant]:
    """weft's general program and fixed ones, and the peers that are installed.

    ``largest`` are the inputs of the largest point.
    """
    made = [Contestant("general", lambda feeds: lambda: model.run(None, feeds)),
            Contestant("fixed", lambda feeds: _fixed(model, feeds))]
    made.append(_onnxruntime(path, threads))
    openvino = _openvino(path, threads, largest)
    return [*made, openvino] if openvino is not None else made


def _fixed(model: Any, feeds: Mapping[str, np.ndarray]) -> Run:
    program = model.specialize({name: array.shape for name, array in feeds.items()})
    return lambda: program.run(None, feeds)


def _onnxruntime(path: Path, threads: int) -> Contestant:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Contestant("onnxruntime", lambda feeds: lambda: session.run(None, dict(feeds)))


def _openvino(path: Path, threads: int, largest: Mapping[str, np.ndarray]) -> Contestant | None:
    """OpenVINO in float32; by default it computes in bfloat16 on CPUs that can.

    Its first call is at the largest point. Where that is a batch and length of 1, later calls of
    BERT at other sizes give wrong results (OpenVINO 2026.4, not with CPU_RUNTIME_CACHE_CAPACITY=0,
    which costs time).
    """
    try:
        import openvino
    except ImportError:
        return None
    core = openvino.Core()
    compiled = core.compile_model(str(path), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    request.infer(dict(largest))
    return Contestant("openvino", lambda feeds: lambda: list(request.infer(dict(feeds)).values()))


def measure(runs: Mapping[str, Run]) -> dict[str, float]:
    """The least seconds of a call of each, over interleaved rounds."""
    counts, times = {}, {name: [] for name in runs}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        counts[name] = max(1, int(ROUND_SECONDS / max(time.perf_counter() - start, 1e-6)))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: min(values) for name, values in times.items()}


def new_size_seconds(case: DynamicCase, model: Any) -> float:
    """Median time that the first call of a size takes beyond the next ones, which it prepares.

    The largest size was met before, so no memory is allocated.
    """
    found = []
    for more in range(NEW_SIZES):
        values = list(case.feeds(tuple(size + more + 2 for size in case.points[0])).values())
        times = []
        for _ in range(2):
            start = time.perf_counter()
            model.general.launch_for(values)
            times.append(time.perf_counter() - start)
        found.append(times[0] - times[1])
    return statistics.median(found)


def agreeing(results: Mapping[str, Sequence[np.ndarray]]) -> set[str]:
    """The names of those whose outputs agree with ONNX Runtime's; raise if weft's do not."""
    wanted = results["onnxruntime"]
    good = {name for name, arrays in results.items()
            if all(map(_is_close, arrays, wanted))}
    if not {"general", "fixed"} <= good:
        raise click.ClickException(f"weft and ONNX Runtime differ; those that agree: {good}")
    return good


def _is_close(array: np.ndarray, wanted: np.ndarray) -> bool:
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-3)
    return array.shape == wanted.shape and np.allclose(array, wanted, rtol=1e-3, atol=1e-3 * scale)


def run_case(case: DynamicCase, threads: int, console: Console) -> list[dict[str, float]]:
    """Measure one model at all of its points; print a row for each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{case.name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.export(path)
        start = time.perf_counter()
        model = weft.compile(path, threads=threads)
        seconds = time.perf_counter() - start
        kind = "one program" if getattr(model, "general", None) is not None else (
            f"a program per shape ({getattr(model, 'reason', None)})")
        title = f"{case.name}: {kind}, compiled in {seconds:.1f} s"
        table = Table(title=title, title_justify="left")
        names: list[str] = []
        found = []
        largest = max(case.points, key=math.prod)
        ways = contestants(path, model, threads, case.feeds(largest))
        for point in case.points:
            feeds = case.feeds(point)
            runs = {way.name: way.at(feeds) for way in ways}
            good = agreeing({name: run() for name, run in runs.items()})
            times = measure({name: run for name, run in runs.items() if name in good})
            found.append(times)
            if not names:
                names = [way.name for way in ways]
                table.add_column("sizes")
                table.add_column("general [ms]", justify="right")
                for name in names[1:]:
                    table.add_column(f"general / {name}", justify="right")
            ratios = [f"{times['general'] / times[name]:.2f}" if name in times else "differs"
                      for name in names[1:]]
            table.add_row(" x ".join(map(str, point)), f"{times['general'] * 1e3:.3f}", *ratios)
        if getattr(model, "general", None) is not None:
            table.caption = f"a new size costs {new_size_seconds(case, model) * 1e6:.0f} us"
        means = [f"{_mean(found, name):.2f}" for name in names[1:]]
        table.add_row("geometric mean", "", *means, style="bold")
        console.print(table)
        return found


def _mean(times: Sequence[Mapping[str, float]], name: str) -> float:
    ratios = [t["general"] / t[name] for t in times if name in t]
    return statistics.geometric_mean(ratios) if ratios else float("nan")


@click.command()
@click.option("--only", default="", help="models whose name contains this")
@click.option("--threads", default=1, show_default=True)
def main(only: str, threads: int) -> None:
    """Programs for all sizes beside programs for one size, ONNX Runtime and OpenVINO."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.manual_seed(0)
    console = Console()
    console.print(f"{CpuTarget.host()}, {threads} threads, least of {ROUNDS} interleaved rounds")
    times = [one for case in MODELS if only in case.name
             for one in run_case(case, threads, console)]
    for name in dict.fromkeys(name for one in times for name in one):
        if name != "general":
            console.print(f"general / {name}: geometric mean of all points "
                          f"{_mean(times, name):.3f}")


if __name__ == "__main__":
    main()
