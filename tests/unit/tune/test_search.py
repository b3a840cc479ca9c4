"""The evolutionary search, and how kernels share a budget, over machines that are simulated."""

from __future__ import annotations

import contextlib
import hashlib

import pytest

from tests.unit.strategy.test_space import KERNELS, matmul
from weft.support.errors import OptionError, ScheduleError
from weft.target import CpuTarget
from weft.tune.budget import TunedTask, next_task, parse_budget
from weft.tune.cost_model import Example, LearnedModel
from weft.tune.measure import Measurement
from weft.tune.search import KernelSearch
from weft.tune.store import Sample
from weft.tune.task import KernelTask, LoweredPoint, limit_of, lower_point


def task_of(name):
    function = matmul(40, 300, 90) if name == "small" else KERNELS[name]()
    return KernelTask.of(name, name, function, CpuTarget.host())


def gain_of(task, name):
    """A machine on which tall tiles of two vectors are twice as fast as the model's choice."""
    point = next(s.point_of(name) for s in task.spaces.values() if s.point_of(name))
    return 1.0 + 0.5 * (point["vectors"] == 2) + 0.5 * min(point["mr"], 8) / 8


@pytest.fixture
def quick_lowering(monkeypatch):
    """Points whose features are their names: lowering takes most of the time of a search."""
    def lowered(_, implementation):
        digest = hashlib.sha256(implementation.name.encode()).digest()
        return LoweredPoint(None, 1e-3, tuple(byte / 256 for byte in digest[:8]))

    monkeypatch.setattr("weft.tune.search.lower_point", lowered)


def searched(rounds, seed=0):
    model = LearnedModel()
    model.can_learn = False
    search = KernelSearch(task_of("small"), model, seed)
    order = []
    for _ in range(rounds):
        before = search.gain
        for candidate in search.propose():
            order.append(candidate.name)
            bad = candidate.name.startswith("nn.matmul.cpu.generic")
            search.report(candidate, "crashed" if bad else Measurement(
                1.0, gain_of(search.task, candidate.name), 5, 0.0))
        search.end_round(before)
    return search, order


@pytest.mark.usefixtures("quick_lowering")
def test_evolution_finds_what_the_machine_model_does_not_expect():
    search, order = searched(12)
    assert search.gain == 2.0
    assert len(order) == len(set(order))


@pytest.mark.usefixtures("quick_lowering")
def test_the_same_seed_and_times_give_the_same_points():
    assert searched(3)[1] == searched(3)[1]
    assert searched(3)[1] != searched(3, seed=1)[1]


@pytest.mark.usefixtures("quick_lowering")
def test_points_that_failed_are_not_the_best_and_known_ones_are_not_proposed():
    task = task_of("small")
    first, order = searched(2)
    again = KernelSearch(task, LearnedModel(), 0)
    for name in order:
        again.recall(name, first.gains.get(name), first.failed.get(name, "ok"))
    assert again.gain == first.gain
    again.recall("nn.matmul.cpu.gone", 99.0, "ok")
    assert again.gain == first.gain
    assert not {c.name for c in again.propose()} & set(order)


def test_a_small_space_is_exhausted():
    model = LearnedModel()
    search = KernelSearch(task_of("elementwise"), model, 0)
    for _ in range(10):
        for candidate in search.propose():
            search.report(candidate, Measurement(1.0, 1.0, 5, 0.0))
        search.end_round(search.gain)
    assert search.is_exhausted
    assert TunedTask(search, 0.0, 1.0).is_done


def tuned(name, *, baseline, limit, count=1):
    search = KernelSearch(KernelTask.of(name, name, matmul(40, 300, 90), CpuTarget.host(),
                                        count=count), LearnedModel(), 0)
    return TunedTask(search, limit, baseline)


def test_the_budget_goes_to_what_promises_the_most():
    good, poor = tuned("a", baseline=1.0, limit=0.9), tuned("b", baseline=1.0, limit=0.2)
    often = tuned("c", baseline=0.5, limit=0.1, count=9)
    assert next_task([good, poor]) is poor
    assert next_task([good, poor, often]) is often
    often.search.stale = 5  # found nothing for long
    assert next_task([good, poor, often]) is poor
    poor.search.stale = 99
    assert poor.is_done
    done = tuned("d", baseline=1.0, limit=1.0)
    assert done.is_done
    assert next_task([done]) is None


def test_a_recent_gain_keeps_a_kernel_in_turn():
    a, b = (tuned(name, baseline=1.0, limit=0.5) for name in "ab")
    a.gained, b.gained = [0.4], [0.0]
    a.search.rounds = b.search.rounds = 1
    assert next_task([a, b]) is a
    a.spent, b.spent = 100.0, 0.1  # but its rounds are long
    assert next_task([a, b]) is b


@pytest.mark.parametrize(("text", "seconds"), [
    (90, 90), ("90", 90), ("90s", 90), (" 1.5m ", 90), ("2h", 7200), (0.5, 0.5)])
def test_budgets_are_times(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "10 minutes", "-1s", "0", "nan", "m", None])
def test_other_budgets_are_refused(text):
    with pytest.raises(OptionError, match="budget"):
        parse_budget(text)


@pytest.mark.parametrize("name", ["matmul", "blocked convolution", "softmax", "elementwise"])
def test_features_describe_the_loops(name):
    task = task_of(name)
    point = lower_point(task, task.default)
    assert len(point.features) > 40
    assert 0 < limit_of(task) <= 3 * point.predicted
    space = task.spaces[task.default.name]
    names = {space.name_of({**space.chosen, k.name: v}) for k in space.knobs for v in k.values[-2:]}
    found = set()
    for one in filter(None, map(task.named, names)):
        with contextlib.suppress(ScheduleError):
            found.add(lower_point(task, one).features)
    assert found - {point.features}


def test_without_the_library_the_machine_model_ranks(monkeypatch):
    monkeypatch.setattr("weft.tune.cost_model.has_learning", lambda: False)
    model = LearnedModel()
    example = Example((1.0, 2.0), (1.0, 1.0), 1.5)
    for _ in range(100):
        model.add(example, 3.0)
    assert model.gains([example]) == [1.5]
    assert not model.is_trained


def test_samples_of_earlier_runs_count(monkeypatch):
    model = LearnedModel()
    found = [Sample("cpu", "k", 1, "base", "", 2.0, 2.0, "ok", (3.0, 1.0)),
             Sample("cpu", "k", 1, "base[mr=1]", "", 1.0, 2.0, "ok", (2.0, 5.0)),
             Sample("cpu", "k", 1, "base[mr=2]", "", None, None, "crashed", (2.0, 5.0)),
             Sample("cpu", "other", 1, "base[mr=2]", "", 1.0, 1.0, "ok", ())]
    model.add_samples(found)
    assert model._gains == [0.0, 1.0]
    assert model._rows[1] == [2.0, 5.0, -1.0, 4.0, 1.0]
