"""Programs on simulated devices: links, threads, errors, interrupts, artifacts, options."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft
from tests.unit.compiler.devices.placing import compiled_at_random, sims, within
from weft.support.errors import InternalError, OptionError, TargetError, UnsupportedModelError

pytestmark = pytest.mark.usefixtures("cache_of_module")

TOWERS = """
def @main(%x: Tensor[(32, 32), float32], %y: Tensor[(32, 32), float32]) {
  let %a = nn.relu(nn.dense(%x, %y));
  let %b = tanh(nn.dense(%y, %x));
  add(nn.dense(%a, %b), nn.softmax(%a))
}"""
SPLIT = {"a": "sim:0", "b": "sim:1"}


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2)]


@pytest.fixture(scope="module")
def expected(values):
    # Borders of regions are borders of kernels, so the reference has them, too.
    return weft.compile(TOWERS_MODULE, devices=["sim:0"], placement=SPLIT,
                        soft_placement=True)(*values)


TOWERS_MODULE = weft.parse(TOWERS)


def towers(**properties):
    return weft.compile(TOWERS_MODULE, devices=sims(2, **properties), placement=SPLIT)


def devices_of(mod):
    return {str(call.device) for call in mod.manifest.steps if call.symbol != "device_copy"}


def copies_of(mod):
    return [call for call in mod.manifest.steps if call.symbol == "device_copy"]


def test_names_of_tensors_place_them(values, expected):
    mod = towers()
    assert devices_of(mod) == {"sim:0", "sim:1"}
    assert mod(*values).tobytes() == expected.tobytes()


def test_one_copy_per_buffer_and_destination():
    found = [(call.args[0], call.source, call.device) for call in copies_of(towers())]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("alias", ["reshape(%x, newshape=[4, 1, 2])", "copy(%x)", "%x",
                                   'annotation.on_device(%x, device="sim:0")'])
def test_results_that_alias_an_input_stay_beside_kernels(alias):
    """What stays of ``device_copy`` within a memory is a kernel, and no transfer of the lane."""
    model = weft.parse(f"""
    def @main(%x: Tensor[(4, 2), float32], %y: Tensor[(64, 66), float32]) {{
      let %u = {alias};
      let %b = maximum(%y, 0.5f);
      (%u, %b, tanh(%b))
    }}""")
    x, y = np.ones((4, 2), np.float32), np.full((64, 66), 0.75, np.float32)
    for devices in (["cpu", "sim:0"], ["sim:0", "cpu"]):
        mod = weft.compile(model, devices=devices, placement={"u": "sim:0"})
        assert all(call.source != call.device for call in copies_of(mod))
        for one, other in zip(mod(x, y), weft.compile(model)(x, y), strict=True):
            assert one.tobytes() == other.tobytes()


def test_copies_take_the_time_of_their_link(values):
    mod = towers(latency=3e-3, bandwidth=1e6)
    for step in mod.profile(*values, repeat=1).steps:
        if step.call.symbol == "device_copy":
            assert step.seconds >= 3e-3 + step.call.bytes_moved / 1e6


def test_copies_run_beside_kernels(values):
    """Four copies of 20 ms on three links: less than one after the other, on an idle machine."""
    mod = towers(latency=2e-2)
    mod(*values)

    def seconds() -> float:
        start = time.perf_counter()
        mod(*values)
        return time.perf_counter() - start

    assert any(seconds() < 0.9 * 2e-2 * len(copies_of(mod)) for _ in range(50))


def test_devices_with_threads_of_their_own(values, expected):
    mod = towers(threads=2)
    assert mod(*values).tobytes() == expected.tobytes()


def test_many_python_threads_call_one_module(values, expected):
    mod = towers()
    wrong = []

    def work():
        wrong.extend(1 for _ in range(20) if mod(*values).tobytes() != expected.tobytes())

    def run():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    within(60, run)
    assert not wrong


@pytest.mark.parametrize("where", [0, -1])
def test_the_first_error_ends_the_call_and_names_the_device(values, expected, where):
    mod = towers()
    functions = mod.launcher.program.functions
    at = sorted(functions)[where]
    kept, functions[at] = functions[at], _failing
    with pytest.raises(InternalError, match="no luck") as caught:
        within(30, lambda: mod(*values))
    assert f"call {at} on sim:" in str(caught.value)
    functions[at] = kept
    assert within(30, lambda: mod(*values)).tobytes() == expected.tobytes()


def _failing(*_):
    raise InternalError("no luck")


def test_an_interrupt_ends_the_call_and_the_module_works_on(values):
    mod = towers(latency=30.0)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mod(*values)
    assert time.perf_counter() - start < 10
    timer.join()
    assert not any(_in_use(pool) for pool in mod.launcher.memories.pools.values())


def _in_use(pool):
    """Whether a call has not returned its arena."""
    count = len(pool._blocks)
    taken = [pool.take(0) for _ in range(count)]
    fresh = len(pool._blocks) > count
    for arena in taken:
        pool.give_back(arena)
    return fresh


def test_profiles_have_a_lane_for_each_device_and_link(values, tmp_path):
    profile = towers().profile(*values, repeat=2)
    path = tmp_path / "trace.json"
    profile.chrome_trace(path)
    lanes = {event["args"]["name"] for event in json.loads(path.read_text())["traceEvents"]
             if event["ph"] == "M"}
    assert {"sim:0", "sim:1", "cpu:0 -> sim:0", "cpu:0 -> sim:1"} <= lanes
    starts = [step.start for step in profile.steps]
    assert starts == sorted(starts)


def test_artifacts_run_on_their_devices(values, expected, tmp_path):
    mod = towers()
    mod.export(tmp_path / "towers.weft")
    loaded = weft.load(tmp_path / "towers.weft")
    assert loaded.manifest.devices == mod.manifest.devices
    assert loaded(*values).tobytes() == expected.tobytes()
    assert pickle.loads(pickle.dumps(mod))(*values).tobytes() == expected.tobytes()


def test_results_are_written_to_given_memory(values, expected):
    mod = towers()
    out = np.empty_like(expected)
    run = mod.bind(*values, out=out)
    for _ in range(2):
        out[:] = 0
        run()
        assert out.tobytes() == expected.tobytes()


def test_symbolic_sizes_on_two_devices():
    text = """
    def @main(%x: Tensor[(n, 16), float32], %w: Tensor[(16, 16), float32]) {
      let %a = nn.relu(nn.dense(%x, %w));
      let %b = tanh(nn.dense(%x, %w));
      (add(%a, %b), nn.softmax(%a))
    }"""
    model = weft.parse(text)
    mod = weft.compile(model, devices=sims(2), placement=SPLIT)
    one = weft.compile(model, devices=["sim:0"], placement=SPLIT, soft_placement=True)
    assert mod.general is not None
    rng = np.random.default_rng(1)
    w = rng.standard_normal((16, 16)).astype(np.float32)
    for size in (1, 20, 1):
        x = rng.standard_normal((size, 16)).astype(np.float32)
        for found, wanted in zip(mod(x, w), one(x, w), strict=True):
            assert found.tobytes() == wanted.tobytes()
    for left, right in itertools.pairwise(mod.launcher.memories.pools.values()):
        assert left is not right


@pytest.mark.parametrize("seed", range(2))
def test_state_stays_on_a_device(seed):
    model = weft.parse("""
    def @main(%past: Tensor[(64, 8), float32], %x: Tensor[(64, 8), float32]) {
      let %next = add(%past, tanh(%x));
      (%next, nn.relu(subtract(%next, %x)))
    }""")
    names = [port.name for port in weft.compile(model).outputs]
    options = {"state": {names[0]: "past"}}
    one, several = weft.compile(model, **options), compiled_at_random(model, 2, seed, **options)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        x = rng.standard_normal((64, 8)).astype(np.float32)
        assert several(x).tobytes() == one(x).tobytes()
        assert several.state["past"].tobytes() == one.state["past"].tobytes()


def test_a_wrong_placement_of_symbolic_sizes_is_an_error():
    text = TOWERS.replace("(32, 32)", "(n, n)")
    with pytest.raises(TargetError, match="sim:7"):
        weft.compile(weft.parse(text), devices=sims(2), placement={"a": "sim:7"})


def test_memory_is_checked_at_the_sizes_of_a_call():
    text = TOWERS.replace("(32, 32)", "(n, n)")
    mod = weft.compile(weft.parse(text), devices=sims(2, memory=1 << 20), placement=SPLIT)
    small, large = np.ones((16, 16), np.float32), np.ones((600, 600), np.float32)
    mod(small, small)
    with pytest.raises(TargetError, match="more memory than sim:0"):
        mod(large, large)


def test_too_little_memory_is_an_error_with_the_peaks():
    with pytest.raises(TargetError, match="sim:1") as caught:
        weft.compile(TOWERS_MODULE, devices=[weft.SimDevice(0), weft.SimDevice(1, memory=9000)],
                     placement=SPLIT)
    assert "sim:0: " in str(caught.value)
    assert "9000 bytes" in str(caught.value)


def test_little_memory_lets_copies_wait(values):
    """Copies come late where memory is short, and the results stay the same."""
    model = weft.parse("""
    def @main(%x: Tensor[(32, 32), float32], %y: Tensor[(32, 32), float32],
              %z: Tensor[(32, 32), float32]) {
      nn.softmax(add(nn.softmax(add(nn.softmax(nn.softmax(%x)), %y)), %z))
    }""")
    free = weft.compile(model, devices=sims(1))
    peak = free.manifest.arenas[0].nbytes
    mod = weft.compile(model, devices=sims(1, memory=peak - 1))
    assert mod.manifest.arenas[0].nbytes < peak
    arrays = [*values, values[0] * 2]
    assert mod(*arrays).tobytes() == free(*arrays).tobytes()


@pytest.mark.parametrize(("options", "error", "text"), [
    ({"devices": []}, OptionError, "a list of devices"),
    ({"devices": "sim:0"}, OptionError, "a list of devices"),
    ({"devices": ["sim:0", "sim:0"]}, OptionError, "twice"),
    ({"devices": [3]}, OptionError, "not a device"),
    ({"devices": ["cpu:1"]}, TargetError, "cpu:1"),
    ({"devices": ["cuda"]}, TargetError, "cannot run on cuda:0"),
    ({"devices": ["sim:0"], "target": "cuda"}, TargetError, "kernels for CPUs"),
    ({"placement": "cost"}, OptionError, "several devices"),
    ({"devices": ["sim:0"], "placement": "best"}, OptionError, "placement"),
    ({"devices": ["sim:0"], "placement": {"a": "sim:7"}}, TargetError, "sim:7"),
    ({"devices": ["sim:0"], "placement": {"c": "sim:0"}}, weft.WeftError, "no tensor 'c'"),
])
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        weft.compile(TOWERS_MODULE, **options)


@pytest.mark.parametrize("wrong", [
    {"number": -1}, {"threads": 0}, {"memory": 0}, {"bandwidth": 0}, {"latency": -1.0},
    {"latency": float("nan")}, {"bandwidth": "fast"}])
def test_wrong_devices(wrong):
    with pytest.raises(OptionError):
        weft.SimDevice(**{"number": 0, **wrong})


def test_programs_for_the_virtual_machine_are_refused():
    model = weft.parse("""
    def @f(%n: int32) -> int32 {
      if (less(%n, 1)) { 1 } else { multiply(%n, @f(subtract(%n, 1))) }
    }
    def @main(%n: int32) { @f(%n) }""")
    with pytest.raises(UnsupportedModelError, match="one device"):
        weft.compile(model, devices=["sim:0", "sim:1"])


def test_measured_times_place_steps(values, capsys):
    with weft.config(explain=("placement",)):
        mod = weft.compile(TOWERS_MODULE, devices=sims(2), placement="profile")
    costs = [line.split()[2:] for line in capsys.readouterr().err.splitlines() if "dense" in line]
    assert any(line[1] == "1" and float(line[3]) >= 1 for line in costs if len(line) == 7)
    reference = weft.compile(TOWERS_MODULE, devices=["sim:0"])
    assert mod(*values).tobytes() == reference(*values).tobytes()


def test_parts_of_a_program_run_on_their_devices(values):
    mod = towers()
    reference = weft.compile(TOWERS_MODULE, devices=["sim:0"], placement=SPLIT,
                             soft_placement=True)
    for fetches, feeds in ((["b"], {"x": values[0], "y": values[1]}),
                           (["output"], {"a": values[0], "b": values[1]})):
        found, wanted = mod.run(fetches, feeds), reference.run(fetches, feeds)
        assert found[0].tobytes() == wanted[0].tobytes()


@pytest.mark.slow
def test_files_are_compiled_again_in_a_new_process(tmp_path, values, expected):
    """A program of symbolic sizes must not start from the cache as one for one device."""
    path = tmp_path / "towers.ir"
    path.write_text(TOWERS.replace("(32, 32)", "(n, n)"), encoding="utf-8")
    os.utime(path, (1e9, 1e9))
    script = (f"import numpy as np, weft; mod = weft.compile({str(path)!r}, devices=['sim:0', "
              f"'sim:1'], placement={SPLIT!r}); x = np.ones((4, 4), np.float32); "
              "print(type(mod(x, x)).__name__, len(mod.manifest.devices))")
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              check=False, timeout=100)
        assert done.stdout.split() == ["ndarray", "2"], done.stderr


def test_c_programs_are_refused(tmp_path):
    with pytest.raises(TargetError, match="C program"):
        towers().export(tmp_path / "net", format="c")


def test_a_forked_child_has_lanes_of_its_own(values, expected):
    mod = towers()
    mod(*values)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        good = mod(*values).tobytes() == expected.tobytes()
        os.write(write, b"y" if good else b"n")
        os._exit(0)
    assert os.read(read, 1) == b"y"
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)


def test_kernels_are_logged_with_their_times(values, expected, capsys):
    with weft.config(debug=2):
        mod = towers()
        assert mod(*values).tobytes() == expected.tobytes()
    lines = [line for line in capsys.readouterr().err.splitlines() if "kernel" in line]
    assert sum("nn.softmax" in line for line in lines) == 1
    assert sum("device_copy" in line for line in lines) == len(copies_of(mod))
