"""``NvidiaDriver`` against a libcuda that the test makes: layouts, errors, order."""

import ctypes

import numpy as np
import pytest

from tests.unit.cuda.runtime.mock_libcuda import MockLibcuda
from tests.unit.cuda.runtime.ptx_texts import SCALE
from weft.runtime.devices.cuda import prototypes as api
from weft.runtime.devices.cuda.driver import Geometry, TensorMap
from weft.runtime.devices.cuda.errors import (
    STATUS,
    CudaError,
    DeviceMemoryError,
    NoDeviceError,
    status_error,
)
from weft.runtime.devices.cuda.nvidia import NvidiaDriver


@pytest.fixture
def mock():
    return MockLibcuda()


@pytest.fixture
def driver(mock):
    made = NvidiaDriver(mock.lookup)
    made.activate(0)
    return made


def test_structs_have_the_sizes_of_cuda_h():
    assert ctypes.sizeof(api.LaunchConfig) == 56
    assert ctypes.sizeof(api.LaunchAttribute) == 72
    assert api.LaunchAttribute.value.offset == 8
    assert api.LaunchConfig.stream.offset == 32
    assert api.LaunchConfig.attributes.offset == 40
    assert ctypes.sizeof(api.TensorMapWords) == 128


def test_properties_come_from_the_attributes(driver):
    found = driver.properties(1)
    assert (found.name, found.capability, found.multiprocessors) == ("Mock GPU 1", (9, 0), 132)
    assert found.max_grid == (2**31 - 1, 65535, 65535)
    assert found.shared_bytes == 227 << 10
    assert not found.any_arch


def test_a_kernel_is_launched_with_all_of_its_arguments(driver, mock):
    stream = driver.create_stream()
    host = np.arange(64, dtype=np.float32)
    device = driver.allocate(host.nbytes)
    driver.copy_to_device(device, host.ctypes.data, host.nbytes, stream)
    function = driver.function(driver.load_module(SCALE.encode() + b"\0"), "scale", 60 << 10)
    assert mock.options["function", api.MAX_DYNAMIC_SHARED] == 60 << 10
    driver.launch(function, Geometry((2, 1, 1), (32, 1, 1), shared_bytes=512), [device, 64], stream)
    result = np.empty_like(host)
    driver.copy_to_host(result.ctypes.data, device, host.nbytes, stream)
    driver.synchronize(stream)
    np.testing.assert_array_equal(result, 2 * host)
    (_, geometry, values), = mock.launches
    assert geometry == Geometry((2, 1, 1), (32, 1, 1), (1, 1, 1), 512)
    assert values == [device, 64]
    assert mock.options["stream flags"] == api.STREAM_NON_BLOCKING


def test_clusters_are_a_launch_attribute(driver, mock):
    mock.device.launch = lambda *_: None
    function = driver.function(driver.load_module(SCALE.encode()), "scale", 0)
    driver.launch(function, Geometry((4, 2, 1), (32, 1, 1), (2, 2, 1)), [1, 2], 0)
    assert mock.launches[0][1].cluster == (2, 2, 1)


def test_tensor_maps_are_encoded_over_device_memory(driver, mock):
    spec = TensorMap("bfloat16", (64, 128, 2), (128, 16384), (64, 32, 1), (1, 1, 1), swizzle=128,
                     l2_promotion=256)
    found = driver.encode_tensor_map(spec, 0x7000)
    assert found == b"\xab" * 128
    assert mock.options["tensor map"] == (
        9, 0x7000, (64, 128, 2), (128, 16384), (64, 32, 1), (1, 1, 1), 0, 3, 3, 0)


def test_graphs_run_what_was_recorded(driver, mock):
    stream = driver.create_stream()
    address = driver.allocate(16)
    driver.fill(address, 1, 16, stream)
    driver.begin_capture(stream)
    assert mock.options["capture mode"] == api.CAPTURE_THREAD_LOCAL
    driver.fill(address, 7, 16, stream)
    graph = driver.end_capture(stream)
    result = np.empty(16, np.uint8)
    driver.copy_to_host(result.ctypes.data, address, 16, stream)
    assert set(result) == {1}
    driver.launch_graph(graph, stream)
    driver.copy_to_host(result.ctypes.data, address, 16, stream)
    assert set(result) == {7}


def test_events_order_streams_and_measure(driver):
    first, second = driver.create_stream(), driver.create_stream()
    address = driver.allocate(8)
    start, end = driver.create_event(timed=True), driver.create_event(timed=True)
    driver.record(start, first)
    driver.fill(address, 3, 8, first)
    driver.record(end, first)
    driver.wait(second, end)
    assert not driver.is_done(end)
    driver.synchronize(second)
    assert driver.is_done(end)
    assert driver.seconds_between(start, end) >= 0


def test_memory_is_that_of_the_device(driver):
    address = driver.allocate(1000)
    assert driver.device_of(address + 999) == 0
    assert driver.device_of(id(address)) is None
    free, total = driver.memory()
    assert total - free == 1000
    driver.free(address)
    assert driver.device_of(address) is None
    with pytest.raises(CudaError, match="freeing memory failed"):
        driver.free(address)
    pinned = driver.allocate_host(64)
    driver.free_host(pinned)


@pytest.mark.parametrize("status", sorted(STATUS))
def test_each_status_is_an_error_with_its_name(driver, mock, status):
    mock.fail["cuMemAlloc_v2"] = status
    with pytest.raises(CudaError) as raised:
        driver.allocate(64)
    assert raised.value.got == f"{STATUS[status][0]} ({status})"
    assert raised.value.status == status
    assert isinstance(raised.value, DeviceMemoryError) == (status == 2)


def test_an_unknown_status_is_an_error_too():
    assert "CUresult 12345" in str(status_error(12345, "testing"))


def test_the_log_of_the_ptx_compiler_is_a_part_of_the_error(driver, mock):
    with pytest.raises(CudaError, match=r"Missing \.version") as raised:
        driver.load_module(b"nonsense\0")
    assert "INVALID_PTX" in (raised.value.got or "")
    assert mock.options["jit"] == [api.ERROR_LOG, api.ERROR_LOG_BYTES]


def test_an_old_driver_lacks_functions():
    with pytest.raises(NoDeviceError, match="too old") as raised:
        NvidiaDriver(MockLibcuda(missing=("cuLaunchKernelEx",)).lookup)
    assert "cuLaunchKernelEx" in (raised.value.got or "")


def test_a_failing_driver_says_what_it_was_doing():
    mock = MockLibcuda()
    mock.fail["cuInit"] = 803
    with pytest.raises(CudaError, match="initialising the CUDA driver"):
        NvidiaDriver(mock.lookup)


def test_each_thread_and_device_gets_its_context(driver, mock):
    driver.activate(1)
    assert mock.current["context"] == 0x1000 + 51
    driver.activate(0)
    assert mock.current["context"] == 0x1000 + 50
    assert mock.calls.count("cuDevicePrimaryCtxRetain") == 2
    with pytest.raises(NoDeviceError, match="finding device 7"):
        driver.activate(7)
