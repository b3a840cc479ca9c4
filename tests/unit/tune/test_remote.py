"""Tuning on the workers of an executor."""

from __future__ import annotations

import pickle
from concurrent.futures import Future

import pytest

import weft
from weft.runtime.executors import Executor, Worker
from weft.support.errors import OptionError, WorkerError
from weft.tune import Sample, TuningStore, Winner, remote, tune
from weft.tune.here import Effort, Share

PROGRAM = """def @main(%x: Tensor[(9, 20), float32], %w: Tensor[(33, 20), float32]) {
  nn.relu(nn.dense(%x, %w))
}"""

SENT = pickle.dumps(weft.parse(PROGRAM))


def worker(name, cpu="one"):
    return Worker(name, "", cpu, frozenset(), 1, "", "")


class Fake(Executor):
    """Answers each call with what a worker of its name would find."""

    def __init__(self, *workers, lost=()):
        self._workers, self.lost, self.calls = workers, lost, []

    def workers(self):
        return self._workers

    def cancel(self, futures):
        pass

    def run(self, call):
        self.calls.append(call)
        future: Future = Future()
        number = len(self.calls)
        if number in self.lost:
            future.set_exception(WorkerError("the worker ended"))
        else:
            future.set_result(remote.Part(
                (Sample("cpu", f"k{number}", 1, "a", "", 1.0, 2.0),),
                (Winner("cpu", "k", f"from {number}", "", 1.0 / number, 2.0, 1),), (), 3, 1.0, ()))
        return future


def tuned(executor, path):
    return tune(weft.parse(PROGRAM), path, budget=5, executor=executor)


def test_workers_of_one_kind_share_the_kernels(tmp_path):
    executor = Fake(worker("a"), worker("b"), worker("c", "another"))
    report = tuned(executor, tmp_path / "r")
    assert [call.args[1] for call in executor.calls] == [Share(0, 2), Share(1, 2), Share(0, 1)]
    assert [call.worker for call in executor.calls] == ["a", "b", "c"]
    assert report.kernels == 3
    with TuningStore(tmp_path / "r") as store:
        assert len(store.samples()) == 3
        assert store.winner("cpu", "k", 1).implementation == "from 3"  # which gains the most


def test_a_watched_search_shows_each_answer_and_goes_on_from_it(tmp_path):
    executor, seen = Fake(worker("a"), worker("b")), []
    report = tune(weft.parse(PROGRAM), tmp_path / "r", budget=60, executor=executor,
                  watch=seen.append)
    # Each answer of the fake has one sample, so that the second one has nothing new.
    assert len(executor.calls) == 4
    assert [call.args[2].seconds for call in executor.calls] == [30.0] * 4
    assert [call.args[2].seed for call in executor.calls] == [0, 0, 1, 1]
    assert [len(call.args[5].samples) for call in executor.calls] == [0, 0, 1, 1]
    assert len(seen) == 4
    assert seen[-1].spent == report.spent == 2.0
    assert [one.kernels for one in seen] == [3] * 4


def test_a_lost_worker_costs_its_part(tmp_path):
    report = tuned(Fake(worker("a"), worker("b"), lost=(1,)), tmp_path / "r")
    assert "a worker was lost" in report.notes[0]
    with TuningStore(tmp_path / "r") as store:
        assert len(store.samples()) == 1
    with pytest.raises(WorkerError, match="the worker ended"):
        tuned(Fake(worker("a"), lost=(1,)), tmp_path / "r")
    with pytest.raises(WorkerError, match="no workers to tune on"):
        tuned(Fake(), tmp_path / "r")


@pytest.mark.parametrize("option", [{"again": True}, {"target": "llvm"}, {"passes": ["dce"]}],
                         ids=lambda o: next(iter(o)))
def test_options_that_workers_do_not_take_are_refused(tmp_path, option):
    with pytest.raises(OptionError, match="do not take these options"):
        tune(weft.parse(PROGRAM), tmp_path / "r", executor=Fake(worker("a")), **option)


def test_a_part_is_tuned_where_it_runs(tmp_path):
    effort = Effort(0.2, point_seconds=1e-3)
    found = remote.tune_part(SENT, Share(0, 1), effort, 3, {"threads": 1})
    more = remote.tune_part(SENT, Share(0, 1), effort, 3, {"threads": 1}, found)
    assert len(more.samples) >= len(found.samples)
    assert found.kernels == 1
    assert "nn.dense.cpu.gemm" in {sample.implementation for sample in found.samples}
    other = remote.tune_part(SENT, Share(1, 2), effort, 3, {"threads": 1})
    assert not other.samples
