"""Device arrays: sharing with other libraries, freed memory, and the allocator behind them."""

import gc

import numpy as np
import pytest

import weft
from tests.unit.cuda.runtime.mock_libcuda import MockLibcuda
from weft.runtime.devices.cuda.allocator import CachingAllocator, size_class
from weft.runtime.devices.cuda.array import DeviceArray, as_device_array, new_array
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.errors import DeviceArrayError, DeviceMemoryError
from weft.runtime.devices.cuda.nvidia import NvidiaDriver
from weft.testing.cuda.emulated import EmulatedDriver


@pytest.fixture
def mock():
    return MockLibcuda()


@pytest.fixture
def context(mock):
    return DeviceContext(NvidiaDriver(mock.lookup), 0)


def on_device(context, array):
    made = new_array(context, array.shape, array.dtype)
    made.copy_from(array)
    return made


class Interface:
    """Another library's array with ``__cuda_array_interface__``."""

    def __init__(self, **fields):
        self.__cuda_array_interface__ = fields


class Capsule:
    """Another library's array with DLPack."""

    def __init__(self, array, device=(2, 0)):
        self.array, self.device, self.stream = array, device, None

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        self.stream = stream
        return self.array.__dlpack__(stream=stream)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "uint64",
                                   "float8_e5m2"])
def test_dlpack_shares_memory(context, dtype):
    values = np.arange(6).reshape(2, 3).astype(weft.runtime.dtypes.numpy_dtype(dtype))
    array = on_device(context, values)
    other = Capsule(array)
    taken = as_device_array(other, context)
    assert other.stream == context.compute
    assert (taken.address, taken.shape, taken.dtype) == (array.address, (2, 3), array.dtype)
    np.testing.assert_array_equal(taken.numpy(), values)


def test_the_producer_lives_as_long_as_the_consumer(context):
    array = on_device(context, np.arange(4))
    taken = as_device_array(Capsule(array), context)
    used = context.memory.used_bytes
    del array
    gc.collect()
    assert context.memory.used_bytes == used
    np.testing.assert_array_equal(taken.numpy(), np.arange(4))
    del taken
    gc.collect()
    assert context.memory.used_bytes == 0


def test_a_capsule_that_no_consumer_takes_frees_its_tensor(context):
    array = on_device(context, np.arange(4))
    capsule = array.__dlpack__()
    del array, capsule
    gc.collect()
    assert context.memory.used_bytes == 0


def test_consumers_wait_for_the_compute_stream(context, mock):
    array = on_device(context, np.arange(4))
    mock.calls.clear()
    array.__dlpack__(stream=-1)
    assert "cuStreamWaitEvent" not in mock.calls
    array.__dlpack__()
    assert mock.calls.count("cuStreamWaitEvent") == 1


def test_the_array_interface_goes_out_and_in(context, mock):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = on_device(context, values)
    shown = array.__cuda_array_interface__
    assert shown["version"] == 3
    assert shown["stream"] == context.compute
    mock.calls.clear()
    taken = as_device_array(Interface(**{**shown, "stream": 1}), context)
    assert "cuStreamWaitEvent" in mock.calls
    np.testing.assert_array_equal(taken.numpy(), values)


@pytest.mark.parametrize(("change", "problem"), [
    ({"strides": (4, 8)}, "not C-contiguous"),
    ({"data": (64, False)}, "not an address of device memory"),
    ({"mask": object()}, "mask"),
])
def test_arrays_that_cannot_be_used_are_refused(context, change, problem):
    shown = on_device(context, np.zeros((2, 3), np.float32)).__cuda_array_interface__
    with pytest.raises(DeviceArrayError, match=problem):
        as_device_array(Interface(**{**shown, **change}), context)


