"""``EmulatedDriver``: the driver interface over the PTX emulator, with memory of its own.

It is as late as CUDA allows, so that a program that works here by luck alone is rare: work on a
stream runs when the host waits for it (or for an event behind it), copies from page-locked memory
read that memory only then, and device memory is not addressable from the host. New memory holds
poison. Errors of a kernel are raised where the host waits, as on hardware.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

import numpy as np

from weft.runtime.arena import AlignedBlock, array_at
from weft.runtime.devices.cuda.driver import (
    DEFAULT_STREAM,
    DeviceProperties,
    Driver,
    Geometry,
    Parameter,
    TensorMap,
)
from weft.runtime.devices.cuda.errors import OUT_OF_MEMORY, status_error
from weft.runtime.dtypes import numpy_dtype
from weft.support.dataclass import dataclass
from weft.testing import cuda as emulator

EMULATED = DeviceProperties(
    "weft emulator", (9, 0), 16 << 30, multiprocessors=132, shared_bytes=227 << 10, any_arch=True)

T = TypeVar("T")
Work: TypeAlias = Callable[[], None]


@dataclass(slots=True)
class _Event:
    """``recorded`` counts the records, ``done`` those that have happened; ``stream`` is the last.

    ``captured`` says that the last record is a part of the graph under construction.
    """

    recorded: int = 0
    done: int = 0
    stream: int = DEFAULT_STREAM
    seconds: float = 0.0
    captured: bool = False


@dataclass(slots=True)
class _Capture:
    """A graph under construction: the streams that take part, and their work in order."""

    streams: set[int]
    work: list[Work] = field(default_factory=list)


class EmulatedDriver(Driver):
    """One emulated device with ``total_bytes`` of memory."""

    name = "emulator"

    def __init__(self, total_bytes: int = EMULATED.total_bytes) -> None:
        self._lock = threading.RLock()
        self._memory = emulator.DeviceMemory()
        self._total = total_bytes
        self._live: dict[int, int] = {}
        self._starts: list[int] = []
        self._pinned: dict[int, AlignedBlock] = {}
        self._modules: dict[int, emulator.PtxModule] = {}
        self._functions: dict[int, tuple[int, str]] = {}
        self._streams: dict[int, deque[tuple[str, Work, int, int]]] = {DEFAULT_STREAM: deque()}
        self._events: dict[int, _Event] = {}
        self._graphs: dict[int, list[Work]] = {}
        self._capture: _Capture | None = None
        self._next = 1

    def version(self) -> int:
        return 13000

    def device_count(self) -> int:
        return 1

    def properties(self, device: int) -> DeviceProperties:
        if device != 0:
            raise status_error(101, f"using device {device}")
        return EMULATED

    def activate(self, device: int) -> None:
        self.properties(device)

    def allocate(self, nbytes: int) -> int:
        with self._lock:
            if sum(self._live.values()) + nbytes > self._total:
                raise status_error(OUT_OF_MEMORY, f"allocating {nbytes} bytes")
            address = self._memory.allocate(nbytes)
            self._live[address] = nbytes
            self._starts = sorted(self._live)
            return address

    def free(self, address: int) -> None:
        with self._lock:
            if self._live.pop(address, None) is None:
                raise status_error(1, f"freeing the address {address:#x}")
            self._starts = sorted(self._live)
            self._memory.free(address)

    def memory(self) -> tuple[int, int]:
        with self._lock:
            return self._total - sum(self._live.values()), self._total

    def allocate_host(self, nbytes: int) -> int:
        block = AlignedBlock(nbytes)
        with self._lock:
            self._pinned[block.address] = block
        return block.address

    def free_host(self, address: int) -> None:
        with self._lock:
            if self._pinned.pop(address, None) is None:
                raise status_error(1, f"freeing the page-locked address {address:#x}")

    def device_of(self, address: int) -> int | None:
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            inside = at >= 0 and address < self._starts[at] + max(1, self._live[self._starts[at]])
            return 0 if inside else None

    def copy_to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        with self._lock:
            if self._is_pinned(source) or self._captured(stream):
                self._put(stream, lambda: self._store(target, _host(source, nbytes)))
                return
            data = _host(source, nbytes).copy()
            self._put(stream, lambda: self._store(target, data))

    def copy_to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        def work() -> None:
            _host(target, nbytes)[:] = self._memory.view(source, nbytes)

        with self._lock:
            self._put(stream, work)
            if not self._is_pinned(target) and not self._captured(stream):
                self._drain(stream)

    def copy_on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._put(stream, lambda: self._store(target, self._memory.view(source, nbytes)))

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        self._put(stream, lambda: self._memory.view(target, nbytes).fill(byte))

    def load_module(self, image: bytes) -> int:
        text = bytes(image).split(b"\0", 1)[0]
        if text[:4] in (b"\x7fELF", b"\x50\xed\x55\xba"):
            raise status_error(200, "loading a module", notes=("the emulator runs PTX alone",))
        module = emulator.load_ptx(text.decode())
        with self._lock:
            return self._new(self._modules, module)

    def loaded(self, module: int) -> emulator.PtxModule:
        """The parsed PTX of a module."""
        return self._modules[module]

    def unload_module(self, module: int) -> None:
        with self._lock:
            self._modules.pop(module, None)

    def function(self, module: int, entry: str, shared_bytes: int) -> int:
        with self._lock:
            found = self._modules.get(module)
            if found is None:
                raise status_error(400, f"finding the kernel {entry}")
            if entry not in found.functions:
                raise status_error(500, f"finding the kernel {entry}")
            if shared_bytes > EMULATED.shared_bytes:
                raise status_error(1, f"giving {entry} {shared_bytes} bytes of shared memory")
            return self._new(self._functions, (module, entry))

    def launch(self, function: int, geometry: Geometry, parameters: Sequence[Parameter],
               stream: int) -> None:
        with self._lock:
            if function not in self._functions:
                raise status_error(400, "launching a kernel")
            number, entry = self._functions[function]
            module = self._modules[number]
        if 0 in geometry.grid or 0 in geometry.block:
            raise status_error(1, f"launching {entry} with {geometry}")
        values = list(parameters)

        def work() -> None:
            emulator.launch(module, entry, geometry.grid, geometry.block, values, self._memory,
                            shared_bytes=geometry.shared_bytes, cluster=geometry.cluster)

        self._put(stream, work)

    def encode_tensor_map(self, spec: TensorMap, address: int) -> bytes:
        if spec.interleave:
            raise status_error(801, "describing an interleaved tensor", notes=(str(spec),))
        return emulator.encode_tensor_map(
            address, numpy_dtype(spec.dtype).itemsize, spec.sizes, spec.strides, spec.box,
            spec.element_strides, spec.swizzle, spec.nan_fill)

    def create_stream(self) -> int:
        with self._lock:
            return self._new(self._streams, deque())

    def destroy_stream(self, stream: int) -> None:
        with self._lock:
            self._drain(stream)
            self._streams.pop(stream, None)

    def synchronize(self, stream: int) -> None:
        with self._lock:
            if self._captured(stream):
                raise status_error(900, "waiting for a stream that records a graph")
            self._drain(stream)

    def synchronize_device(self) -> None:
        with self._lock:
            for stream in list(self._streams):
                self._drain(stream)

    def create_event(self, *, timed: bool = False) -> int:  # noqa: ARG002 - all are
        with self._lock:
            return self._new(self._events, _Event())

    def destroy_event(self, event: int) -> None:
        with self._lock:
            self._events.pop(event, None)

    def record(self, event: int, stream: int) -> None:
        with self._lock:
            found = self._events[event]
            found.captured = self._captured(stream)
            found.recorded += 1
            found.stream = stream
            number = found.recorded
            if not found.captured:
                self._put(stream, lambda: _happen(found, number), event, number)

    def wait(self, stream: int, event: int) -> None:
        with self._lock:
            found = self._events[event]
            if found.captured and self._capture is not None:
                self._capture.streams.add(stream)  # the stream joins the graph
                return
            number = found.recorded
            self._put(stream, lambda: self._reach(found, number))

    def synchronize_event(self, event: int) -> None:
        with self._lock:
            found = self._events[event]
            self._reach(found, found.recorded)

    def is_done(self, event: int) -> bool:
        with self._lock:
            found = self._events[event]
            return found.done >= found.recorded

    def seconds_between(self, first: int, last: int) -> float:
        with self._lock:
            return self._events[last].seconds - self._events[first].seconds

    def begin_capture(self, stream: int) -> None:
        with self._lock:
            if self._capture is not None:
                raise status_error(900, "recording a second graph")
            self._capture = _Capture({stream})

    def end_capture(self, stream: int) -> int:
        with self._lock:
            capture = self._capture
            self._capture = None
            if capture is None or stream not in capture.streams:
                raise status_error(901, "recording a graph")
            return self._new(self._graphs, capture.work)

    def launch_graph(self, graph: int, stream: int) -> None:
        with self._lock:
            for work in self._graphs[graph]:
                self._put(stream, work)

    def destroy_graph(self, graph: int) -> None:
        with self._lock:
            self._graphs.pop(graph, None)

    def _new(self, table: dict[int, T], item: T) -> int:
        handle = self._next
        self._next += 1
        table[handle] = item
        return handle

    def _store(self, target: int, data: np.ndarray) -> None:
        self._memory.view(target, data.nbytes)[:] = data

    def _is_pinned(self, address: int) -> bool:
        return any(block.address <= address < block.address + max(1, block.nbytes)
                   for block in self._pinned.values())

    def _captured(self, stream: int) -> bool:
        return self._capture is not None and stream in self._capture.streams

    def _put(self, stream: int, work: Work, event: int = 0, number: int = 0) -> None:
        with self._lock:
            if self._capture is not None and stream in self._capture.streams:
                self._capture.work.append(work)
            elif stream in self._streams:
                self._streams[stream].append(("record" if event else "run", work, event, number))
            else:
                raise status_error(400, "using a stream")

    def _reach(self, event: _Event, number: int) -> None:
        """Run the stream of an event until its record ``number`` has happened."""
        queue = self._streams.get(event.stream, deque())
        while event.done < number and queue:
            self._step(queue)

    def _drain(self, stream: int) -> None:
        queue = self._streams.get(stream)
        if queue is None:
            raise status_error(400, "waiting for a stream")
        while queue:
            self._step(queue)

    def _step(self, queue: deque[tuple[str, Work, int, int]]) -> None:
        _, work, _, _ = queue.popleft()
        try:
            work()
        except BaseException:
            # What follows reads what the failed work should have written.
            while queue:
                kind, rest, _, _ = queue.popleft()
                if kind == "record":
                    rest()
            raise


def _happen(event: _Event, number: int) -> None:
    event.done = max(event.done, number)
    event.seconds = time.perf_counter()


def _host(address: int, nbytes: int) -> np.ndarray:
    return array_at(address, (nbytes,), np.dtype(np.uint8))
