"""Launches of whole programs through libcuda's interface: host launcher, graphs, errors."""

import numpy as np
import pytest

import weft
from tests.unit.cuda.runtime.mock_libcuda import MockLibcuda
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.errors import CudaError, DeviceMemoryError
from weft.runtime.devices.cuda.nvidia import NvidiaDriver

TWO_KERNELS = """def @main(%x: Tensor[(300), float32], %y: Tensor[(8, 16), float32]) {
  (add(%x, 1f), multiply(%y, 2f))
}"""


def on(mock, text=TWO_KERNELS, **settings):
    """A module whose device is that of a mock."""
    with weft.config(cuda="driver", **settings):
        module = weft.compile(weft.parse(text), target="cuda")
    module.library.context = DeviceContext(NvidiaDriver(mock.lookup), 0)
    return module


def values(seed):
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(300, np.float32),
            generator.standard_normal((8, 16), np.float32))


def check(module, seed=0):
    x, y = values(seed)
    first, second = module(x, y)
    np.testing.assert_allclose(first, x + 1, rtol=1e-6)
    np.testing.assert_allclose(second, 2 * y, rtol=1e-6)


def test_the_second_call_records_a_graph_that_later_calls_launch():
    mock = MockLibcuda()
    module = on(mock)
    for seed in range(4):
        check(module, seed)
        if seed == 0:
            assert len(mock.launches) == 2
            assert "cuStreamBeginCapture_v2" not in mock.calls
    assert mock.calls.count("cuGraphInstantiateWithFlags") == 1
    assert mock.calls.count("cuGraphLaunch") == 3
    assert len(mock.launches) == 4  # those of the first call, and the recorded ones


@pytest.mark.parametrize("settings", [{"cuda_graphs": False}, {"cuda_sync": True}])
def test_settings_keep_graphs_away(settings):
    mock = MockLibcuda()
    module = on(mock, **settings)
    with weft.config(**settings):
        for seed in range(3):
            check(module, seed)
    assert "cuGraphLaunch" not in mock.calls
    assert len(mock.launches) == 6


def test_a_refused_launch_is_named_with_its_geometry():
    mock = MockLibcuda()
    module = on(mock)
    mock.fail["cuLaunchKernelEx"] = 701
    with pytest.raises(CudaError, match="LAUNCH_OUT_OF_RESOURCES") as raised:
        module(*values(0))
    assert "weft_add" in (raised.value.where or "")
    assert any("grid" in note and "block" in note for note in raised.value.notes)
    check(module)


def test_an_error_that_comes_late_names_the_launches_before():
    mock = MockLibcuda()
    module = on(mock)
    mock.fail["cuStreamSynchronize"] = 700
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS") as raised:
        module(*values(0))
    text = str(raised.value)
    assert "weft_add" in text
    assert "weft_multiply" in text
    assert "WEFT_CUDA_SYNC=1" in text
    assert "unusable" in text


def test_a_failed_recording_leaves_the_stream_usable():
    mock = MockLibcuda()
    module = on(mock)
    check(module)
    mock.fail["cuLaunchKernelEx"] = 900
    with pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"):
        module(*values(1))
    check(module, 2)
    assert "cuGraphLaunch" not in mock.calls


def test_exhausted_memory_is_an_error_that_a_module_survives():
    mock = MockLibcuda(memory=200 << 10)
    module = on(mock)
    big = on(mock, "def @main(%x: Tensor[(100000), float32]) { add(%x, 1f) }")
    big.library.context = module.library.context
    with pytest.raises(DeviceMemoryError, match="memory of device cuda:0 is exhausted") as raised:
        big(np.zeros(100000, np.float32))
    assert "in use by weft" in str(raised.value)
    check(module)


def test_with_a_wait_after_each_launch_errors_name_the_launch_that_failed():
    mock = MockLibcuda()
    module = on(mock, cuda_sync=True)
    mock.fail["cuStreamSynchronize"] = 716
    with pytest.raises(CudaError, match="MISALIGNED_ADDRESS") as raised:
        module(*values(0))
    first = module.manifest.steps[0].symbol
    assert first in (raised.value.where or "")
    assert len(mock.launches) == 1
