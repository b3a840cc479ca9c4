"""Makespans of placements: ``python -m benchmarks.placement [--devices N] [GRAPH ...]``.

All times are simulated (``weft.transform.placement.simulate``) except the last column, the time
that placement itself took. The lower bound is the longer of the critical path without transfers and
the work divided by the devices; no placement need reach it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import placement_graphs as graphs
from weft.runtime.device import Device
from weft.runtime.profile import render_table
from weft.transform.placement.list_scheduling import heft
from weft.transform.placement.place_tasks import lower_bound, place_tasks
from weft.transform.placement.problem_arrays import arrays_of
from weft.transform.placement.simulate import simulate
from weft.transform.placement.task_graph import DeviceModel, Task, Topology

GRAPHS: dict[str, Callable[[Sequence[Device]], list[Task]]] = {
    "inception v3": graphs.inception_v3,
    "inception v4": graphs.inception_v4,
    "resnet-50": graphs.resnet_50,
    "bert, 12 layers": graphs.bert_layers,
    "layered": graphs.layered,
    "layered, 1000": lambda on: graphs.layered(on, layers=180, seed=1),
    "layered, 5000": lambda on: graphs.layered(on, layers=900, seed=2),
    "fork-join": graphs.fork_join,
    "chain": graphs.chain,
    "wide tree": graphs.tree,
}


@dataclass(frozen=True)
class Makespans:
    """Simulated seconds of a graph on some devices."""

    graph: str
    tasks: int
    devices: int
    single: float
    round_robin: float
    heft: float
    final: float
    bound: float
    placement_seconds: float


def measured(name: str, count: int) -> Makespans:
    """The makespans of one graph on ``count`` devices with the default links."""
    on = graphs.devices(count)
    tasks = GRAPHS[name](on)
    topology = Topology(tuple(map(DeviceModel, on)))
    arrays = arrays_of(tasks, topology)
    start = time.perf_counter()
    found = place_tasks(tasks, topology)
    seconds = time.perf_counter() - start

    def makespan(placed: Sequence[int]) -> float:
        return simulate(tasks, topology, [on[one] for one in placed]).makespan

    return Makespans(
        name, len(tasks), count, makespan([0] * len(tasks)),
        makespan([number % count for number in range(len(tasks))]), makespan(heft(arrays)),
        found.makespan, lower_bound(tasks, topology), seconds)


def _row(one: Makespans) -> tuple[str, ...]:
    times = (one.single, one.round_robin, one.heft, one.final, one.bound)
    return (one.graph, str(one.tasks), str(one.devices), *(f"{1e3 * t:.3f}" for t in times),
            f"{one.final / one.single:.2f}", f"{one.final / one.bound:.2f}",
            f"{one.placement_seconds:.2f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS), metavar="GRAPH")
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    columns = ("graph", "tasks", "devices", "single [ms]", "round-robin", "HEFT", "final", "bound",
               "/single", "/bound", "placing [s]")
    rows = [_row(measured(name, count)) for name in options.graphs for count in options.devices]
    print(render_table(columns, rows, left=("graph",)))


if __name__ == "__main__":
    main()
