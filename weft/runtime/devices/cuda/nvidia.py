"""``NvidiaDriver``: the driver interface over libcuda, by ctypes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from weft.runtime.devices.cuda import prototypes as api
from weft.runtime.devices.cuda.driver import (
    DeviceProperties,
    Driver,
    Geometry,
    Parameter,
    TensorMap,
)
from weft.runtime.devices.cuda.errors import NOT_READY, status_error
from weft.runtime.devices.cuda.launch_records import LaunchRecords

_LOG_BYTES = 8192
_TENSOR_MAP_ALIGNMENT = 64


class NvidiaDriver(Driver):
    """``lookup`` gives the addresses of libcuda's functions; by default those of the system.

    Raises ``NoDeviceError`` if there is no driver, and if it is too old.
    """

    name = "libcuda"

    def __init__(self, lookup: api.Lookup | None = None) -> None:
        self.lookup = api.system_libcuda() if lookup is None else lookup
        self._cu = api.bound_functions(self.lookup)
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()
        self._call("cuInit", 0, doing="initialising the CUDA driver")
        self._version = self._out_int("cuDriverGetVersion")

    def version(self) -> int:
        return self._version

    def device_count(self) -> int:
        return self._out_int("cuDeviceGetCount")

    def properties(self, device: int) -> DeviceProperties:
        handle = self._out_int("cuDeviceGet", device, doing=f"finding device {device}")
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", ctypes.addressof(name), 256, handle)
        total = ctypes.c_size_t()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(total), handle)

        def attribute(number: int) -> int:
            return self._out_int("cuDeviceGetAttribute", number, handle)

        major, minor = map(attribute, api.CAPABILITY)
        width, height, depth = map(attribute, api.MAX_GRID)
        return DeviceProperties(
            name.value.decode(errors="replace"), (major, minor), total.value,
            attribute(api.MULTIPROCESSORS), attribute(api.WARP_SIZE), attribute(api.MAX_THREADS),
            attribute(api.SHARED_OPT_IN), (width, height, depth), attribute(api.CLOCK),
            attribute(api.MEMORY_CLOCK), attribute(api.BUS_BITS))

    def activate(self, device: int) -> None:
        context = self._contexts.get(device)
        if context is None:
            with self._lock:
                context = self._contexts.get(device)
                if context is None:
                    handle = self._out_int("cuDeviceGet", device, doing=f"finding device {device}")
                    # The primary context is that of the runtime API, and so of torch and CuPy.
                    context = self._out_pointer("cuDevicePrimaryCtxRetain", handle,
                                                doing=f"opening device {device}")
                    self._contexts[device] = context
        self._call("cuCtxSetCurrent", context)

    def allocate(self, nbytes: int) -> int:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), max(1, nbytes),
                   doing=f"allocating {nbytes} bytes")
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", address, doing="freeing memory")

    def memory(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate_host(self, nbytes: int) -> int:
        return self._out_pointer("cuMemHostAlloc", max(1, nbytes), api.HOST_PORTABLE,
                                 doing=f"allocating {nbytes} bytes of page-locked memory")

    def free_host(self, address: int) -> None:
        self._call("cuMemFreeHost", address, doing="freeing page-locked memory")

    def device_of(self, address: int) -> int | None:
        value = ctypes.c_int(-1)
        where = ctypes.addressof(value)
        if self._cu["cuPointerGetAttribute"](where, api.MEMORY_TYPE, address) != 0 \
                or value.value != api.MEMORY_OF_DEVICE:
            return None
        self._call("cuPointerGetAttribute", where, api.DEVICE_ORDINAL, address)
        return value.value

    def copy_to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", target, source, nbytes, stream,
                   doing=f"copying {nbytes} bytes to the device")

    def copy_to_host(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync_v2", target, source, nbytes, stream,
                   doing=f"copying {nbytes} bytes to the host")

    def copy_on_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyAsync", target, source, nbytes, stream,
                   doing=f"copying {nbytes} bytes on the device")

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        self._call("cuMemsetD8Async", target, byte, nbytes, stream,
                   doing=f"setting {nbytes} bytes")

    def load_module(self, image: bytes) -> int:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(api.ERROR_LOG, api.ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        module = ctypes.c_void_p()
        code = ctypes.create_string_buffer(bytes(image), len(image) + 1)  # PTX ends in a zero
        status = self._cu["cuModuleLoadDataEx"](
            ctypes.byref(module), ctypes.addressof(code), 2, options, values)
        if status:
            lines = log.value.decode(errors="replace").strip().splitlines()
            raise status_error(status, "loading a module", notes=tuple(lines[:20]))
        return module.value or 0

    def unload_module(self, module: int) -> None:
        self._call("cuModuleUnload", module, doing="unloading a module")

    def function(self, module: int, entry: str, shared_bytes: int) -> int:
        found = self._out_pointer("cuModuleGetFunction", module, entry.encode(),
                                  doing=f"finding the kernel {entry}")
        if shared_bytes:
            self._call("cuFuncSetAttribute", found, api.MAX_DYNAMIC_SHARED, shared_bytes,
                       doing=f"giving {entry} {shared_bytes} bytes of dynamic shared memory")
        return found

    def launch(self, function: int, geometry: Geometry, parameters: Sequence[Parameter],
               stream: int) -> None:
        records = LaunchRecords([(function, geometry, parameters)], stream)
        config, _, arguments = records.record(0)
        self._call("cuLaunchKernelEx", config, function, arguments, None,
                   doing="launching a kernel")

    def encode_tensor_map(self, spec: TensorMap, address: int) -> bytes:
        rank = len(spec.sizes)
        raw = ctypes.create_string_buffer(128 + _TENSOR_MAP_ALIGNMENT)
        start = ctypes.addressof(raw)
        aligned = start + -start % _TENSOR_MAP_ALIGNMENT
        longs = [(ctypes.c_uint64 * max(1, len(v)))(*v) for v in (spec.sizes, spec.strides)]
        ints = [(ctypes.c_uint32 * max(1, len(v)))(*v) for v in (spec.box, spec.element_strides)]
        self._call("cuTensorMapEncodeTiled", aligned, api.TENSOR_MAP_DTYPES[spec.dtype], rank,
                   address, *map(ctypes.addressof, (*longs, *ints)),
                   api.TENSOR_MAP_INTERLEAVES[spec.interleave],
                   api.TENSOR_MAP_SWIZZLES[spec.swizzle],
                   api.TENSOR_MAP_PROMOTIONS[spec.l2_promotion], int(spec.nan_fill),
                   doing=f"describing a tensor of {spec.sizes} to the tensor memory accelerator")
        return ctypes.string_at(aligned, 128)

    def create_stream(self) -> int:
        return self._out_pointer("cuStreamCreate", api.STREAM_NON_BLOCKING)

    def destroy_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy_v2", stream)

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream, doing="waiting for a stream")

    def synchronize_device(self) -> None:
        self._call("cuCtxSynchronize", doing="waiting for the device")

    def create_event(self, *, timed: bool = False) -> int:
        return self._out_pointer("cuEventCreate", 0 if timed else api.EVENT_UNTIMED)

    def destroy_event(self, event: int) -> None:
        self._call("cuEventDestroy_v2", event)

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def wait(self, stream: int, event: int) -> None:
        self._call("cuStreamWaitEvent", stream, event, 0)

    def synchronize_event(self, event: int) -> None:
        self._call("cuEventSynchronize", event, doing="waiting for an event")

    def is_done(self, event: int) -> bool:
        status = self._cu["cuEventQuery"](event)
        if status not in (0, NOT_READY):
            raise status_error(status, "asking for an event")
        return status == 0

    def seconds_between(self, first: int, last: int) -> float:
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), first, last)
        return milliseconds.value * 1e-3

    def begin_capture(self, stream: int) -> None:
        self._call("cuStreamBeginCapture_v2", stream, api.CAPTURE_THREAD_LOCAL,
                   doing="recording a graph")

    def end_capture(self, stream: int) -> int:
        graph = self._out_pointer("cuStreamEndCapture", stream, doing="recording a graph",
                                  out_last=True)
        try:
            return self._out_pointer("cuGraphInstantiateWithFlags", graph, 0,
                                     doing="instantiating a graph")
        finally:
            self._call("cuGraphDestroy", graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        self._call("cuGraphLaunch", graph, stream, doing="launching a graph")

    def destroy_graph(self, graph: int) -> None:
        self._call("cuGraphExecDestroy", graph)

    def _call(self, name: str, *arguments: Any, doing: str = "") -> None:
        status = self._cu[name](*arguments)
        if status:
            raise status_error(status, doing or name)

    def _out_int(self, name: str, *arguments: Any, doing: str = "") -> int:
        value = ctypes.c_int()
        self._call(name, ctypes.byref(value), *arguments, doing=doing)
        return value.value

    def _out_pointer(self, name: str, *arguments: Any, doing: str = "", out_last: bool = False
                     ) -> int:
        value = ctypes.c_void_p()
        reference = ctypes.byref(value)
        given = (*arguments, reference) if out_last else (reference, *arguments)
        self._call(name, *given, doing=doing)
        return value.value or 0
