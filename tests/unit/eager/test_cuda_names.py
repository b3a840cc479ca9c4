"""``weft.cuda``: what torch's names say of the emulated GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from weft import cuda
from weft.eager.device import set_current_number
from weft.support.errors import InvalidInputError, OptionError


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with weft.config(cuda="emulate"):
        yield


def test_the_devices_and_what_they_are():
    assert cuda.is_available()
    assert cuda.device_count() >= 1
    assert cuda.current_device() == 0
    assert cuda.get_device_properties().name == cuda.get_device_name(0)
    assert cuda.get_device_capability("cuda:0") >= (8, 0)
    assert cuda.is_bf16_supported()
    assert issubclass(cuda.OutOfMemoryError, weft.WeftError)
    with pytest.raises(OptionError, match="not a GPU"):
        cuda.set_device("cpu")
    with pytest.raises(weft.WeftError, match="no device cuda:9"):
        cuda.synchronize(9)
    with pytest.raises(AttributeError, match="no attribute 'Stream'"):
        cuda.Stream


def test_the_current_device_is_what_a_kind_without_a_number_means():
    set_current_number("sim", 1)
    try:
        assert str(weft.ones(1, device="sim").device) == "sim:1"
    finally:
        set_current_number("sim", 0)
    set_current_number("cuda", 7)
    with cuda.device("cuda:0"):
        assert cuda.current_device() == 0
        assert str(weft.ones(1, device="cuda").device) == "cuda:0"
        assert weft.ones(1).device.type == "cpu"
    with pytest.raises(weft.WeftError, match="no device cuda:7"):
        weft.ones(1, device="cuda")
    cuda.set_device(0)
    assert cuda.current_device() == 0


def test_memory_is_counted_and_given_back():
    before = cuda.memory_allocated()
    x = weft.ones(1 << 16, device="cuda") + 1
    cuda.synchronize()  # runs what is recorded
    assert cuda.memory_allocated() >= before + (1 << 18)
    assert cuda.max_memory_allocated() >= cuda.memory_allocated()
    free, total = cuda.mem_get_info()
    assert 0 < free < total
    del x
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == cuda.memory_allocated()
    cuda.empty_cache()
    assert cuda.memory_reserved() == cuda.memory_allocated()


def test_events_measure_the_work_between():
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(InvalidInputError, match=r"not recorded"):
        start.elapsed_time(end)
    start.record()
    x = weft.ones(1000, device="cuda").exp()
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    assert x._node.value is not None
    with pytest.raises(InvalidInputError, match=r"(?s)without times.*enable_timing=True"):
        start.elapsed_time(cuda.Event())


def test_memory_of_copies_is_not_chosen():
    x = weft.ones(2)
    assert x.pin_memory() is x
    assert not x.is_pinned()
    assert x.to("cuda", non_blocking=True).cpu().tolist() == [1, 1]
