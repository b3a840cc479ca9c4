"""``Driver``: the operations of the CUDA driver API that the runtime uses.

``NvidiaDriver`` calls libcuda; ``EmulatedDriver`` interprets PTX on the CPU. Streams, events,
modules, functions and graphs are handles: integers that the driver gave. Addresses of device memory
are integers, too, and mean nothing on the host. Errors are ``CudaError``.

``activate`` makes the primary context of a device current for the calling thread; the other methods
work in the current context.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from weft.support.dataclass import dataclass

# The stream that all drivers have: launches on it wait for those of other blocking streams.
DEFAULT_STREAM = 0


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What the driver says about a device; sizes are in bytes, clocks in kHz.

    ``shared_bytes`` is the most dynamic shared memory that a block can opt in to. ``any_arch`` says
    that the device runs PTX for every architecture (the emulator).
    """

    name: str
    capability: tuple[int, int]
    total_bytes: int
    multiprocessors: int
    warp_size: int = 32
    max_threads: int = 1024
    shared_bytes: int = 49152
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    clock: int = 0
    memory_clock: int = 0
    memory_bus_bits: int = 0
    any_arch: bool = False


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched; ``shared_bytes`` is the dynamic shared memory of a block."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0

    def __str__(self) -> str:
        parts = [f"grid {_text(self.grid)}", f"block {_text(self.block)}"]
        if self.cluster != (1, 1, 1):
            parts.append(f"cluster {_text(self.cluster)}")
        if self.shared_bytes:
            parts.append(f"{self.shared_bytes} bytes of dynamic shared memory")
        return ", ".join(parts)


def _text(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


# An argument of a kernel: an integer (a pointer or a 64-bit size), or the bytes of a tensor map.
Parameter = int | bytes


class Driver(abc.ABC):
    """One driver of the process."""

    name: str

    @abc.abstractmethod
    def version(self) -> int:
        """The newest CUDA version that the driver supports, as 1000 * major + 10 * minor."""

    @abc.abstractmethod
    def device_count(self) -> int:
        """The number of visible devices."""

    @abc.abstractmethod
    def properties(self, device: int) -> DeviceProperties:
        """The properties of a device."""

    @abc.abstractmethod
    def activate(self, device: int) -> None:
        """Make the primary context of a device current for this thread."""

    # Memory.

    @abc.abstractmethod
    def allocate(self, nbytes: int) -> int:
        """The address of new device memory, at a multiple of 256; raises ``DeviceMemoryError``."""

    @abc.abstractmethod
    def free(self, address: int) -> None:
        """Free device memory; work that uses it must be done."""

    @abc.abstractmethod
    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the current device."""

    @abc.abstractmethod
    def allocate_host(self, nbytes: int) -> int:
        """The address of new page-locked host memory; copies from it are asynchronous."""

    @abc.abstractmethod
    def free_host(self, address: int) -> None:
        """Free page-locked host memory."""

    @abc.abstractmethod
    def device_of(self, address: int) -> int | None:
        """The device whose memory has this address; ``None`` for other memory."""

    @abc.abstractmethod
    def copy_to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy host memory to the device, in the order of the stream.

        Pageable memory may change after the call; page-locked memory after the stream has done it.
        """

    @abc.abstractmethod
    def copy_to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy device memory to the host, in the order of the stream.

        Pageable memory is written when the call returns; page-locked memory when the stream has
        done it.
        """

    @abc.abstractmethod
    def copy_on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy device memory, also of another device, in the order of the stream."""

    @abc.abstractmethod
    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        """Set all bytes of device memory, in the order of the stream."""

    # Code.

    @abc.abstractmethod
    def load_module(self, image: bytes) -> int:
        """Load PTX text, a cubin or a fat binary; the errors contain the driver's log."""

    @abc.abstractmethod
    def unload_module(self, module: int) -> None:
        """Unload a module; its kernels must be done."""

    @abc.abstractmethod
    def function(self, module: int, entry: str, shared_bytes: int) -> int:
        """A kernel of a module, allowed to use this much dynamic shared memory."""

    @abc.abstractmethod
    def launch(self, function: int, geometry: Geometry, parameters: Sequence[Parameter],
               stream: int) -> None:
        """Launch a kernel; returns before it is done."""

    @abc.abstractmethod
    def encode_tensor_map(self, spec: TensorMap, address: int) -> bytes:
        """The 128 bytes of a ``CUtensorMap`` over device memory."""

    # Order.

    @abc.abstractmethod
    def create_stream(self) -> int:
        """A new stream that does not wait for the default stream."""

    @abc.abstractmethod
    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream once its work is done."""

    @abc.abstractmethod
    def synchronize(self, stream: int) -> None:
        """Wait until the work of a stream is done; raises the errors of that work."""

    @abc.abstractmethod
    def synchronize_device(self) -> None:
        """Wait until all work of the current device is done; raises its errors."""

    @abc.abstractmethod
    def create_event(self, *, timed: bool = False) -> int:
        """A new event; with ``timed`` it records when it happens."""

    @abc.abstractmethod
    def destroy_event(self, event: int) -> None:
        """Destroy an event."""

    @abc.abstractmethod
    def record(self, event: int, stream: int) -> None:
        """Let the event happen when the work on the stream so far is done."""

    @abc.abstractmethod
    def wait(self, stream: int, event: int) -> None:
        """Let later work on the stream wait for the event."""

    @abc.abstractmethod
    def synchronize_event(self, event: int) -> None:
        """Wait on the host for an event; raises the errors of the work before it."""

    @abc.abstractmethod
    def is_done(self, event: int) -> bool:
        """Whether the event has happened."""

    @abc.abstractmethod
    def seconds_between(self, first: int, last: int) -> float:
        """The time between two timed events that have happened."""

    # Graphs.

    @abc.abstractmethod
    def begin_capture(self, stream: int) -> None:
        """Record the work of a stream instead of running it, until ``end_capture``."""

    @abc.abstractmethod
    def end_capture(self, stream: int) -> int:
        """The recorded work as a graph that can be launched."""

    @abc.abstractmethod
    def launch_graph(self, graph: int, stream: int) -> None:
        """Run the work of a graph on a stream."""

    @abc.abstractmethod
    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph; its launches must be done."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The operands of ``cuTensorMapEncodeTiled``; the fastest dimension comes first.

    ``dtype`` is a dtype's name, ``strides`` are bytes between elements of dimension 1 and up,
    ``swizzle`` is 0, 32, 64 or 128 bytes, ``interleave`` 0, 16 or 32, ``l2_promotion`` 0, 64, 128
    or 256 bytes.
    """

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 0
    interleave: int = 0
    l2_promotion: int = 0
    nan_fill: bool = False
