"""Calling compiled modules."""

from __future__ import annotations

import gc
import json
import threading
import weakref

import numpy as np
import pytest

from tests.unit.runtime.programs import SIZE, expected, module, opened, sample
from weft.runtime.devices.cpu.rates import measure_fma_peak
from weft.runtime.executable import Executable
from weft.support import trace
from weft.support.config import config
from weft.support.errors import InternalError, InvalidInputError, OptionError


@pytest.fixture(scope="module")
def mod() -> Executable:
    return module()


def test_by_position_by_name_and_as_onnx_runtime(mod: Executable) -> None:
    x = sample()
    np.testing.assert_array_equal(mod(x), expected(x))
    np.testing.assert_array_equal(mod(x=x), expected(x))
    for names in (None, ["y"], "y"):
        (y,) = mod.run(names, {"x": x})
        np.testing.assert_array_equal(y, expected(x))
    assert mod.run([], {"x": x}) == []


def test_signature_is_readable(mod: Executable) -> None:
    assert [str(s) for s in mod.inputs] == [f"x: Tensor[({SIZE},), float32]"]
    assert mod.outputs[0].name == "y"
    assert f"(x: Tensor[({SIZE},), float32]) -> (y:" in repr(mod)


def test_outputs_belong_to_the_caller(mod: Executable) -> None:
    first, second = mod(sample(1)), mod(sample(2))
    assert first.flags.owndata
    assert first.flags.writeable
    np.testing.assert_array_equal(first, expected(sample(1)))
    assert not np.shares_memory(first, second)


def test_inputs_are_not_written(mod: Executable) -> None:
    x = sample()
    x.flags.writeable = False
    np.testing.assert_array_equal(mod(x), expected(sample()))


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "takes 1 input, 0 given: 'x' missing"),
        ((1, 2), {}, "takes 1 input, 2 given"),
        ((1,), {"x": 2}, "both by position and by name"),
        ((), {"X": 1}, "unknown input: 'X'"),
        ((), {"xx": 1}, "did you mean 'x'"),
    ],
)
def test_wrong_arguments(mod: Executable, args: tuple, kwargs: dict, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        mod(*args, **kwargs)
    assert "Tensor[(1000,), float32]" in (caught.value.expected or "")


def test_run_refuses_what_is_no_mapping_and_unknown_outputs(mod: Executable) -> None:
    with pytest.raises(InvalidInputError, match="not a mapping"):
        mod.run(None, [sample()])
    with pytest.raises(InvalidInputError, match="unknown output: 'z'"):
        mod.run(["z"], {"x": sample()})
    with pytest.raises(InvalidInputError, match="not a sequence of names"):
        mod.run(5, {"x": sample()})


def test_many_python_threads_at_once(mod: Executable) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = sample(seed)
        wrong.extend(seed for _ in range(50) if not np.array_equal(mod(x), expected(x)))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_memory_goes_with_the_module() -> None:
    """Weights of many MB must not wait for the collector of cycles."""
    mod = module()
    mod(sample())
    mod.profile(sample(), repeat=1)
    gone = weakref.ref(mod)
    gc.disable()
    try:
        del mod
        assert gone() is None
    finally:
        gc.enable()


def test_a_failing_program_is_reported() -> None:
    with pytest.raises(InternalError, match="status 3"):
        module(status=3)(sample())


def test_too_few_constants_are_refused(mod: Executable) -> None:
    with pytest.raises(InternalError, match="constants"):
        opened(mod.manifest, mod.library, b"short")


def test_constants_of_any_alignment(mod: Executable) -> None:
    blob = bytearray(4 * SIZE + 4)
    raw = memoryview(blob)[4:]
    raw[:] = mod.launcher.constants.tobytes()
    again = opened(mod.manifest, mod.library, raw)
    np.testing.assert_array_equal(again(sample()), expected(sample()))


def test_profile(mod: Executable, tmp_path) -> None:
    profile = mod.profile(sample(), repeat=3)
    assert [s.call.symbol for s in profile.steps] == ["add_constant", "double"]
    assert all(k.seconds > 0 and k.gflops > 0 and k.gbytes > 0 for k in profile.kernels)
    assert profile.kernels[0].seconds >= profile.kernels[1].seconds
    lines = profile.table().splitlines()
    assert lines[0].split()[:2] == ["time", "[ms]"]
    assert len(lines) == 4
    assert "FMA peak" in lines[-1]
    assert "1 more kernels not shown" in profile.table(limit=1)
    profile.chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["add", "multiply"]
    assert events[1]["ts"] >= events[0]["dur"]


@pytest.mark.parametrize("repeat", [0, -1, 1.5, True])
def test_profile_refuses_a_bad_repeat(mod: Executable, repeat: object) -> None:
    with pytest.raises(OptionError, match="repeat"):
        mod.profile(sample(), repeat=repeat)


def test_debug_level_2_prints_the_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    with config(debug=2):
        mod = module()
    capfd.readouterr()
    with config(debug=2):
        np.testing.assert_array_equal(mod(sample()), expected(sample()))
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[-2] for line in lines] == ["add", "multiply"]


def test_a_trace_has_the_kernels(tmp_path) -> None:
    with config(trace=tmp_path / "t.json"):
        mod = module()
        np.testing.assert_array_equal(mod(sample()), expected(sample()))
        events = trace.recorder().events
    assert [e["name"] for e in events if e["cat"] == "kernel"] == ["add", "multiply"]


def test_fma_peak_grows_with_work_not_with_calls(mod: Executable) -> None:
    one = measure_fma_peak(mod.library)
    assert 1 < one < 1000  # GFLOP/s of one core
    assert measure_fma_peak(mod.library, 2) > 0.5 * one