def test_arrays_of_other_devices_are_refused(context, mock):
    array = on_device(context, np.arange(4))
    with pytest.raises(DeviceArrayError, match="another device"):
        as_device_array(Capsule(array, (2, 1)), context)
    second = DeviceContext(NvidiaDriver(mock.lookup), 1)
    with pytest.raises(DeviceArrayError, match="another device"):
        as_device_array(array, second)
    assert as_device_array(Capsule(array, (1, 0)), context) is None
    with pytest.raises(DeviceArrayError, match="not in the memory of a GPU"):
        weft.DeviceArray.from_dlpack(np.arange(3))


def test_freed_arrays_cannot_be_used(context):
    array = on_device(context, np.arange(4))
    array.free()
    assert array.is_freed
    assert "freed" in repr(array)
    for use in (array.numpy, lambda: array.address, array.__dlpack__,
                lambda: as_device_array(array, context)):
        with pytest.raises(DeviceArrayError, match="was freed"):
            use()


def test_emulated_memory_is_not_offered_to_other_libraries():
    with weft.config(cuda="emulate"):
        array = weft.DeviceArray.from_numpy(np.arange(3.0))
        assert array.__dlpack_device__()[0] == 12
        assert not hasattr(array, "__cuda_array_interface__")
        np.testing.assert_array_equal(np.asarray(array), np.arange(3.0))
        with pytest.raises(TypeError, match="0-dimensional"):
            len(DeviceArray.empty(()))


def test_results_follow_the_place_of_the_inputs():
    with weft.config(cuda="emulate"):
        module = weft.compile(weft.parse(
            "def @main(%x: Tensor[(4), float32], %y: Tensor[(4), float32]) { add(%x, %y) }"),
            target="cuda")
        x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
        assert isinstance(module(x, y), np.ndarray)
        result = module(weft.DeviceArray.from_numpy(x), y)
        assert isinstance(result, weft.DeviceArray)
        again = module(result, y)
        np.testing.assert_array_equal(again.numpy(), x + 2)
        out = weft.DeviceArray.empty((4,))
        assert module(x, y, out=out) is out
        np.testing.assert_array_equal(out.numpy(), x + 1)
        with pytest.raises(weft.WeftError, match="wrong dtype"):
            module(weft.DeviceArray.from_numpy(np.arange(4)), y)
        with pytest.raises(weft.WeftError, match="wrong shape"):
            module(weft.DeviceArray.from_numpy(x[:3]), y)


def test_size_classes_waste_little():
    for nbytes in (0, 1, 511, 512, 513, 1 << 20, (1 << 20) + 1, 3_000_001, (1 << 32) - 5):
        size = size_class(nbytes)
        assert size >= max(1, nbytes)
        assert size % 512 == 0
        assert size - nbytes <= max(511, nbytes // 8) or nbytes == 0
        assert size_class(size) == size


def test_blocks_are_reused_on_their_stream_at_once_and_elsewhere_when_done():
    driver = EmulatedDriver(1 << 20)
    memory = CachingAllocator(driver, 0)
    first, second = driver.create_stream(), driver.create_stream()
    block = memory.allocate(1000, first)
    address = block.address
    driver.fill(address, 1, 1000, first)  # still to be done
    block.free()
    other = memory.allocate(1000, second)
    assert other.address != address
    same = memory.allocate(900, first)
    assert same.address == address
    same.free()
    driver.synchronize_device()
    assert memory.kept_bytes == 1024
    driver.record(driver.create_event(), first)
    driver.synchronize(first)
    assert memory.allocate(1000, second).address == address


def test_exhausted_memory_frees_what_is_kept_and_says_what_is_used():
    driver = EmulatedDriver(1 << 20)
    memory = CachingAllocator(driver, 0)
    small = [memory.allocate(100 << 10) for _ in range(9)]
    with pytest.raises(DeviceMemoryError) as raised:
        memory.allocate(600 << 10)
    assert "900.0 KiB" in str(raised.value) or "0.9 MiB" in str(raised.value)
    del small[:8]
    gc.collect()
    large = memory.allocate(600 << 10)
    assert memory.used_bytes == (700 << 10)
    assert memory.kept_bytes == 0
    del large, small
    gc.collect()
    memory.trim()
    assert driver.memory() == (1 << 20, 1 << 20)
