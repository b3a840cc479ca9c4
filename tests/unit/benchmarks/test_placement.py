"""The graphs of ``benchmarks.placement``: how near placement comes to the lower bound."""

from __future__ import annotations

import pytest

from benchmarks import placement_graphs as graphs
from weft.target import CpuTarget
from weft.transform.placement.place_tasks import lower_bound, place_tasks
from weft.transform.placement.task_graph import DeviceModel, Task, Topology


def _ratios(tasks: list[Task], count: int) -> tuple[float, float]:
    """The makespan over that of one device, and over the lower bound."""
    on = graphs.devices(count)
    topology = Topology(tuple(map(DeviceModel, on)))
    found = place_tasks(tasks, topology).makespan
    return found / sum(task.seconds[on[0]] for task in tasks), found / lower_bound(tasks, topology)


def test_inception_on_four_devices() -> None:
    """Of the 189 kernels of Inception v4, those of the critical path take 0.597 of the time."""
    target = CpuTarget.parse("llvm -mcpu=skylake-avx512")
    of_one, of_bound = _ratios(graphs.inception_v4(graphs.devices(4), target), 4)
    assert of_one <= 0.6
    assert of_bound <= 1.02


def test_what_runs_side_by_side_is_spread_and_a_chain_is_not() -> None:
    assert _ratios(graphs.tree(graphs.devices(4), 64), 4)[1] <= 1.05
    assert _ratios(graphs.fork_join(graphs.devices(4), 8, 3), 4)[0] <= 0.35
    assert _ratios(graphs.chain(graphs.devices(4), 50), 4) == pytest.approx((1.0, 1.0))
