"""Lanes may run in any order that their calls wait for each other allow: nothing changes."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.compiler.devices.graphs import large_graph
from tests.unit.compiler.devices.placing import compiled_at_random, within
from weft.runtime.calls import KernelCall
from weft.runtime.device import Device
from weft.runtime.devices.sim.call import SimCall
from weft.runtime.devices.sim.program import SimRun
from weft.runtime.devices.sim.segments import blocks_of, worker_of_call

pytestmark = pytest.mark.usefixtures("cache_of_module")


class _Unpaused:
    """Stands for a ``SimCall`` whose links take no time."""

    def pause(self, until):
        pass


def random_order(calls, rng):
    """The calls in an order that lanes and waits allow: often far from that of the program."""
    done, order = set(), []
    lanes = {}
    for at, call in enumerate(calls):
        lanes.setdefault(worker_of_call(call), []).append(at)
    favourite = rng.choice(sorted(lanes, key=str))
    while len(order) < len(calls):
        ready = [lane[0] for lane in lanes.values() if lane and set(calls[lane[0]].waits) <= done]
        assert ready, "no call can run"
        mine = [at for at in ready if worker_of_call(calls[at]) == favourite]
        at = rng.choice(mine or ready)
        lanes[worker_of_call(calls[at])].pop(0)
        done.add(at)
        order.append(at)
    return order


def run_in_order(launch, values, order):
    outputs = launch.new_outputs(values)
    memory = launch.memory_of(values, outputs)
    memory.acquire(launch.arena_bytes)
    for device, arena in memory.arenas.items():  # what is read before it is written shows
        np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * launch.arena_bytes.get(device, 0))
                              .from_address(arena))[:] = 0xFF
    run = SimRun(launch.launcher.program, memory, launch.sizes, [])
    for at in order:
        call = run._calls[at]
        if call.symbol == "device_copy":
            run._copy(call, _Unpaused())
        else:
            run._timed(call)
    memory.release()
    return outputs


@pytest.mark.parametrize("seed", range(3))
def test_any_order_gives_the_same(seed):
    rng = random.Random(seed)
    values = [np.random.default_rng(seed + n).standard_normal((16, 16)).astype(np.float32)
              for n in range(2)]
    mod = compiled_at_random(weft.parse(large_graph(seed, 16, 40)), 2 + seed % 2, seed,
                             opt_level=0)
    expected = mod(*values)
    for _ in range(25):
        (output,) = run_in_order(mod.launch_for(values), values,
                                 random_order(mod.manifest.steps, rng))
        assert output.tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", range(2))
def test_any_order_gives_the_same_at_symbolic_sizes(seed):
    """Where slots stand for offsets, calls wait for those that use the same slot."""
    rng = random.Random(seed)
    text = large_graph(seed, 16, 25).replace("(16, 16)", "(n, n)")
    mod = compiled_at_random(weft.parse(text), 2, seed, opt_level=0)
    values = [np.random.default_rng(seed + n).standard_normal((7, 7)).astype(np.float32)
              for n in range(2)]
    expected = mod(*values)
    at_sizes = mod.launch_for(values)
    for _ in range(15):
        (output,) = run_in_order(at_sizes, values, random_order(mod.manifest.steps, rng))
        assert output.tobytes() == expected.tobytes()


@st.composite
def lane_graphs(draw):
    """Calls on a few devices, each waiting for some calls of other devices before it."""
    calls = []
    for at in range(draw(st.integers(1, 30))):
        device = Device("sim", draw(st.integers(0, 3)))
        others = [n for n in range(at) if calls[n].device != device]
        waits = draw(st.lists(st.sampled_from(others), unique=True, max_size=3)) if others else []
        calls.append(KernelCall(f"k{at}", (), device=device, waits=tuple(sorted(waits))))
    return calls


class _Recorder:
    """Runs segments by noting them; ``failing`` raises in some."""

    def __init__(self, calls, blocks, failing=()):
        self.calls, self.blocks, self.failing = calls, blocks, set(failing)
        self.done, self.lock, self.busy = [], threading.Lock(), set()

    def run_segment(self, segment, call):
        with self.lock:
            assert segment.worker not in self.busy
            self.busy.add(segment.worker)
            for at in segment.calls:
                assert all(before in self.done for before in self.calls[at].waits)
                self.done.append(at)
        if self.failing.intersection(segment.calls):
            with self.lock:
                self.busy.discard(segment.worker)
            raise ValueError(segment.calls[0])
        with self.lock:
            self.busy.discard(segment.worker)

    def next_block(self, after):
        return after + 1 if after + 1 < len(self.blocks) else None


@given(lane_graphs())
@settings(max_examples=100, deadline=None)
def test_calls_run_once_and_after_what_they_wait_for(calls):
    blocks = blocks_of(calls, ())
    recorder = _Recorder(calls, blocks)
    within(30, SimCall(blocks, recorder).run)
    assert sorted(recorder.done) == list(range(len(calls)))
    for lane in {worker_of_call(call) for call in calls}:
        own = [at for at in recorder.done if worker_of_call(calls[at]) == lane]
        assert own == sorted(own)


@given(lane_graphs(), st.data())
@settings(max_examples=50, deadline=None)
def test_a_failure_ends_the_call(calls, data):
    failing = data.draw(st.lists(st.integers(0, len(calls) - 1), min_size=1, max_size=3))
    blocks = blocks_of(calls, ())
    recorder = _Recorder(calls, blocks, failing)
    with pytest.raises(ValueError, match=r"\d") as caught:
        within(30, SimCall(blocks, recorder).run)
    assert any("in call" in note for note in caught.value.__notes__)
    assert not recorder.busy
