"""Whole programs on an emulated GPU, against the CPU target."""

import ctypes
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST

MLP = """def @main(%x: Tensor[(8, 32), float32], %w: Tensor[(16, 32), float32]) {
  let %y = nn.relu(add(%x, 1f));
  (multiply(%y, %x), nn.max_pool2d(reshape(%w, newshape=[1, 1, 16, 32]), pool_size=[2, 2]))
}"""
# unique has a result whose size depends on the data.
MIXED = """def @main(%x: Tensor[(16), int64]) {
  let %s = multiply(%x, 3i64);
  let %u = unique(%s, is_sorted=True);
  (%u.0, add(%s, 1i64))
}"""


@pytest.fixture(autouse=True)
def _emulated():
    with weft.config(cuda="emulate"):
        yield


def compiled(text, **options):
    mod = weft.parse(text)
    return weft.compile(mod, target="cuda", **options), weft.compile(mod)


def arrays(module, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(spec.concrete_shape).astype(spec.dtype)
            for spec in module.inputs]


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_program_runs_on_the_device():
    on_gpu, on_cpu = compiled(MLP)
    assert all(step.device != HOST for step in on_gpu.manifest.steps)
    values = arrays(on_cpu)
    same(on_gpu(*values), on_cpu(*values))
    other = arrays(on_cpu, 1)
    same(on_gpu(*other), on_cpu(*other))


def test_outputs_are_written_to_the_arrays_of_the_caller():
    on_gpu, on_cpu = compiled(MLP)
    values = arrays(on_cpu)
    out = tuple(np.empty_like(array) for array in on_cpu(*values))
    assert on_gpu(*values, out=out) == out
    same(out, on_cpu(*values))
    run = on_gpu.bind(*values, out=out)
    values[0][...] = 0
    run()
    same(out, on_cpu(*values))


def test_exported_programs_run(tmp_path):
    on_gpu, on_cpu = compiled(MLP)
    values = arrays(on_cpu)
    on_gpu.export(tmp_path / "net.weft")
    loaded = weft.load(tmp_path / "net.weft")
    same(loaded(*values), on_gpu(*values))


def test_branches_read_their_conditions_on_the_host():
    text = """def @main(%x: Tensor[(8), float32]) {
      let %t = sum(%x);
      let %c = greater(%t, 0f);
      if (%c) { multiply(%x, 2f) } else { negative(%x) }
    }"""
    on_gpu, on_cpu = compiled(text)
    assert any(step.symbol == DEVICE_COPY for step in on_gpu.manifest.steps)
    for sign in (1, -1):
        x = np.full(8, sign, np.float32)
        np.testing.assert_allclose(on_gpu(x), on_cpu(x))


def _has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(_has_driver(), reason="this machine has a CUDA driver")
def test_without_a_driver_calls_say_so():
    with weft.config(cuda="driver"):
        module = weft.compile(weft.parse(MLP), target="cuda")
    with pytest.raises(weft.WeftError, match="no CUDA driver") as raised:
        module(*arrays(module))
    assert "WEFT_CUDA=emulate" in (raised.value.help or "")


def test_a_profile_has_a_time_for_each_step(tmp_path):
    on_gpu, _ = compiled(MIXED)
    profile = on_gpu.profile(np.arange(16), repeat=2)
    assert [step.call.op for step in profile.steps] == [
        step.op for step in on_gpu.manifest.steps]
    assert all(step.seconds > 0 for step in profile.steps)
    assert "unique" in profile.table()
    profile.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert lanes == {"cpu:0", "cuda:0 stream 0"}


def test_threads_call_one_module_at_once():
    on_gpu, on_cpu = compiled(MLP)
    values = [arrays(on_cpu, seed) for seed in range(4)]
    expected = [on_cpu(*one) for one in values]

    def call(number):
        for _ in range(3):  # the second call records a graph
            with weft.config(cuda="emulate"):
                same(on_gpu(*values[number]), expected[number])
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(4)))


def test_outputs_must_not_overlap_inputs():
    on_gpu, on_cpu = compiled(MIXED.replace("(%u.0, add(%s, 1i64))", "add(%s, 1i64)"))
    x = np.arange(16)
    with pytest.raises(weft.WeftError, match="shares memory with input"):
        on_gpu(x, out=x)
    device = weft.DeviceArray.from_numpy(x)
    with pytest.raises(weft.WeftError, match="shares memory with input"):
        on_gpu(device, out=device)
    with pytest.raises(weft.WeftError, match="without a copy"):
        on_gpu.bind(np.arange(32)[::2])
    same([on_gpu(x)], [on_cpu(x)])


def test_a_damaged_artifact_is_refused(tmp_path):
    on_gpu, _ = compiled(MLP)
    path = tmp_path / "net.weft"
    on_gpu.export(path)
    data = bytearray(path.read_bytes())
    at = data.find(b".visible .entry")
    data[at + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(weft.WeftError, match=r"checksum|damaged"):
        weft.load(path)
