"""The predictions of the machine model beside measured times, kernel by kernel and for models.

A kernel is called alone, again and again, on one core: its data stay in the caches that hold them,
as predictions assume. Predicted cycles become seconds at the clock that the multiply-adds of the
core reach in the same minute, since a clock that is boosted or throttled is no mistake of a model.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

import weft
from benchmarks.kernel_models import Kernel
from benchmarks.models import random_inputs
from benchmarks.suite import Model
from weft.codegen import CPU_BACKEND
from weft.runtime.devices.cpu.rates import measure_bandwidths, measure_fma_peak
from weft.runtime.devices.cpu.steps import StepsLaunch
from weft.runtime.roofline import Roofline, limits_of
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.target import CpuTarget

NEAR = 0.15  # how far a prediction may be from the measured time
_PEAKS = 8  # measurements of the peak of which the best counts
_SECONDS, _LEAST_RUNS, _MOST_RUNS = 1.0, 3, 30  # of the measurement of a model


@dataclass(frozen=True)
class Row:
    """Seconds of a kernel or a model; ``spent`` says what the prediction is spent on."""

    name: str
    what: str
    predicted: float
    measured: float
    limit: float
    spent: str = ""

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


class Machine:
    """The core that runs the measurements: its rates, and its clock now."""

    def __init__(self) -> None:
        self.target = CpuTarget.host()
        self.model: MachineModel = machine_model(self.target)
        self._library = CPU_BACKEND.load(CPU_BACKEND.support_objects(self.target), self.target)
        self._peaks: deque[float] = deque(maxlen=_PEAKS)
        self.roofline = Roofline(self._peak(), measure_bandwidths(self._library, 1))

    def _peak(self) -> float:
        return max(measure_fma_peak(self._library) for _ in range(3))

    def clock_ratio(self) -> float:
        """The nominal clock over the clock now, for seconds that the model predicts.

        Other programs may disturb one measurement of the peak, and not the best of some in turn.
        """
        self._peaks.append(self._peak())
        flops = 2 * self.model.fma_per_cycle * self.model.vector_bytes / 4
        return self.model.frequency / (max(self._peaks) * 1e9 / flops)


def kernel_rows(kernels: Iterable[Kernel], machine: Machine, rounds: int = 1) -> list[Row]:
    """A row for each distinct kernel of each benchmark, the anchor's and those that convert for it.

    The shortest time of all rounds counts. Kernels of symbolic sizes and of foreign code, which
    have no prediction, are left out.
    """
    rows = []
    for kernel in kernels:
        model = kernel.build()
        feeds = random_inputs(model)
        module = weft.compile(model, threads=1)
        values = [feeds[spec.name] for spec in module.inputs]
        launch = module.launch_for(values)
        if not isinstance(launch, StepsLaunch):
            continue
        ratio = machine.clock_ratio()
        steps = module.manifest.steps
        limits = limits_of(module.manifest, steps, machine.roofline)
        times = [min(each) for each in zip(*(
            launch.kernel_seconds(values) for _ in range(rounds)), strict=True)]
        seen: dict[str, Row] = {}
        for step, limit, seconds in zip(steps, limits, times, strict=True):
            if step.spent and step.symbol not in seen:
                seen[step.symbol] = Row(kernel.name, step.implementation, step.seconds * ratio,
                                        seconds, limit.seconds, step.spent)
        rows += seen.values()
    return rows


def model_rows(models: Iterable[Model], machine: Machine) -> list[Row]:
    """A row for each model: the sum of the predictions of its kernels, and its shortest call.

    A kernel is predicted warm and alone. In a model the others bring their data between two of its
    calls, so it takes at least as long as its weights from the level that holds the whole model.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            path, feeds = model.write(Path(folder), 1)
            module = weft.compile(path, threads=1)
            steps = module.manifest.steps
            ratio = machine.clock_ratio()
            limits = limits_of(module.manifest, steps, machine.roofline)
            predicted = sum(max(step.seconds * ratio, limit.traffic)
                            for step, limit in zip(steps, limits, strict=True))
            unknown = sum(not step.spent for step in steps)
            rows.append(Row(model.name, f"{len(steps)} kernels, {unknown} of them estimated",
                            predicted, _call_seconds(module, feeds),
                            sum(limit.seconds for limit in limits)))
            path.unlink()
    return rows


def _call_seconds(module: weft.runtime.executable.Executable, feeds: object) -> float:
    """The shortest call, by the clock of the thread, which stands still while others run."""
    best, start = math.inf, time.perf_counter()
    for run in range(_MOST_RUNS):
        before = time.thread_time()
        module.run(None, feeds)  # type: ignore[arg-type]
        best = min(best, time.thread_time() - before)
        if run >= _LEAST_RUNS and time.perf_counter() - start > _SECONDS:
            break
    return best


def near_share(rows: Sequence[Row]) -> float:
    """The share of the rows whose prediction is within ``NEAR`` of the measured time."""
    return sum(abs(row.ratio - 1) <= NEAR for row in rows) / len(rows)


def rank_correlation(rows: Sequence[Row]) -> float:
    """Spearman's rank correlation of predicted and measured times; 1 for one row."""
    predicted, measured = (_ranks([getattr(row, name) for row in rows])
                           for name in ("predicted", "measured"))
    count = len(rows)
    if count < 2:
        return 1.0
    squares = sum((a - b) ** 2 for a, b in zip(predicted, measured, strict=True))
    return 1 - 6 * squares / (count * (count * count - 1))


def _ranks(values: Sequence[float]) -> list[int]:
    ranks = [0] * len(values)
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        ranks[at] = rank
    return ranks


def table_of(title: str, rows: Sequence[Row]) -> Table:
    """The rows, and below them how many predictions are near and whether they rank as measured."""
    table = Table(title=f"{title}, us on one core")
    for name in ("name", "kernel", "predicted", "measured", "limit", "predicted / measured",
                 "takes time"):
        left = name in ("name", "kernel", "takes time")
        table.add_column(name, justify="left" if left else "right")
    for row in rows:
        table.add_row(row.name, row.what, *(f"{1e6 * seconds:.1f}" for seconds in (
            row.predicted, row.measured, row.limit)), f"{row.ratio:.2f}", row.spent)
    if rows:
        table.caption = (f"{len(rows)} predictions: {near_share(rows):.0%} within {NEAR:.0%} of "
                         f"the measured time, rank correlation {rank_correlation(rows):.3f}")
    return table
