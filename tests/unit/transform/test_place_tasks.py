"""Placement by cost: the simulator, list scheduling, and what placements must respect."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.ir.virtual_device import VirtualDevice
from weft.runtime.device import Device
from weft.support.errors import TargetError
from weft.transform.placement.place_tasks import place_tasks
from weft.transform.placement.simulate import simulate
from weft.transform.placement.task_graph import (
    DeviceModel,
    Link,
    Task,
    TaskInput,
    Timeline,
    Topology,
    lower_bound,
)

SIMS = tuple(Device("sim", number) for number in range(4))


def topology(count: int, **options: object) -> Topology:
    return Topology(tuple(DeviceModel(device, **options) for device in SIMS[:count]),  # type: ignore[arg-type]
                    default_link=Link(1e9, 1e-5))


def random_graph(seed: int, count: int, devices: int, *, pins: bool = False) -> list[Task]:
    """Tasks of 10 us to 1 ms that read up to three earlier ones, over at most 1 MB."""
    chance = random.Random(seed)
    tasks = []
    for number in range(count):
        earlier = range(max(0, number - 6), number)
        read = sorted(chance.sample(earlier, min(len(earlier), chance.randrange(4))))
        inputs = tuple(TaskInput(one, chance.randrange(10**6), chance.randrange(2))
                       for one in read)
        seconds = {device: chance.uniform(1e-5, 1e-3) for device in SIMS[:devices]
                   if chance.random() < 0.9 or device == SIMS[0]}
        tasks.append(Task(
            f"t{number}", "op", seconds, inputs,
            pinned=VirtualDevice.of(SIMS[0]) if pins and chance.random() < 0.2 else None,
            colocated=chance.randrange(2) if pins and chance.random() < 0.3 else None,
            memory=chance.randrange(1000)))
    return tasks


def check_timeline(tasks: list[Task], topo: Topology, devices: tuple[Device, ...],
                   line: Timeline) -> None:
    """A schedule that hardware could follow: data arrives first, lanes and links are not shared."""
    sent = {(one.producer, one.buffer, one.destination): one for one in line.transfers}
    for number, task in enumerate(tasks):
        assert line.finishes[number] == pytest.approx(
            line.starts[number] + task.seconds[devices[number]])
        for read in task.inputs:
            arrived = line.finishes[read.producer]
            if devices[read.producer] != devices[number]:
                transfer = sent[read.producer, read.buffer, devices[number]]
                assert transfer.start >= arrived - 1e-12
                arrived = transfer.finish
            assert line.starts[number] >= arrived - 1e-12
    for model in topo.devices:
        mine = [n for n in range(len(tasks)) if devices[n] == model.device]
        for n in mine:
            running = sum(line.starts[m] <= line.starts[n] < line.finishes[m] for m in mine)
            assert running <= model.lanes
    for one in line.transfers:
        for other in line.transfers:
            if one is not other and (one.source, one.destination) == (other.source,
                                                                      other.destination):
                assert one.finish <= other.start + 1e-12 or other.finish <= one.start + 1e-12
    assert line.makespan == pytest.approx(max(line.finishes))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 3), st.booleans())
def test_placements_are_schedules_that_respect_the_constraints(
    seed: int, count: int, lanes: int, pins: bool
) -> None:
    tasks = random_graph(seed, count, 3, pins=pins)
    topo = topology(3, lanes=lanes)
    try:
        found = place_tasks(tasks, topo)
    except TargetError as error:
        assert "coloc" in str(error) or "assign" in str(error)  # noqa: PT017 - some graphs have none
        return
    line = simulate(tasks, topo, found.devices, found.order)
    check_timeline(tasks, topo, found.devices, line)
    assert line.starts == found.starts
    assert line.makespan == found.makespan
    assert found.makespan >= lower_bound(tasks, topo, found.order) - 1e-12
    groups: dict[int, set[Device]] = {}
    for task, device in zip(tasks, found.devices, strict=True):
        assert device in task.seconds
        assert task.pinned is None or task.pinned.matches(device)
        if task.colocated is not None:
            groups.setdefault(task.colocated, set()).add(device)
    assert all(len(devices) == 1 for devices in groups.values())
    assert len(found.reasons) == count
    assert place_tasks(tasks, topo) == found


def test_a_buffer_is_sent_once_to_each_device() -> None:
    a, b = SIMS[:2]
    tasks = [Task("a", "op", {a: 1.0}),
             Task("b", "op", {b: 1.0}, (TaskInput(0, 10**9),)),
             Task("c", "op", {b: 1.0}, (TaskInput(0, 10**9),)),
             Task("d", "op", {b: 1.0}, (TaskInput(0, 10**9, 1),))]
    line = simulate(tasks, topology(2), (a, b, b, b))
    assert [(one.producer, one.buffer) for one in line.transfers] == [(0, 0), (0, 1)]
    assert line.transfers[1].start == line.transfers[0].finish == pytest.approx(2 + 1e-5)
    assert line.starts[3] == pytest.approx(4, abs=1e-4)


def test_memory_is_held_until_the_last_reader_has_finished() -> None:
    a, b = SIMS[:2]
    tasks = [Task("a", "op", {a: 1.0}, memory=100),
             Task("b", "op", {a: 1.0}, (TaskInput(0, 100),), memory=50),
             Task("c", "op", {a: 1.0}, (TaskInput(1, 50),), memory=10),
             Task("d", "op", {b: 1.0}, (TaskInput(1, 50),), memory=1)]
    line = simulate(tasks, topology(2), (a, a, a, b))
    assert line.peak_memory == {a: 150, b: 51}


def test_errors() -> None:
    a, b = SIMS[:2]
    pinned = Task("x", "op", {a: 1.0}, pinned=VirtualDevice.parse("sim:1"))
    with pytest.raises(TargetError, match="cannot assign a device to 'x'"):
        place_tasks([pinned], topology(2))
    pair = [Task("x", "op", {a: 1.0}, colocated=1), Task("y", "op", {b: 1.0}, colocated=1)]
    with pytest.raises(TargetError, match="cannot colocate 'x' and 'y'"):
        place_tasks(pair, topology(2))
    ring = [Task("x", "op", {a: 1.0}, (TaskInput(1),)), Task("y", "op", {a: 1.0}, (TaskInput(0),))]
    with pytest.raises(TargetError, match="wait for one another"):
        place_tasks(ring, topology(1))
    chain = [Task("x", "op", {a: 1.0}), Task("y", "op", {a: 1.0}, (TaskInput(0),))]
    with pytest.raises(TargetError, match="after what it reads"):
        simulate(chain, topology(1), (a, a), (1, 0))
    with pytest.raises(TargetError, match="cannot run"):
        simulate(chain, topology(2), (a, b))
    with pytest.raises(TargetError, match="no devices"):
        place_tasks(chain, Topology(()))
