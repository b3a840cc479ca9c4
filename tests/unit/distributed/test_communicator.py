import json
import subprocess
import sys
import time

import numpy as np
import pytest

import weft
from tests.unit.distributed.exchanges import check
from weft.distributed import communicator, init, rank, run_local, world_size
from weft.distributed.communicator import health
from weft.distributed.communicator.cpu_time import cpu_seconds
from weft.distributed.communicator.current import CURRENT
from weft.eager.functions.random import own_generator
from weft.support.errors import DistributedError, InvalidInputError, OptionError


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_local_ranks_exchange(size, deterministic):
    run_local(size, check, deterministic=deterministic)


def test_sums_are_taken_in_the_order_of_ranks():
    rng = np.random.default_rng(0)
    each = [rng.standard_normal(1001).astype(np.float32) * 10.0 ** (3 * r) for r in range(4)]
    expected = ((each[0] + each[1]) + each[2]) + each[3]
    assert (expected != each[0] + ((each[1] + each[2]) + each[3])).any()
    found = run_local(4, lambda world: world.all_reduce(each[world.rank].copy()),
                      deterministic=True)
    assert all((f == expected).all() for f in found)


def test_ranks_have_their_own_communicator():
    assert run_local(3, lambda world: (rank(), world_size(), communicator() is world)) == [
        (r, 3, True) for r in range(3)]
    assert (rank(), world_size()) == (0, 1)


def test_ranks_within_a_rank_leave_it_its_communicator():
    def work(world):
        run_local(1, lambda _: None)
        with CURRENT.use(world):
            pass
        return communicator() is world

    assert run_local(2, work) == [True, True]


class Slow:
    """A board whose reads fail once, as on a busy machine."""

    beats = True

    def __init__(self, failures):
        self.failures, self.lines = failures, []

    def publish(self, line):
        self.lines.append(line)

    def read(self):
        if len(self.lines) > 1 and self.failures:
            self.failures -= 1
            raise TimeoutError
        return {}


def test_signs_of_life_go_on_after_a_late_answer(monkeypatch):
    monkeypatch.setattr(health, "BEAT_EVERY", 0.01)
    board = Slow(1)
    signs = health.Health(board, 0, 2)
    until = time.monotonic() + 20
    while len(board.lines) < 6 and time.monotonic() < until:
        time.sleep(0.01)
    signs.stop()
    assert len(board.lines) >= 6
    gone = Slow(100)
    health.Health(gone, 0, 2)._thread.join(20)
    assert len(gone.lines) == 3


def test_the_time_of_children_counts_before_and_after_their_end():
    inner = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    before = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        while_it_runs = cpu_seconds()
        child.communicate("\n", timeout=30)
    assert while_it_runs - before > 0.3
    assert cpu_seconds() - before > 0.3


class Told:
    """A board on which another rank says what the test wants."""

    beats = True

    def __init__(self):
        self.cpu = 0.0

    def publish(self, line):
        pass

    def read(self):
        return {1: json.dumps({"beat": time.monotonic(), "cpu": self.cpu, "operation": 3,
                               "in": None, "at": "here"})}


def test_a_rank_whose_children_end_does_not_hang(monkeypatch):
    monkeypatch.setattr(health, "IDLE", 0.0)
    board = Told()
    signs = health.Health(board, 0, 2)
    signs.stop()
    for board.cpu in (5.0, 1.0, 3.0):  # a child that is not waited for takes its time with it
        signs._read = time.monotonic(), board.read()
        signs.check("all_reduce", 0.0)
        time.sleep(0.001)
    with pytest.raises(DistributedError, match="rank 1 hangs"):
        signs.check("all_reduce", 0.0)


def test_an_error_of_a_rank_ends_the_others():
    def work(world):
        if world.rank == 1:
            raise ValueError("a bug")
        world.barrier()

    start = time.monotonic()
    with pytest.raises(DistributedError, match="rank 1 failed: ValueError: a bug") as caught:
        run_local(3, work)
    assert isinstance(caught.value.__cause__, ValueError)
    assert time.monotonic() - start < 20


def test_a_late_rank_is_named():
    def work(world):
        if world.rank == 2:
            time.sleep(2.5)
        world.barrier()

    with pytest.raises(DistributedError, match="rank 2 did not come"):
        run_local(3, work, timeout=0.5)


def test_arguments_are_checked():
    world = communicator()
    with pytest.raises(InvalidInputError, match="unknown reduction"):
        world.all_reduce(np.ones(3), "mean")
    with pytest.raises(InvalidInputError, match="unknown rank"):
        world.broadcast(np.ones(3), 1)
    with pytest.raises(DistributedError, match="do not divide"):
        run_local(2, lambda world: world.reduce_scatter(np.ones(3)))
    with pytest.raises(OptionError, match="unknown back end"):
        init("nccl")


def test_an_environment_without_sense_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="RANK is not a number"):
        init()


def test_each_rank_draws_from_a_generator_of_its_own():
    def draw(world=None):
        weft.manual_seed(3)
        return [weft.rand(2).tolist() for _ in range(100)]

    expected, outside = draw(), weft.get_rng_state().numpy()
    assert all(found == expected for found in run_local(4, draw))
    np.testing.assert_array_equal(weft.get_rng_state().numpy(), outside)
    first, second = run_local(2, lambda world: weft.rand(2).tolist())
    assert first == second == weft.rand(2).tolist()


def test_a_generator_within_that_of_a_rank_gives_it_back():
    with own_generator(weft.Generator(1).get_state()):
        weft.rand(2)
        before = weft.get_rng_state().numpy()
        with own_generator(weft.Generator(2).get_state()):
            weft.rand(2)
        np.testing.assert_array_equal(weft.get_rng_state().numpy(), before)
