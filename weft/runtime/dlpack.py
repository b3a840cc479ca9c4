"""Import of DLPack capsules with dtypes that NumPy does not support: bfloat16, 8-bit floats.

The struct layout is that of ``DLManagedTensor`` in ``dlpack.h``. Memory is shared, and the array
keeps the producer's object alive.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from weft.runtime.dtypes import numpy_dtype

CPU = 1
_TYPES = {  # (type code, bits) of dlpack.h
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}


class DLTensor(ctypes.Structure):
    """``DLTensor`` of ``dlpack.h``."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def from_dlpack(value: Any) -> np.ndarray:
    """A NumPy array that shares the memory of a DLPack object on the CPU.

    Raises the ``BufferError`` or ``RuntimeError`` of the producer or of NumPy for unsupported
    objects.
    """
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as refusal:
        capsule = value.__dlpack__()
        found = _read(capsule)
        if found is None:
            raise refusal from None
        return found


def _read(capsule: Any) -> np.ndarray | None:
    # Called without ``max_version``, ``__dlpack__`` must return the unversioned struct.
    address = _pointer(capsule, b"dltensor")
    tensor = DLTensor.from_address(address or 0)
    name = _TYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        return None
    dtype = numpy_dtype(name)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    return _over_memory((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, capsule)


def _over_memory(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None,
                 dtype: np.dtype, owner: Any) -> np.ndarray:
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    steps = strides or (0,) * len(shape)
    span = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) if strides \
        else (math.prod(shape) - 1) * dtype.itemsize
    memory = (ctypes.c_uint8 * (span + dtype.itemsize)).from_address(address)
    setattr(memory, "owner", owner)  # noqa: B010 - freed when the last view goes
    return np.ndarray(shape, dtype, memoryview(memory), 0, strides)
