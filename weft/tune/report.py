"""The result of tuning a model, as a table and as values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.compiler.report.plots import Bar, bars_svg
from weft.runtime.profile import render_table
from weft.support.dataclass import dataclass
from weft.support.markup import html_table
from weft.tune.budget import TunedTask


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """A kernel, ``count`` calls of which a program makes: its implementations and their seconds.

    ``limit`` are the seconds that the machine takes at least by its model. ``failed`` points
    crashed, hung, gave another result or could not be built; ``measured`` ones have a time.
    """

    text: str
    count: int
    chosen_by_model: str
    baseline: float
    fastest: str
    seconds: float
    limit: float
    measured: int
    failed: int
    expected_gain: float = 0.0

    @property
    def gain(self) -> float:
        """The speedup of the fastest over the model's choice, at least 1."""
        return self.baseline / self.seconds if self.seconds else 1.0

    @staticmethod
    def of(task: TunedTask) -> TunedKernel:
        search, kernel = task.search, task.search.task
        return TunedKernel(kernel.text, kernel.count, kernel.default.name, task.baseline,
                           search.best, task.seconds, task.limit, len(search.gains),
                           len(search.failed), task.expected_gain)


_COLUMNS = ("kernel", "calls", "timed", "chosen by model", "us", "fastest", "us", "gain")


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The kernels that were tuned; ``kernels`` counts all of the model.

    ``spent`` are the seconds that tuning took, ``interrupted`` says that a user ended it.
    """

    records: Path
    kernels: int
    tuned: tuple[TunedKernel, ...]
    spent: float = 0.0
    interrupted: bool = False
    notes: Sequence[str] = ()

    @property
    def baseline(self) -> float:
        """Seconds of all kernels by the model's choices, each as often as the program calls it."""
        return sum(k.count * k.baseline for k in self.tuned)

    @property
    def seconds(self) -> float:
        """Seconds of all kernels by their fastest implementations."""
        return sum(k.count * k.seconds for k in self.tuned)

    @property
    def gain(self) -> float:
        """How many times as fast the tuned kernels together are."""
        return self.baseline / self.seconds if self.seconds else 1.0

    def table(self) -> str:
        """A line for each kernel: the model's choice, the fastest, and the gain."""
        return render_table(_COLUMNS, self._rows(), left=[_COLUMNS[n] for n in (0, 3, 5)])

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, self._rows(), numeric=(1, 2, 4, 6, 7))

    def plot(self, title: str) -> str:
        """The time of the model's choice for each kernel, and of the fastest, as SVG."""
        bars = [Bar(k.text, k.baseline, f"{k.baseline * 1e6:.1f} us, {k.gain:.2f}x", k.seconds)
                for k in sorted(self.tuned, key=lambda k: -k.baseline)]
        return bars_svg(title, bars, note="time of the implementation that the cost model chose; "
                                          "the mark is the fastest")

    def values(self) -> dict[str, Any]:
        """Everything as plain values, for programs."""
        return {
            "records": str(self.records), "kernels": self.kernels, "seconds": self.seconds,
            "baseline": self.baseline, "gain": self.gain, "spent": self.spent,
            "interrupted": self.interrupted, "notes": list(self.notes),
            "tuned": [{name: getattr(k, name) for name in (
                "text", "count", "chosen_by_model", "baseline", "fastest", "seconds", "gain",
                "limit", "measured", "failed")} for k in self.tuned]}

    def _rows(self) -> list[tuple[str, ...]]:
        return [(k.text, str(k.count), str(k.measured), k.chosen_by_model,
                 f"{1e6 * k.baseline:.1f}", k.fastest, f"{1e6 * k.seconds:.1f}", f"{k.gain:.2f}x")
                for k in sorted(self.tuned, key=lambda k: -k.count * k.baseline)]
