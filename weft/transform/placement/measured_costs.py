"""``MeasuredCosts``: counts, seconds, bytes and memory of operations by name, recorded run by run.

This is TensorFlow's ``CostModel``: the costs of parts of a program (*local*) are merged into those
of the whole (*global*), and operations that ran seldom are ignored. ``placement="profile"`` takes
the seconds of tasks from it. Before any measurement, estimates come from the back end
(``weft.codegen.cost_model``).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from weft.runtime.profile import Profile, StepTime, render_table
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError

# The resolution of the clock: no operation is estimated to take less.
MIN_SECONDS = 1e-6


@dataclass(slots=True)
class OpCost:
    """Totals of one operation. ``nbytes`` are by output; ``max_*`` the largest of any run."""

    count: int = 0
    seconds: float = 0.0
    nbytes: dict[int, int] = field(default_factory=dict)
    max_seconds: float = 0.0
    max_memory: int = 0

    def merge(self, other: OpCost) -> None:
        """Add the runs of ``other``."""
        self.count += other.count
        self.seconds += other.seconds
        for output, nbytes in other.nbytes.items():
            self.nbytes[output] = self.nbytes.get(output, 0) + nbytes
        self.max_seconds = max(self.max_seconds, other.max_seconds)
        self.max_memory = max(self.max_memory, other.max_memory)


class MeasuredCosts:
    """Costs by the name of an operation, such as the symbol of a kernel."""

    def __init__(self) -> None:
        self._costs: dict[str, OpCost] = {}
        self._min_count = 0

    # Records.

    def record_count(self, name: str, count: int = 1) -> None:
        """The operation ran ``count`` times more."""
        _check(count >= 0, "count", count)
        self._of(name).count += count

    def record_time(self, name: str, seconds: float) -> None:
        """A run took ``seconds``."""
        _check(seconds >= 0, "time", seconds)
        cost = self._of(name)
        cost.seconds += seconds
        cost.max_seconds = max(cost.max_seconds, seconds)

    def record_size(self, name: str, nbytes: int, output: int = 0) -> None:
        """A run gave ``nbytes`` in an output."""
        _check(nbytes >= 0, "size", nbytes)
        sizes = self._of(name).nbytes
        sizes[output] = sizes.get(output, 0) + nbytes

    def record_memory(self, name: str, nbytes: int) -> None:
        """A run allocated ``nbytes``; the largest is kept."""
        cost = self._of(name)
        cost.max_memory = max(cost.max_memory, nbytes)

    def record_steps(self, steps: Iterable[StepTime]) -> None:
        """The steps of a run, as a trace has them."""
        for step in steps:
            self.record_count(step.call.symbol)
            self.record_time(step.call.symbol, step.seconds)
            self.record_size(step.call.symbol, step.bytes_moved)

    def record_profile(self, profile: Profile) -> None:
        """The steps of ``mod.profile(..)``."""
        self.record_steps(profile.steps)

    # Estimates.

    def total_count(self, name: str) -> int:
        """How often an operation ran; 0 if it ran too seldom (``suppress_infrequent``)."""
        cost = self._kept(name)
        return 0 if cost is None else cost.count

    def total_seconds(self, name: str) -> float:
        """The time of all runs."""
        cost = self._kept(name)
        return 0.0 if cost is None else cost.seconds

    def total_bytes(self, name: str, output: int = 0) -> int:
        """The bytes of all runs."""
        cost = self._kept(name)
        return 0 if cost is None else cost.nbytes.get(output, 0)

    def size_estimate(self, name: str, output: int = 0) -> int:
        """The mean bytes of an output; 0 if nothing is known."""
        count = self.total_count(name)
        return self.total_bytes(name, output) // count if count else 0

    def seconds_estimate(self, name: str) -> float:
        """The mean time of a run, at least ``MIN_SECONDS``."""
        count = self.total_count(name)
        return max(MIN_SECONDS, self.total_seconds(name) / count) if count else MIN_SECONDS

    def max_seconds(self, name: str) -> float:
        """The longest run."""
        cost = self._costs.get(name)
        return 0.0 if cost is None else cost.max_seconds

    def max_memory(self, name: str) -> int:
        """The most bytes that a run allocated."""
        cost = self._costs.get(name)
        return 0 if cost is None else cost.max_memory

    def measured_seconds(self) -> dict[str, float]:
        """The estimates of all operations that ran often enough, by name."""
        return {name: self.seconds_estimate(name) for name in self._costs
                if self.total_count(name) and self.total_seconds(name)}

    # Merging.

    def suppress_infrequent(self) -> None:
        """Ignore operations that ran less than half as often as the median one."""
        counts = [cost.count for cost in self._costs.values() if cost.count > 0]
        self._min_count = int(statistics.median(counts)) // 2 if counts else 0

    def merge_from_global(self, other: MeasuredCosts) -> None:
        """Add the runs of a model with the same names."""
        for name, cost in other._costs.items():
            self._of(name).merge(cost)

    def merge_from_local(self, other: MeasuredCosts, names: Mapping[str, str]) -> None:
        """Add the runs of the model of a part; ``names`` maps its operations to names in this
        model.

        Operations that ``names`` lacks, such as copies, exist in the part alone and are ignored.
        """
        for name, cost in other._costs.items():
            if name in names:
                self._of(names[name]).merge(cost)

    def __iter__(self) -> Iterator[str]:
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def table(self) -> str:
        """One line for each operation, the longest total time first."""
        rows = [(name, str(cost.count), f"{cost.seconds * 1e6:.1f}",
                 f"{self.seconds_estimate(name) * 1e6:.1f}", f"{cost.max_seconds * 1e6:.1f}",
                 str(self.size_estimate(name)), str(cost.max_memory))
                for name, cost in sorted(self._costs.items(), key=lambda one: -one[1].seconds)]
        columns = ("operation", "runs", "total [us]", "mean [us]", "longest [us]", "bytes",
                   "memory")
        return render_table(columns, rows, left=("operation",))

    def _of(self, name: str) -> OpCost:
        return self._costs.setdefault(name, OpCost())

    def _kept(self, name: str) -> OpCost | None:
        cost = self._costs.get(name)
        return None if cost is None or cost.count < self._min_count else cost


def _check(fits: bool, what: str, value: float) -> None:
    if not fits:
        raise OptionError(f"a {what} cannot be negative", got=repr(value))
