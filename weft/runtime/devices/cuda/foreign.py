"""Arrays of other libraries on a GPU, to be used without a copy.

Memory is shared, and the device array keeps the producer's object alive. The compute stream waits
for the producer's work: DLPack producers are told the stream, and ``__cuda_array_interface__`` says
which stream to wait for.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.errors import DeviceArrayError
from weft.runtime.devices.cuda.exchange import (
    CUDA,
    CUDA_MANAGED,
    DTYPE_CODES,
    KIND_CODES,
    LEGACY_STREAM,
    UNUSED,
    USED,
    ManagedTensor,
    capsule_pointer,
    capsule_rename,
    order_streams,
)
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.ndarray import DLTensor
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Foreign:
    """Memory of another library on a device, which ``owner`` keeps alive."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    owner: object


def foreign_memory(value: Any, context: DeviceContext) -> Foreign | None:
    """The memory of an array on the device of ``context``; ``None`` if it lies on the host.

    Raises ``DeviceArrayError`` for memory of another device, and for arrays that are not
    C-contiguous.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(interface, value, context)
    number = dlpack_number(value)
    if number is None:
        return None
    _check_device(number, context)
    return _from_capsule(value.__dlpack__(stream=context.compute))


def dlpack_number(value: Any) -> int | None:
    """The number of the GPU that a DLPack object lies on; ``None`` for other objects."""
    if not hasattr(value, "__dlpack_device__") or not hasattr(value, "__dlpack__"):
        return None
    kind, number = map(int, value.__dlpack_device__())
    return number if kind in (CUDA, CUDA_MANAGED) else None


def _check_device(number: int, context: DeviceContext) -> None:
    if number != context.device.number:
        raise DeviceArrayError("the array lies on another device", got=f"cuda:{number}",
                               expected=str(context.device))


def _from_interface(interface: Mapping[str, Any], owner: object, context: DeviceContext
                    ) -> Foreign:
    dtype = np.dtype(interface["typestr"])
    shape = tuple(map(int, interface["shape"]))
    _check_contiguous(shape, interface.get("strides"), dtype.itemsize)
    address = int(interface["data"][0])
    if interface.get("mask") is not None:
        raise DeviceArrayError("arrays with a mask are not supported", got=type(owner).__name__)
    number = context.driver.device_of(address) if math.prod(shape) else context.device.number
    if number is None:
        raise DeviceArrayError("not an address of device memory", got=f"{address:#x}")
    _check_device(number, context)
    stream = interface.get("stream")
    if stream is not None:
        order_streams(context, 0 if int(stream) == LEGACY_STREAM else int(stream), context.compute)
    return Foreign(address, shape, dtype, owner)


def _check_contiguous(shape: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> None:
    if strides is None or 0 in shape:
        return
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            raise DeviceArrayError("the device array is not C-contiguous",
                                   got=f"shape {tuple(shape)}, strides {tuple(strides)} bytes",
                                   help="pass a contiguous copy")
        expected *= size


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Taken:
    """Owns a tensor taken from a capsule, and calls its deleter at the end."""

    __slots__ = ("_address", "_call")

    def __init__(self, address: int, deleter: int | None) -> None:
        self._address = address
        self._call: Callable[[int], None] | None = _Deleter(deleter) if deleter else None

    def __del__(self) -> None:
        if self._call is not None:
            self._call(self._address)


def _from_capsule(capsule: Any) -> Foreign:
    address = capsule_pointer(capsule, UNUSED) or 0
    managed = ManagedTensor.from_address(address)
    tensor = managed.tensor
    dtype = _dtype_of(tensor)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = [tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim)] \
        if tensor.strides else None
    _check_contiguous(shape, strides, dtype.itemsize)
    start = (tensor.data or 0) + tensor.byte_offset
    capsule_rename(capsule, USED)
    return Foreign(start, shape, dtype, _Taken(address, managed.deleter))


def _dtype_of(tensor: DLTensor) -> np.dtype:
    for name, pair in DTYPE_CODES.items():
        if pair == (tensor.code, tensor.bits) and tensor.lanes == 1:
            return numpy_dtype(name)
    kind = next((kind for kind, code in KIND_CODES.items() if code == tensor.code), None)
    if kind is None or tensor.lanes != 1 or tensor.bits % 8:
        raise DeviceArrayError("an unsupported dtype of DLPack",
                               got=f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    return np.dtype(f"{kind}{tensor.bits // 8}")
