"""``weft.autotune``: time the kernels of a model and append the results to a records file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.compiler.extensions import Extensions, PassesLike, RulesLike, TirPassesLike
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.program import KernelSource
from weft.compiler.stages import kernels_of
from weft.frontend.source import ModelLike, open_source
from weft.ir.op import Op
from weft.runtime.devices.cpu.threads import num_threads
from weft.runtime.profile import render_table
from weft.strategy.build_tensors import anchor_of
from weft.strategy.records import Records, append_records, read_records
from weft.strategy.registry import strategies_of
from weft.strategy.selection import candidates
from weft.support import progress
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, TargetError
from weft.support.markup import html_table
from weft.support.plugins import load_plugins
from weft.target import CpuTarget, Target
from weft.tune import KernelTask, TunedKernel, measure_kernel


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The kernels with more than one candidate, timed; ``kernels`` counts all of the model."""

    records: Path
    kernels: int
    tuned: tuple[TunedKernel, ...]

    def table(self) -> str:
        """A line for each kernel: the model's choice, the fastest, and the gain."""
        return render_table(_COLUMNS, self._rows(), left=[_COLUMNS[n] for n in (0, 2, 4)])

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, self._rows(), numeric=(1, 3, 5, 6))

    def _rows(self) -> list[tuple[str, ...]]:
        return [(k.text, str(len(k.seconds)), k.chosen_by_model,
                 f"{1e6 * k.seconds[k.chosen_by_model]:.1f}", k.fastest,
                 f"{1e6 * k.seconds[k.fastest]:.1f}", f"{k.gain:.2f}x")
                for k in sorted(self.tuned, key=lambda k: -k.seconds[k.chosen_by_model])]

_COLUMNS = ("kernel", "timed", "chosen by model", "us", "fastest", "us", "gain")


def autotune(
    model: ModelLike,
    records: str | os.PathLike[str],
    *,
    target: Target | str | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    opt_level: int = 3,
    passes: PassesLike = (),
    rules: RulesLike = (),
    tir_passes: TirPassesLike = (),
    seconds: float = 0.1,
    again: bool = False,
    **knobs: Any,
) -> TuningReport:
    """Time every implementation that strategies offer for the kernels of ``model``.

    Each is timed for about ``seconds``, on the threads that compiled code would use. Results are
    appended to the file ``records`` kernel by kernel, so an interrupted run can be resumed;
    ``again`` also times implementations that the file has. ``weft.compile(model, records=...)`` or
    ``WEFT_RECORDS`` then selects by the file. The other arguments are those of ``weft.compile``.

    Raises what ``weft.compile`` raises, ``TargetError`` if the target is not this machine, and
    ``OptionError`` for a file without records.
    """
    path = Path(records)
    if not seconds > 0:
        raise OptionError("invalid seconds", expected="a positive number", got=repr(seconds))
    with config(**{**knobs, "records": None}):
        load_plugins()
        options = CompileOptions.make(target, opt_level, inputs,
                                      extensions=Extensions.make(passes, rules, tir_passes))
        _check_is_here(options.target)
        source = open_source(model, example_inputs, options)
        mod = run_pipeline(source.import_module(options), options, stop_at="lowered")
        kernels = kernels_of(mod)
        known = Records() if again or not path.exists() else read_records(path)
        tasks = [task for kernel in kernels if (task := _task_of(kernel, options.target))]
        return TuningReport(path, len(kernels), _tune(tasks, options, seconds, known, path))


def _tune(tasks: Sequence[KernelTask], options: CompileOptions, seconds: float, known: Records,
          path: Path) -> tuple[TunedKernel, ...]:
    tuned = []
    with progress.task("timing kernels", len(tasks)) as task_bar:
        for task in tasks:
            outcome, records = measure_kernel(task, options.target, num_threads(), seconds,
                                              known.times(task.kernel, options.target),
                                              options.extensions.tir_passes)
            if records:
                append_records(path, records)
            tuned.append(outcome)
            task_bar.advance(task.text)
    return tuple(tuned)


def _task_of(kernel: KernelSource, target: Target) -> KernelTask | None:
    """The kernel with its candidates; ``None`` if it has only one."""
    anchor = anchor_of(kernel.function)
    if anchor is None or not isinstance(anchor.op, Op):
        return None
    if not strategies_of(anchor.op.name, target.kind):
        return None
    found = candidates(anchor, target)
    if len(found) < 2:
        return None
    return KernelTask(kernel.digest, kernel.text, kernel.function, tuple(found))


def _check_is_here(target: Target) -> None:
    if str(target) != str(CpuTarget.host()):
        raise TargetError("cannot tune for another machine: kernels are timed where they run",
                          got=str(target), expected=str(CpuTarget.host()),
                          help="run `weft tune` there and copy the records file")
