"""weft.cuda: the GPUs of this machine, with torch's names.

Work of a device is in one order: streams are not a part of this interface. Where a function takes a
device, ``None`` is the current one, which ``"cuda"`` without a number means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from weft.eager.device import current_number, resolved, set_current_number
from weft.eager.device import device as _device
from weft.eager.evaluate import flush
from weft.eager.functions.random import manual_seed
from weft.runtime.devices.arrays import memory_class
from weft.runtime.devices.cuda.errors import DeviceMemoryError as OutOfMemoryError
from weft.support.errors import InvalidInputError, OptionError
from weft.support.suggestion import missing_attribute

if TYPE_CHECKING:
    from weft.runtime.devices.cuda.context import DeviceContext
    from weft.runtime.devices.cuda.driver import DeviceProperties

manual_seed_all = manual_seed  # one generator draws for all devices


def device_count() -> int:
    """How many GPUs there are; 0 without a driver."""
    return memory_class("cuda").count()


def is_available() -> bool:
    """Whether there is a GPU, also an emulated one (``WEFT_CUDA=emulate``)."""
    return device_count() > 0


def current_device() -> int:
    """The number of the current GPU of this thread."""
    return _numbered(None).index or 0


def set_device(device: Any) -> None:
    """Make another GPU the current one of this thread."""
    set_current_number("cuda", _numbered(device).index or 0)


class device:
    """``with weft.cuda.device(1):`` makes a GPU the current one inside."""

    def __init__(self, device: Any) -> None:
        self.index = _numbered(device).index or 0
        self._before: list[int] = []

    def __enter__(self) -> Self:
        self._before.append(current_number("cuda"))
        set_current_number("cuda", self.index)
        return self

    def __exit__(self, *_: object) -> None:
        set_current_number("cuda", self._before.pop())


def synchronize(device: Any = None) -> None:
    """Run what is recorded, and wait until all work of a GPU is done."""
    flush()
    _numbered(device).memory.synchronize()


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the driver says about a GPU: ``name``, ``capability``, ``total_bytes`` and others."""
    return _context(device).properties


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU."""
    return get_device_properties(device).capability


def is_bf16_supported() -> bool:
    """Whether the current GPU computes in bfloat16."""
    return is_available() and get_device_capability() >= (8, 0)


def memory_allocated(device: Any = None) -> int:
    """The bytes of arrays in the memory of a GPU."""
    return _numbered(device).memory.statistics().used


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of arrays at a time, since the start or ``reset_peak_memory_stats``."""
    return _numbered(device).memory.statistics().peak


def memory_reserved(device: Any = None) -> int:
    """The bytes of arrays, and of free blocks that are kept."""
    found = _numbered(device).memory.statistics()
    return found.used + found.kept


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count ``max_memory_allocated`` from what is in use now."""
    _context(device).memory.reset_peak()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes, of all processes."""
    context = _context(device)
    context.activate()
    return context.driver.memory()


def empty_cache() -> None:
    """Give free blocks that are kept back to the driver."""
    for number in range(device_count()):
        _numbered(number).memory.trim()


class Event:
    """A point in the work of the current GPU, which ``record`` sets."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False,  # noqa: ARG002 - torch's
                 interprocess: bool = False) -> None:
        if interprocess:
            raise OptionError("events of several processes", got="interprocess=True",
                              expected="interprocess=False")
        self._timed = enable_timing
        self._context = _context(None)
        self._event: int | None = None

    def record(self) -> None:
        """Let the event happen when all work until now, also what is only recorded, is done."""
        flush()
        self._context.activate()
        driver = self._context.driver
        if self._event is None:
            self._event = driver.create_event(timed=self._timed)
        driver.record(self._event, self._context.compute)

    def query(self) -> bool:
        """Whether the event has happened; also of one that was not recorded."""
        return self._event is None or self._context.driver.is_done(self._event)

    def synchronize(self) -> None:
        """Wait until the event has happened."""
        if self._event is not None:
            self._context.driver.synchronize_event(self._event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both have happened."""
        if not (self._timed and end_event._timed):
            raise InvalidInputError("the time between events without times",
                                    help="make both with Event(enable_timing=True)")
        if self._event is None or end_event._event is None:
            raise InvalidInputError("the time between events that were not recorded",
                                    help="call record() of both, then synchronize()")
        return 1e3 * self._context.driver.seconds_between(self._event, end_event._event)

    def __del__(self) -> None:
        event = getattr(self, "_event", None)
        if event is not None:
            self._context.driver.destroy_event(event)


def _numbered(device: Any) -> _device:
    """A GPU with its number; ``NoDeviceError`` if it is not there."""
    found = resolved("cuda" if device is None else device)
    if found.type != "cuda":
        raise OptionError("not a GPU", got=str(found), expected='such as "cuda:0"')
    return found


def _context(device: Any) -> DeviceContext:
    """The driver's side of a GPU."""
    memory: Any = _numbered(device).memory
    found: DeviceContext = memory.context
    return found


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name, __all__)


__all__ = [
    "Event", "OutOfMemoryError", "current_device", "device", "device_count", "empty_cache",
    "get_device_capability", "get_device_name", "get_device_properties", "is_available",
    "is_bf16_supported", "manual_seed", "manual_seed_all", "max_memory_allocated", "mem_get_info",
    "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "set_device", "synchronize"]
