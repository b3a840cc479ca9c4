"""Tuning models: the search, its records, interrupted and repeated runs, the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from tests.unit.strategy.test_space import matmul
from tests.unit.tune.test_search import quick_lowering  # noqa: F401 - a fixture
from weft.cli.main import main
from weft.strategy.records import cpu_of
from weft.support.errors import OptionError, TargetError
from weft.target import CpuTarget
from weft.tir.func import PrimFunc
from weft.tune import TuningStore, session, tune
from weft.tune.cost_model import LearnedModel
from weft.tune.measure import Measurement
from weft.tune.session import Session
from weft.tune.task import KernelTask

PROGRAM = """def @main(%x: Tensor[(9, 20), float32], %w: Tensor[(33, 20), float32]) {
  %0 = nn.relu(nn.dense(%x, %w));
  nn.softmax(%0)
}"""
QUICK = {"point_seconds": 1e-3, "threads": 1}


pytestmark = pytest.mark.usefixtures("quick_lowering")


@pytest.fixture
def cache(tmp_path, own_cache):
    return tmp_path


class Machine:
    """Gives points gains: 2 where ``unroll`` is 2, else 1, but what it dreads."""

    def __init__(self, *, fails=(), noise=1.0, interrupts_at=None):
        self.fails, self.noise, self.interrupts_at = fails, noise, interrupts_at
        self.asked = []

    def measure(self, task, name, threads, seconds):
        self.asked.append((name, seconds))
        if len(self.asked) == self.interrupts_at:
            raise KeyboardInterrupt
        if any(part in name for part in self.fails):
            return "crashed"
        gain = 2.0 if "unroll=2" in name else 1.0
        if seconds < session.CONFIRM_SECONDS:  # the first measurement of a point is disturbed
            gain *= self.noise
        return Measurement(1e-3, gain * 1e-3, 5, 0.0)


def run(path, machine, *, seconds=0.2, again=False, rounds=20, kernel="k"):
    function = matmul(33, 40, 50)
    task = KernelTask.of(kernel, "nn.matmul", function, CpuTarget.host())
    with TuningStore(path) as store:
        model = LearnedModel()
        model.can_learn = False
        found = Session(store, machine, 1, model=model)
        found.open([task], again=again)
        for _ in range(rounds):
            found.round(found.tasks[0], float("inf"))
        return found.tasks[0], store.winner(cpu_of(task.target), kernel, 1), store.samples()


def test_the_fastest_point_becomes_the_winner(tmp_path):
    task, winner, samples = run(tmp_path / "r", Machine())
    assert "unroll=2" in winner.implementation
    assert (winner.gain, task.search.gain) == (2.0, 2.0)
    assert {s.status for s in samples} == {"ok"}
    assert task.seconds == task.baseline / 2


def test_what_noise_made_fast_is_no_winner(tmp_path):
    """Each point seems half as fast again when first measured, and is not."""
    task, winner, _ = run(tmp_path / "r", Machine(fails=["unroll=2"], noise=1.5))
    assert winner is None
    assert task.search.gain == 1.0
    assert task.search.failed


def test_a_crash_loses_one_point(tmp_path):
    _, winner, samples = run(tmp_path / "r", Machine(fails=["vectors=1,"]))
    assert "unroll=2" in winner.implementation
    failed = [s for s in samples if s.status != "ok"]
    assert failed
    assert all(s.status == "crashed" and s.seconds is None for s in failed)


def test_a_second_run_goes_on_where_the_first_ended(tmp_path):
    first = Machine()
    run(tmp_path / "r", first, rounds=2)
    second = Machine()
    _, winner, _ = run(tmp_path / "r", second, rounds=20)
    assert not {name for name, _ in first.asked[1:]} & {name for name, _ in second.asked}
    assert "unroll=2" in winner.implementation
    again = Machine()
    run(tmp_path / "r", again, rounds=2, again=True)
    assert {name for name, _ in again.asked[1:]} & {name for name, _ in first.asked}


def test_a_kernel_that_cannot_be_measured_is_left_alone(tmp_path):
    task, winner, _ = run(tmp_path / "r", Machine(fails=["nn.matmul"]), rounds=1)
    assert winner is None
    assert task.is_done


def test_an_interrupted_run_keeps_what_it_measured(cache, monkeypatch):
    machine = Machine(interrupts_at=8)
    monkeypatch.setattr("weft.tune.here.MeasuringProcess", lambda: _Context(machine))
    report = tune(weft.parse(PROGRAM), cache / "r", budget=60, **QUICK)
    assert report.interrupted
    assert report.tuned
    with TuningStore(cache / "r") as store:
        assert len(store.samples()) >= 6


class _Context:
    def __init__(self, machine):
        self.machine = machine

    def __enter__(self):
        return self.machine

    def __exit__(self, *_):
        return None


def test_compilations_take_the_winners(cache, monkeypatch):
    model = weft.parse(PROGRAM)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, shape).astype("float32") for shape in ((9, 20), (33, 20))]
    expected = weft.compile(model, threads=1)(*arrays)
    monkeypatch.setattr("weft.tune.here.MeasuringProcess", lambda: _Context(Machine()))
    report = tune(model, budget=3, **QUICK)
    best = next(k for k in report.tuned if k.text.startswith("nn.dense"))
    assert "unroll=2" in best.fastest
    assert report.gain > 1
    assert best.fastest in report.table()
    module = weft.compile(model, threads=1)
    names = {kernel.implementation for kernel in module.profile(*arrays, repeat=1).kernels}
    assert best.fastest in names
    assert best.fastest in module.explain()
    np.testing.assert_allclose(module(*arrays), expected, rtol=1e-5)
    other = {k.implementation for k in weft.compile(model, threads=2).profile(
        *arrays, repeat=1).kernels}
    assert best.fastest not in other


def test_models_are_tuned_on_this_machine(cache, capsys):
    (cache / "m.ir").write_text(PROGRAM.replace("nn.softmax(%0)", "%0"))
    with pytest.raises(SystemExit) as end:
        main(["tune", str(cache / "m.ir"), "--records", str(cache / "r.sqlite"), "--budget", "4",
              "--threads", "1"])
    captured = capsys.readouterr()
    assert end.value.code == 0
    assert "nn.dense + nn.relu" in captured.out
    assert "1 of 1 kernels tuned" in captured.out
    assert "kernels" in captured.err
    with pytest.raises(SystemExit):
        main(["records", "merge", str(cache / "all"), str(cache / "r.sqlite")])
    assert "measured points" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["records", "show", "--json", str(cache / "all")])
    assert isinstance(json.loads(capsys.readouterr().out), list)


def test_the_report_is_json_on_demand(cache, capsys, monkeypatch):
    monkeypatch.setattr("weft.tune.here.MeasuringProcess", lambda: _Context(Machine()))
    (cache / "m.ir").write_text(PROGRAM)
    with pytest.raises(SystemExit):
        main(["tune", str(cache / "m.ir"), "--records", str(cache / "r"), "--budget", "2",
              "--threads", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["gain"] > 1
    assert "nn.dense + nn.relu" in {k["text"] for k in found["tuned"]}


def test_measured_kernels_are_lowered_with_the_tir_passes_of_the_user(cache):
    seen = []

    def observed(func: PrimFunc) -> PrimFunc:
        seen.append(func.name)
        return func

    tune(weft.parse(PROGRAM), cache / "r", budget=0.5, tir_passes=[observed], **QUICK)
    assert seen


def test_other_machines_cannot_be_timed(tmp_path):
    with pytest.raises(TargetError, match="cannot tune for another machine"):
        tune(weft.parse(PROGRAM), tmp_path / "r", target="llvm -mcpu=haswell")


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "r").write_text("something")
    with pytest.raises(OptionError, match="not a database"):
        tune(weft.parse(PROGRAM), tmp_path / "r")
    assert weft.autotune is tune
