"""Operators that run in torch: one warning per compiled graph, or an error with ``strict``."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError


class FallbackWarning(UserWarning):
    """Parts of a graph of ``torch.compile`` run in torch."""


@dataclass(slots=True)
class GraphReport:
    """How one graph was divided between weft and torch.

    ``left`` counts the calls of each operator that run in torch; ``reasons`` gives the reason for
    each of these operators. ``drawn`` are those that draw random numbers: they run in torch so that
    its seed decides the numbers, and no warning names them. ``failed`` lists the errors of regions
    that weft could not compile.
    """

    kind: str
    calls: int = 0
    regions: int = 0
    left: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

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


def warn(reports: list[GraphReport]) -> None:
    """One ``FallbackWarning`` for the graphs of one compilation, if an operator runs in torch."""
    notes = {note: None for report in reports for note in notes_of(report)}
    if notes:
        warnings.warn("torch runs the operators that weft does not support:\n  "
                      + "\n  ".join(notes), FallbackWarning, stacklevel=2)


def warn_of_failure(report: GraphReport, error: Exception) -> None:
    """Warn that torch runs a region which weft could not compile."""
    reason = f"{type(error).__name__}: {error}"
    report.failed.append(reason)
    warnings.warn(f"torch runs a region that weft could not compile: {reason}",
                  FallbackWarning, stacklevel=2)
