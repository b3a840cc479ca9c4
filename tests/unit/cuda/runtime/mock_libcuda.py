"""A libcuda of Python functions with C signatures, over the emulated driver.

``NvidiaDriver`` calls it through the same addresses, prototypes and structs as the real library, so
a wrong layout shows. It records the names of calls, and returns chosen errors.
"""

import ctypes
import struct

from weft.runtime.devices.cuda import prototypes as api
from weft.runtime.devices.cuda.driver import Geometry
from weft.runtime.devices.cuda.errors import CudaError
from weft.support.errors import WeftError
from weft.testing.cuda.emulated import EmulatedDriver

NOT_INITIALIZED, INVALID_CONTEXT, LAUNCH_FAILED = 3, 201, 719


class MockLibcuda:
    """``fail`` maps a function to the status that its next call returns, once."""

    def __init__(self, *, devices=2, version=13000, capability=(9, 0), missing=(), memory=1 << 30):
        self.device = EmulatedDriver(memory)
        self.calls, self.fail, self.launches, self.options = [], {}, [], {}
        self.numbers = {"devices": devices, "version": version}
        self.capability = capability
        self.current = {}
        self._missing = missing
        self._ready = False
        self._entries = {}
        self._modules = {}
        self._functions = {name: ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._wrapped(name))
                           for name, types in api.PROTOTYPES.items()}

    def lookup(self, name):
        if name in self._missing:
            return 0
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value

    def _wrapped(self, name):
        body = getattr(self, name.removesuffix("_v2"))

        def call(*arguments):
            self.calls.append(name)
            status = self.fail.pop(name, 0)
            if status:
                return status
            if name != "cuInit" and not self._ready:
                return NOT_INITIALIZED
            try:
                return body(*arguments) or 0
            except CudaError as error:
                return error.status or LAUNCH_FAILED
            except WeftError:
                return LAUNCH_FAILED

        return call

    def cuInit(self, flags):
        self._ready = flags == 0

    def cuDriverGetVersion(self, out):
        out[0] = self.numbers["version"]

    def cuDeviceGetCount(self, out):
        out[0] = self.numbers["devices"]

    def cuDeviceGet(self, out, number):
        if not 0 <= number < self.numbers["devices"]:
            return 101
        out[0] = number + 50  # a handle is not a number
        return 0

    def cuDeviceGetName(self, where, size, device):
        name = f"Mock GPU {device - 50}".encode()[:size - 1] + b"\0"
        ctypes.memmove(where, name, len(name))

    def cuDeviceTotalMem(self, out, _):
        out[0] = self.device.memory()[1]

    def cuDeviceGetAttribute(self, out, attribute, _):
        major, minor = self.capability
        values = {1: 1024, 5: 2**31 - 1, 6: 65535, 7: 65535, 10: 32, 13: 1980000, 16: 132,
                  36: 2619000, 37: 5120, 75: major, 76: minor, 97: 227 << 10}
        out[0] = values[attribute]

    def cuDevicePrimaryCtxRetain(self, out, device):
        out[0] = 0x1000 + device

    def cuCtxSetCurrent(self, context):
        self.current["context"] = context

    def cuCtxSynchronize(self):
        self.device.synchronize_device()

    def cuMemAlloc(self, out, nbytes):
        if "context" not in self.current:
            return INVALID_CONTEXT
        out[0] = self.device.allocate(nbytes)
        return 0

    def cuMemFree(self, address):
        self.device.free(address)

    def cuMemGetInfo(self, free, total):
        free[0], total[0] = self.device.memory()

    def cuMemHostAlloc(self, out, nbytes, flags):
        self.options["host flags"] = flags
        out[0] = self.device.allocate_host(nbytes)

    def cuMemFreeHost(self, address):
        self.device.free_host(address)

    def cuPointerGetAttribute(self, where, attribute, address):
        if self.device.device_of(address) is None:
            return 1
        value = api.MEMORY_OF_DEVICE if attribute == api.MEMORY_TYPE else 0
        ctypes.c_int.from_address(where).value = value
        return 0

    def cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        self.device.copy_to_device(target, source, nbytes, stream or 0)

    def cuMemcpyDtoHAsync(self, target, source, nbytes, stream):
        self.device.copy_to_host(target, source, nbytes, stream or 0)

    def cuMemcpyAsync(self, target, source, nbytes, stream):
        self.device.copy_on_device(target, source, nbytes, stream or 0)

    def cuMemsetD8Async(self, target, byte, nbytes, stream):
        self.device.fill(target, byte, nbytes, stream or 0)

    def cuModuleLoadDataEx(self, out, image, count, options, values):
        self.options["jit"] = [options[i] for i in range(count)]
        text = ctypes.string_at(image)
        if b".entry" not in text:
            log = b"ptxas application ptx input, line 1; fatal: Missing .version\0"
            ctypes.memmove(values[0], log, len(log))
            return 218
        out[0] = module = self.device.load_module(text)
        self._modules[module] = text
        return 0

    def cuModuleUnload(self, module):
        self.device.unload_module(module)

    def cuModuleGetFunction(self, out, module, name):
        out[0] = function = self.device.function(module, name.decode(), 0)
        entry = self.device.loaded(module).functions[name.decode()]
        self._entries[function] = [parameter.nbytes for parameter in entry.parameters]

    def cuFuncSetAttribute(self, function, attribute, value):
        self.options[("function", attribute)] = value

    def cuLaunchKernelEx(self, config, function, arguments, extra):
        given = api.LaunchConfig.from_address(config)
        cluster = (1, 1, 1)
        for number in range(given.num_attributes):
            attribute = given.attributes[number]
            if attribute.id == api.CLUSTER_DIMENSION:
                cluster = tuple(attribute.value[0:3])
        geometry = Geometry(tuple(given.grid), tuple(given.block), cluster, given.shared_bytes)
        values = []
        for number, size in enumerate(self._entries[function]):
            raw = ctypes.string_at(ctypes.c_uint64.from_address(arguments + 8 * number).value, size)
            values.append(struct.unpack("<Q", raw)[0] if size == 8 else
                          int.from_bytes(raw, "little") if size < 8 else raw)
        self.launches.append((function, geometry, values))
        if extra:
            return 1
        self.device.launch(function, geometry, values, given.stream or 0)
        return 0

    def cuTensorMapEncodeTiled(self, out, dtype, rank, address, sizes, strides, box, steps,
                               interleave, swizzle, promotion, fill):
        if out % 64:
            return 1
        longs = ctypes.c_uint64 * rank
        ints = ctypes.c_uint32 * rank
        self.options["tensor map"] = (
            dtype, address, tuple(longs.from_address(sizes)),
            tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
            tuple(ints.from_address(box)), tuple(ints.from_address(steps)), interleave, swizzle,
            promotion, fill)
        ctypes.memset(out, 0xAB, 128)
        return 0

    def cuStreamCreate(self, out, flags):
        self.options["stream flags"] = flags
        out[0] = self.device.create_stream()

    def cuStreamDestroy(self, stream):
        self.device.destroy_stream(stream)

    def cuStreamSynchronize(self, stream):
        self.device.synchronize(stream or 0)

    def cuStreamWaitEvent(self, stream, event, _):
        self.device.wait(stream or 0, event)

    def cuEventCreate(self, out, flags):
        out[0] = self.device.create_event(timed=not flags & api.EVENT_UNTIMED)

    def cuEventDestroy(self, event):
        self.device.destroy_event(event)

    def cuEventRecord(self, event, stream):
        self.device.record(event, stream or 0)

    def cuEventSynchronize(self, event):
        self.device.synchronize_event(event)

    def cuEventQuery(self, event):
        return 0 if self.device.is_done(event) else 600

    def cuEventElapsedTime(self, out, first, last):
        out[0] = 1e3 * self.device.seconds_between(first, last)

    def cuStreamBeginCapture(self, stream, mode):
        self.options["capture mode"] = mode
        self.device.begin_capture(stream)

    def cuStreamEndCapture(self, stream, out):
        out[0] = self.device.end_capture(stream)

    def cuGraphInstantiateWithFlags(self, out, graph, flags):
        self.options["graph flags"] = flags
        out[0] = graph + 0  # the emulated driver's graphs can be launched as they are

    def cuGraphLaunch(self, graph, stream):
        self.device.launch_graph(graph, stream or 0)

    def cuGraphExecDestroy(self, graph):
        self.device.destroy_graph(graph)

    def cuGraphDestroy(self, _):
        pass
