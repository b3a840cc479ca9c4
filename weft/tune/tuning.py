"""``weft.tune.tune``: search for faster points of the kernels of a model, and record them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.compiler.extensions import Extensions, PassesLike, RulesLike, TirPassesLike
from weft.compiler.options import CompileOptions
from weft.frontend.source import ModelLike, open_source
from weft.runtime.executors import Executor
from weft.support.errors import OptionError
from weft.support.records_file import default_records
from weft.target import Target
from weft.tune.budget import parse_budget
from weft.tune.here import Effort, Watch, tune_here, tuning_settings
from weft.tune.remote import tune_on
from weft.tune.report import TuningReport
from weft.tune.session import POINT_SECONDS

DEFAULT_BUDGET = "60s"


def tune(
    model: ModelLike,
    records: str | os.PathLike[str] | None = None,
    *,
    budget: float | str = DEFAULT_BUDGET,
    target: Target | str | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    opt_level: int = 3,
    passes: PassesLike = (),
    rules: RulesLike = (),
    tir_passes: TirPassesLike = (),
    seed: int = 0,
    again: bool = False,
    watch: Watch | None = None,
    point_seconds: float = POINT_SECONDS,
    executor: Executor | None = None,
    **knobs: Any,
) -> TuningReport:
    """Search for faster tiles, orders and algorithms of the kernels of ``model``.

    The ``budget`` (seconds, or a text such as ``"10m"``) goes to the kernels that promise the most.
    Results are kept in the database ``records`` (default: one in the cache folder) as they come, so
    a run can be interrupted, and the next one goes on where it ended; ``again`` measures anew what
    it knows. ``weft.compile`` then takes the winners, from the default file by itself and from
    another one with ``records=...`` or ``WEFT_RECORDS``. ``watch`` is called with the state after
    each round; ``point_seconds`` is the time for one point. The workers of an ``executor`` share
    the kernels (``weft.distributed.executors``), each kind of CPU for itself. The other arguments
    are those of ``weft.compile``.

    Raises what ``weft.compile`` raises, ``TargetError`` if the target is not this machine, and
    ``OptionError`` for a budget or a file that cannot be used.
    """
    seconds, path = parse_budget(budget), default_records() if records is None else Path(records)
    effort = Effort(seconds, point_seconds, seed)
    if executor is not None:
        _check_for_workers({"target": target is not None, "again": again, "passes": bool(passes),
                            "rules": bool(rules), "tir_passes": bool(tir_passes)})
    with tuning_settings(knobs):
        options = CompileOptions.make(target, opt_level, inputs,
                                      extensions=Extensions.make(passes, rules, tir_passes))
        if executor is not None:
            imported = open_source(model, example_inputs, options).import_module(options)
            return tune_on(executor, imported, path, effort, opt_level, knobs, watch)
        return tune_here(model, example_inputs, options, path, effort, again=again, watch=watch)


def _check_for_workers(given: Mapping[str, bool]) -> None:
    """Refuse the options that workers, which tune for their own CPUs, do not take."""
    refused = [name for name, is_given in given.items() if is_given]
    if refused:
        raise OptionError("workers of an executor do not take these options of tuning",
                          got=", ".join(refused), expected="tuning on this machine",
                          help="leave out executor= (--scheduler), or these options")


autotune = tune
