"""How other libraries see device arrays: DLPack capsules and ``__cuda_array_interface__``.

DLPack: ``dlpack.h`` 1.0 and the Python specification of ``__dlpack__``. The interface: "CUDA Array
Interface (Version 3)" of the numba documentation. Emulated memory has no address that another
library could use, so it is announced as an extension device (``kDLExtDev``), which others refuse.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from weft.runtime.device import Device
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.ndarray import DLTensor

CUDA, CUDA_MANAGED, EXTENSION = 2, 13, 12
# Streams by convention: 1 is the legacy default stream, 2 that of the thread; -1: do not wait.
LEGACY_STREAM, _NO_WAIT = 1, -1
# dtype name -> (type code, bits) of ``dlpack.h``.
DTYPE_CODES = {
    "bool": (6, 8), "bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
    "float8_e4m3fnuz": (11, 8), "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
}
KIND_CODES = {"i": 0, "u": 1, "f": 2, "c": 5}


class Exported(Protocol):
    """An array on a device."""

    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def context(self) -> DeviceContext: ...
    @property
    def device(self) -> Device: ...


def dlpack_device(array: Exported) -> tuple[int, int]:
    """The result of ``__dlpack_device__``."""
    kind = EXTENSION if array.context.properties.any_arch else CUDA
    return kind, array.device.number


def array_interface(array: Exported) -> dict[str, Any]:
    """The ``__cuda_array_interface__``; ``AttributeError`` for emulated memory."""
    if array.context.properties.any_arch:
        raise AttributeError("emulated device memory has no address that others can use")
    return {"shape": array.shape, "typestr": array.dtype.str, "data": (array.address, False),
            "version": 3, "strides": None, "stream": array.context.compute}


def to_capsule(array: Exported, stream: int | None) -> Any:
    """The capsule of ``__dlpack__(stream=...)``, once the stream waits for the array."""
    context = array.context
    if stream != _NO_WAIT:
        wait_for_compute(context, LEGACY_STREAM if stream is None else stream)
    return _new_capsule(array, dlpack_device(array))


def wait_for_compute(context: DeviceContext, stream: int) -> None:
    """Let a stream of another library wait for the work on the compute stream so far."""
    order_streams(context, context.compute, 0 if stream == LEGACY_STREAM else stream)


def order_streams(context: DeviceContext, first: int, then: int) -> None:
    """Let later work on the stream ``then`` wait for the work on ``first`` so far."""
    if first == then:
        return
    context.activate()
    driver = context.driver
    event = driver.create_event()
    driver.record(event, first)
    driver.wait(then, event)
    driver.destroy_event(event)  # the driver keeps it until it has happened


class ManagedTensor(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
capsule_pointer = _api.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
capsule_rename = _api.PyCapsule_SetName
capsule_rename.restype = ctypes.c_int
capsule_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
# With the capsule as an address: it is being destroyed when its destructor runs.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api))
UNUSED, USED = ctypes.c_char_p(b"dltensor"), ctypes.c_char_p(b"used_dltensor")
# Exported tensors by the address of their struct, until the consumer deletes them.
_exported: dict[int, tuple[Any, ...]] = {}


def _delete(address: int) -> None:
    _exported.pop(address, None)


_DELETE = _Deleter(_delete)


def _destroy(capsule: int) -> None:
    if _is_valid(capsule, UNUSED):  # no consumer took the tensor
        _delete(_pointer_of(capsule, UNUSED) or 0)


_DESTROY = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy)


def _new_capsule(array: Exported, device: tuple[int, int]) -> Any:
    rank = len(array.shape)
    shape = (ctypes.c_int64 * max(1, rank))(*array.shape)
    code, bits = DTYPE_CODES.get(array.dtype.name, (KIND_CODES.get(array.dtype.kind, -1),
                                               8 * array.dtype.itemsize))
    if code < 0:
        raise BufferError(f"DLPack has no dtype {array.dtype}")
    tensor = DLTensor(array.address, *device, rank, code, bits, 1, shape, None, 0)
    managed = ManagedTensor(tensor, None, ctypes.cast(_DELETE, ctypes.c_void_p))
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, array)
    return _new(address, UNUSED, ctypes.cast(_DESTROY, ctypes.c_void_p))
