"""Operators that run in torch: one warning per compiled graph, or an error with ``strict``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.support.errors import (
    InternalError,
    MissingToolError,
    OptionError,
    UnsupportedModelError,
    WeftError,
)
from weft.support.fallback import Fallback, FallbackLog, FallbackWarning, reason_of, report

__all__ = ["FallbackWarning", "GraphReport", "left_to_torch", "may_run_in_torch", "publish",
           "refuse", "report_failure", "report_operators", "report_shapes", "report_weights"]


@dataclass(slots=True)
class GraphReport:
    """How one graph was divided between weft and torch.

    ``left`` counts the calls of each operator that run in torch; ``reasons`` gives the reason for
    each of these operators. ``drawn`` are those that draw random numbers: they run in torch so that
    its seed decides the numbers, and no warning names them. ``failed`` lists the errors of regions
    that weft could not compile. ``log`` has all changes of plan of the graph and of its regions.
    """

    kind: str
    calls: int = 0
    regions: int = 0
    left: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    log: FallbackLog = field(default_factory=FallbackLog)

    @property
    def unsupported(self) -> list[str]:
        """The operators without which weft would compile the whole graph, in order."""
        return sorted(self.left.keys() - self.drawn)

    @property
    def is_whole(self) -> bool:
        """Whether weft compiles every operator except those that draw random numbers."""
        return not self.unsupported and not self.failed


_WATCHERS: ContextVar[tuple[list[GraphReport], ...]] = ContextVar("watchers", default=())


@contextmanager
def left_to_torch() -> Iterator[list[GraphReport]]:
    """Collects the reports of all graphs that are compiled in the ``with`` block, in order.

    A report is complete once its graph has run.
    """
    reports: list[GraphReport] = []
    token = _WATCHERS.set((*_WATCHERS.get(), reports))
    try:
        yield reports
    finally:
        _WATCHERS.reset(token)


def publish(report: GraphReport) -> None:
    """Append a report to the list of every enclosing ``left_to_torch``."""
    for reports in _WATCHERS.get():
        reports.append(report)


def notes_of(report: GraphReport) -> list[str]:
    """One line for each operator that runs in torch, with the reason."""
    counts = [(name, report.left[name]) for name in report.unsupported]
    return [f"{name}: {count} time{'s' if count != 1 else ''} ({report.reasons[name]})"
            for name, count in counts]


def refuse(report: GraphReport) -> None:
    """Raise the ``UnsupportedModelError`` of ``strict=True``."""
    count = len(report.unsupported)
    raise UnsupportedModelError(
        f"the model uses {count} operator{'s' if count != 1 else ''} that weft does not support",
        where="a graph traced by torch.compile", notes=notes_of(report),
        help="without strict=True, torch runs these",
    )


def report_operators(reports: list[GraphReport]) -> None:
    """One ``FallbackWarning`` for the graphs of one compilation, if an operator runs in torch."""
    notes = {note: None for made in reports for note in notes_of(made)}
    if not notes:
        return
    regions = sum(made.regions for made in reports)
    fallback = Fallback(
        "torch runs the operators that weft does not support:\n  " + "\n  ".join(notes),
        "weft has no converter for them, or not for these dtypes and sizes",
        f"these calls in torch's own kernels; the rest is {regions} regions, with a call each and "
        "results in memory between them",
        "write them with other operators, or register a converter (docs/pytorch.md)")
    for made in reports[1:]:
        made.log.add(fallback)
    report(fallback, reports[0].log)


def may_run_in_torch(error: Exception) -> bool:
    """Whether torch may run a region for which weft raised ``error``.

    Not where weft has a defect: an ``InternalError``, or an exception of Python in its own code.
    """
    return isinstance(error, WeftError) and not isinstance(
        error, (InternalError, MissingToolError, OptionError))


def report_failure(made: GraphReport, error: Exception) -> None:
    """Report that torch runs a region which weft could not compile."""
    made.failed.append(f"{type(error).__name__}: {error}")
    cure = error.help if isinstance(error, WeftError) else None
    report(Fallback(
        f"torch runs a region of the {made.kind} graph that weft could not compile",
        reason_of(error), "the region in torch's own kernels, operator by operator",
        cure or "write the region with other operators"), made.log)


def report_shapes(made: GraphReport, error: WeftError) -> None:
    """Report that a region with varying sizes is compiled for each set of shapes."""
    report(Fallback(
        f"a region of the {made.kind} graph is compiled for each new set of input shapes",
        reason_of(error), "each new set of shapes is compiled at its first call: 0.1 to 5 s",
        error.help or "torch.compile(model, dynamic=False) with inputs of few shapes"), made.log)


def report_weights(made: GraphReport, changes: int) -> None:
    """Report that a region takes its weights as inputs, as they keep changing."""
    report(Fallback(
        f"a region of the {made.kind} graph takes its weights as inputs, not as constants",
        f"they changed {changes} times", "its weights are not packed and folded ahead of time",
        "change weights in no_grad inference less often, or compile the training step"), made.log)
