"""Timing a point beside the model's choice: noise, slow points, wrong results, dead processes."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from tests.unit.strategy.test_space import matmul
from weft.strategy.selection import candidates
from weft.target import CpuTarget
from weft.tune import measure as module
from weft.tune import measuring_worker
from weft.tune.measure import Measurement, agree, measure, spread_of
from weft.tune.measuring_process import MeasuringProcess
from weft.tune.task import KernelTask


class Fake:
    outputs = ()

    def __init__(self, times):
        self.times, self.calls = iter(times), 0

    def seconds(self, calls=1):
        self.calls += calls
        return next(self.times)


def noisy(seconds, seed, share=0.5):
    """A kernel whose slices a busy machine delays at random; a few are undisturbed."""
    draw = np.random.default_rng(seed)
    while True:
        delay = (draw.random() < share) * draw.exponential(3.0)
        yield seconds * (1 + delay + 0.002 * draw.random())


def test_noise_that_only_adds_time_does_not_change_the_result():
    for seed in range(20):
        found = measure(Fake(noisy(1e-3, seed)), Fake(noisy(0.8e-3, seed + 100)), 10)
        assert found.gain == pytest.approx(1.25, rel=0.02)
        assert found.spread < module.SPREAD


def test_slow_points_are_given_up():
    found = measure(Fake(noisy(1e-3, 0, 0)), Fake(noisy(9e-3, 1, 1)), 10)
    assert found.rounds == module.LEAST_ROUNDS
    assert found.gain < 0.5


def test_the_time_of_a_measurement_is_limited():
    def slow():
        while True:
            time.sleep(0.01)
            yield 0.01 * np.random.default_rng().uniform(1, 2)

    start = time.monotonic()
    found = measure(Fake(slow()), Fake(slow()), 0.05)
    assert 2 <= found.rounds < 10
    assert time.monotonic() - start < 5


def test_the_spread_needs_three_slices():
    assert spread_of([1.0, 2.0]) == float("inf")
    assert spread_of([5.0, 1.02, 1.0, 1.01]) == pytest.approx(0.02)


def test_results_agree_up_to_rounding():
    a = np.array([1.0, 2.0, np.nan, np.inf], np.float32)
    assert agree([a], [a + np.float32(1e-4)])
    assert not agree([a], [a + np.float32(1.0)])


@pytest.fixture
def task():
    return KernelTask.of("kernel", "nn.matmul", matmul(33, 40, 50), CpuTarget.host())


def test_points_are_measured_in_a_process_of_their_own(task):
    space = next(iter(task.spaces.values()))
    point = space.name_of({**space.chosen, "mr": 2})
    with MeasuringProcess() as measuring:
        first = measuring.measure(task, task.default.name, 1, 1e-3)
        found = measuring.measure(task, point, 1, 1e-3)
        assert isinstance(first, Measurement)
        assert isinstance(found, Measurement)
        assert found.seconds > 0
        assert measuring.measure(task, "nn.matmul.cpu.gone", 1, 1e-3) == "unknown"
        assert measuring.restarts == 0


def test_a_dead_or_hanging_process_costs_one_point(task, monkeypatch):
    with MeasuringProcess(timeout=20) as measuring:
        assert isinstance(measuring.measure(task, task.default.name, 1, 1e-3), Measurement)
        os.kill(measuring._process.pid, 9)
        assert measuring.measure(task, task.default.name, 1, 1e-3) == "crashed"
        assert isinstance(measuring.measure(task, task.default.name, 1, 1e-3), Measurement)
        os.kill(measuring._process.pid, 19)  # stopped: it never answers
        monkeypatch.setattr(measuring, "_timeout", 0.2)
        assert measuring.measure(task, task.default.name, 1, 1e-3) == "timeout"
        monkeypatch.setattr(measuring, "_timeout", 60)
        assert isinstance(measuring.measure(task, task.default.name, 1, 1e-3), Measurement)
        assert measuring.restarts == 2


def test_a_point_with_another_result_has_no_time(task):
    """The comparison reads the arrays that the built kernels wrote."""
    bench = measuring_worker.Bench()
    other = candidates(task.function.body.args[0], task.target)[1]
    with MeasuringProcess() as measuring:
        order = measuring.order(task, other.name, 1, 1e-3)
    assert isinstance(bench.run(order, task), Measurement)
    _, baseline = bench._baseline(order, task)
    scramble = baseline.seconds

    def scrambled(calls=1):
        took = scramble(calls)
        baseline.outputs[0][:] += 1
        return took

    baseline.seconds = scrambled
    assert bench.run(order, task) == "wrong result"
