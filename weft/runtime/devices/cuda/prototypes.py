"""The functions and structs of ``cuda.h`` (CUDA 12.3 and later) that the runtime uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from weft.runtime.devices.cuda.errors import NoDeviceError

_int, _uint, _size = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_pointer, _address, _text = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
_out_int, _out_pointer = ctypes.POINTER(_int), ctypes.POINTER(_pointer)

# Name of the symbol -> types of its arguments. All return a ``CUresult``.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_uint,),
    "cuDriverGetVersion": (_out_int,),
    "cuDeviceGetCount": (_out_int,),
    "cuDeviceGet": (_out_int, _int),
    "cuDeviceGetName": (_pointer, _int, _int),
    "cuDeviceTotalMem_v2": (ctypes.POINTER(_size), _int),
    "cuDeviceGetAttribute": (_out_int, _int, _int),
    "cuDevicePrimaryCtxRetain": (_out_pointer, _int),
    "cuCtxSetCurrent": (_pointer,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (ctypes.POINTER(_address), _size),
    "cuMemFree_v2": (_address,),
    "cuMemGetInfo_v2": (ctypes.POINTER(_size), ctypes.POINTER(_size)),
    "cuMemHostAlloc": (_out_pointer, _size, _uint),
    "cuMemFreeHost": (_pointer,),
    "cuPointerGetAttribute": (_pointer, _int, _address),
    "cuMemcpyHtoDAsync_v2": (_address, _pointer, _size, _pointer),
    "cuMemcpyDtoHAsync_v2": (_pointer, _address, _size, _pointer),
    "cuMemcpyAsync": (_address, _address, _size, _pointer),
    "cuMemsetD8Async": (_address, ctypes.c_ubyte, _size, _pointer),
    "cuModuleLoadDataEx": (_out_pointer, _pointer, _uint, ctypes.POINTER(_int), _out_pointer),
    "cuModuleUnload": (_pointer,),
    "cuModuleGetFunction": (_out_pointer, _pointer, _text),
    "cuFuncSetAttribute": (_pointer, _int, _int),
    "cuLaunchKernelEx": (_pointer, _pointer, _pointer, _pointer),
    "cuTensorMapEncodeTiled": (_pointer, _int, _uint, _address, _pointer, _pointer, _pointer,
                               _pointer, _int, _int, _int, _int),
    "cuStreamCreate": (_out_pointer, _uint),
    "cuStreamDestroy_v2": (_pointer,),
    "cuStreamSynchronize": (_pointer,),
    "cuStreamWaitEvent": (_pointer, _pointer, _uint),
    "cuEventCreate": (_out_pointer, _uint),
    "cuEventDestroy_v2": (_pointer,),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventSynchronize": (_pointer,),
    "cuEventQuery": (_pointer,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _pointer, _pointer),
    "cuStreamBeginCapture_v2": (_pointer, _int),
    "cuStreamEndCapture": (_pointer, _out_pointer),
    "cuGraphInstantiateWithFlags": (_out_pointer, _pointer, ctypes.c_ulonglong),
    "cuGraphLaunch": (_pointer, _pointer),
    "cuGraphExecDestroy": (_pointer,),
    "cuGraphDestroy": (_pointer,),
}

# ``CUdevice_attribute``.
MAX_THREADS, MAX_GRID, WARP_SIZE, CLOCK, MULTIPROCESSORS = 1, (5, 6, 7), 10, 13, 16
MEMORY_CLOCK, BUS_BITS, CAPABILITY, SHARED_OPT_IN = 36, 37, (75, 76), 97
# ``CUfunction_attribute``, ``CUpointer_attribute``.
MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14
MEMORY_TYPE, DEVICE_ORDINAL = 2, 9
MEMORY_OF_DEVICE = 2
# Flags.
HOST_PORTABLE, STREAM_NON_BLOCKING, EVENT_UNTIMED, CAPTURE_THREAD_LOCAL = 1, 1, 2, 1
# ``CUjit_option``.
ERROR_LOG, ERROR_LOG_BYTES = 5, 6
# ``CUlaunchAttributeID``.
CLUSTER_DIMENSION = 4

# ``CUtensorMapDataType`` by the name of a dtype.
TENSOR_MAP_DTYPES = {"uint8": 0, "int8": 0, "bool": 0, "uint16": 1, "int16": 1, "uint32": 2,
                     "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7,
                     "float64": 8, "bfloat16": 9, "tfloat32": 11,
                     "float8_e4m3fn": 0, "float8_e5m2": 0}
TENSOR_MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
TENSOR_MAP_INTERLEAVES = {0: 0, 16: 1, 32: 2}
TENSOR_MAP_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``; ``value`` is a union, here as words."""

    _fields_ = (("id", _int), ("pad", ctypes.c_char * 4), ("value", _uint * 16))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (("grid", _uint * 3), ("block", _uint * 3), ("shared_bytes", _uint),
                ("stream", _pointer), ("attributes", ctypes.POINTER(LaunchAttribute)),
                ("num_attributes", _uint))


class TensorMapWords(ctypes.Structure):
    """``CUtensorMap``: 128 bytes that only the driver understands."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)


# The address of a symbol of libcuda; 0 if it lacks the symbol.
Lookup = Callable[[str], int]


def system_libcuda() -> Lookup:
    """The symbols of the installed driver; ``NoDeviceError`` if there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDeviceError(
            "no CUDA driver is installed", got=error, expected="libcuda.so.1",
            help="install the NVIDIA driver, or set WEFT_CUDA=emulate to run kernels on the CPU "
                 "by emulation") from None

    def lookup(name: str) -> int:
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    return lookup


def bound_functions(lookup: Lookup) -> dict[str, Any]:
    """The functions of ``PROTOTYPES``; calling one releases Python's lock."""
    functions = {}
    for name, arguments in PROTOTYPES.items():
        address = lookup(name)
        if not address:
            raise NoDeviceError("the CUDA driver is too old", got=f"it lacks {name}",
                                expected="a driver of CUDA 12.3 or later (545)",
                                help="install a newer NVIDIA driver")
        functions[name] = ctypes.CFUNCTYPE(_int, *arguments)(address)
    return functions
