"""Tuning on this machine: the kernels of a model that have a choice, searched within a budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.compiler.extensions import is_self_contained
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.compiler.program.program import KernelSource
from weft.compiler.stages import kernels_of
from weft.frontend.source import ModelLike, open_source
from weft.ir import IRModule
from weft.runtime.devices.cpu.threads import num_threads
from weft.strategy.size_vars import symbols_of
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.support.plugins import load_plugins
from weft.support.records_file import NO_RECORDS
from weft.target import CpuTarget, Target
from weft.tune.budget import TunedTask
from weft.tune.cost_model import MISSING, LearnedModel
from weft.tune.measuring_process import MeasuringProcess
from weft.tune.report import TunedKernel, TuningReport
from weft.tune.session import POINT_SECONDS, Session
from weft.tune.store import TuningStore
from weft.tune.task import KernelTask

Watch = Callable[[TuningReport], None]
Examples = Sequence[Any] | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Work:
    """The kernels of a model that have a choice, of ``kernels`` in all."""

    tasks: tuple[KernelTask, ...]
    kernels: int


@dataclass(frozen=True, slots=True)
class Share:
    """Every ``parts``-th kernel of a model, from ``number``: what one of several workers tunes."""

    number: int = 0
    parts: int = 1


WHOLE = Share()


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to search: ``seconds`` in all and for one point. ``seed`` decides the draws."""

    seconds: float
    point_seconds: float = POINT_SECONDS
    seed: int = 0


@contextmanager
def tuning_settings(knobs: Mapping[str, Any]) -> Iterator[None]:
    """Settings of ``weft.config`` without the effect of earlier records, and with plug-ins."""
    with config(**{**knobs, "records": NO_RECORDS}):
        load_plugins()
        yield


def tune_here(model: ModelLike, examples: Examples, options: CompileOptions, path: Path,
              effort: Effort, *, again: bool = False, watch: Watch | None = None,
              share: Share = WHOLE) -> TuningReport:
    """Search for faster points of a share of the kernels, and keep them in the database ``path``.

    Raises ``TargetError`` if the target is not this machine.
    """
    check_is_here(options.target)
    with TuningStore(path) as store, MeasuringProcess() as measuring:
        work = work_of(model, options, examples)
        work = Work(work.tasks[share.number::share.parts], work.kernels)
        session = Session(store, measuring, num_threads(), effort.seed,
                          model=LearnedModel(effort.seed), point_seconds=effort.point_seconds)
        return _tune(work, path, session, effort.seconds, watch, again=again)


def _tune(work: Work, path: Path, session: Session, seconds: float, watch: Watch | None, *,
          again: bool) -> TuningReport:
    start = time.monotonic()
    notes = () if session.model.can_learn else (MISSING,)

    def report(tasks: Sequence[TunedTask], *, interrupted: bool = False) -> TuningReport:
        tuned = tuple(TunedKernel.of(task) for task in tasks if task.baseline)
        return TuningReport(path, work.kernels, tuned, time.monotonic() - start, interrupted,
                            notes)

    if watch is not None:
        session.watch = lambda tasks: watch(report(tasks))
    interrupted = False
    try:
        session.open(work.tasks, again=again)
        session.run(seconds)
    except KeyboardInterrupt:  # all that was measured is kept
        interrupted = True
    return report(session.tasks, interrupted=interrupted)


def work_of(model: ModelLike, options: CompileOptions,
            example_inputs: Examples = None) -> Work:
    """The kernels of a model after all passes, with the number of their calls."""
    source = open_source(model, example_inputs, options)
    lowered = run_pipeline(source.import_module(options), options, stop_at="lowered")
    kernels, counts = kernels_of(lowered), _counts(lowered)
    tasks = [KernelTask.of(k.digest, k.text, k.function, options.target,
                           count=counts.get(n, 1), tir_passes=options.extensions.tir_passes,
                           is_foreign=not is_self_contained(k.function, options.target))
             for n, k in enumerate(kernels) if _has_fixed_sizes(k)]
    return Work(tuple(task for task in tasks if task is not None), len(kernels))


def _counts(lowered: IRModule) -> Counter[int]:
    program = try_lower_program(lowered)
    return Counter() if program is None else Counter(step.kernel for step in program.steps)


def _has_fixed_sizes(kernel: KernelSource) -> bool:
    return not symbols_of(kernel.function)


def check_is_here(target: Target) -> None:
    """Raise ``TargetError`` unless the target is the CPU of this machine."""
    if str(target) != str(CpuTarget.host()):
        raise TargetError("cannot tune for another machine: kernels are timed where they run",
                          got=str(target), expected=str(CpuTarget.host()),
                          help="run `weft tune` there and merge its records (`weft records merge`)")
