"""``DeviceArray``: a tensor in the memory of a GPU, shared with other libraries without a copy.

Work on an array of weft is ordered on the compute stream of its device. A library that takes the
array over DLPack or ``__cuda_array_interface__`` is made to wait for that stream, and weft waits
for the stream of a producer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.runtime.arena import address_of
from weft.runtime.device import Device
from weft.runtime.devices.cuda.allocator import DeviceBlock
from weft.runtime.devices.cuda.context import DeviceContext, context_of
from weft.runtime.devices.cuda.errors import DeviceArrayError
from weft.runtime.devices.cuda.exchange import array_interface, dlpack_device, to_capsule
from weft.runtime.devices.cuda.foreign import Foreign, dlpack_number, foreign_memory
from weft.runtime.dtypes import numpy_dtype


class DeviceArray:
    """A C-contiguous tensor of ``shape`` and ``dtype`` in the memory of ``device``.

    ``address`` is that of its first byte. Results of modules on a GPU are such arrays if an input
    is one. ``numpy()`` copies the elements to the host. Memory is freed with the last reference,
    or by ``free``; using a freed array raises ``DeviceArrayError``.
    """

    __slots__ = ("__weakref__", "_address", "_context", "_owner", "dtype", "shape")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype,
                 context: DeviceContext, owner: object) -> None:
        self._address = address
        self.shape = tuple(shape)
        self.dtype = dtype
        self._context = context
        self._owner = owner

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any = "float32", device: int = 0) -> DeviceArray:
        """A new array with undefined elements; ``DeviceMemoryError`` if there is no memory."""
        return new_array(context_of(device), shape, _dtype(dtype))

    @staticmethod
    def from_numpy(array: Any, device: int = 0) -> DeviceArray:
        """A copy of an array of the host on the device."""
        source = np.asarray(array, order="C")
        made = new_array(context_of(device), source.shape, source.dtype)
        made.copy_from(source)
        return made

    @staticmethod
    def from_dlpack(value: Any) -> DeviceArray:
        """An array that shares the memory of a DLPack object on a GPU.

        Raises ``DeviceArrayError`` for an object that lies elsewhere.
        """
        if isinstance(value, DeviceArray):
            return value
        number = dlpack_number(value)
        if number is None:
            raise DeviceArrayError("the array is not in the memory of a GPU",
                                   got=type(value).__name__)
        return _shared(foreign_memory(value, context_of(number)), context_of(number))

    @property
    def address(self) -> int:
        """The address of the first byte; ``DeviceArrayError`` if the array was freed."""
        if self.is_freed:
            raise DeviceArrayError("the device array was freed", got=self._described())
        return self._address

    @property
    def device(self) -> Device:
        """The device whose memory holds the array."""
        return self._context.device

    @property
    def context(self) -> DeviceContext:
        """The open device."""
        return self._context

    @property
    def stream(self) -> int:
        """The stream that orders work on the array, as a handle of the driver."""
        return self._context.compute

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_freed(self) -> bool:
        """Whether ``free`` was called."""
        return isinstance(self._owner, DeviceBlock) and self._owner.is_freed

    @property
    def is_foreign(self) -> bool:
        """Whether the memory belongs to another library."""
        return not isinstance(self._owner, DeviceBlock)

    def free(self) -> None:
        """Give the memory back now. Memory of another library is left to that library."""
        if isinstance(self._owner, DeviceBlock):
            self._owner.free()
        else:
            self._owner = None

    def numpy(self) -> np.ndarray:
        """A copy in host memory, once the work that writes the array is done."""
        result = np.empty(self.shape, self.dtype)
        if self.nbytes:
            context, address = self._context, self.address
            context.activate()
            context.driver.copy_to_host(address_of(result), address, self.nbytes, context.compute)
            context.driver.synchronize(context.compute)
        return result

    def start(self, shape: tuple[int, ...]) -> DeviceArray:
        """The array of this shape at the start of the memory, which both share."""
        return DeviceArray(self.address, shape, self.dtype, self._context, self._owner)

    def copy_from(self, source: Any) -> None:
        """Write the elements of an array of the host, or of a device array of the same device."""
        if isinstance(source, DeviceArray):
            self._check_like(source.shape, source.dtype)
            self._context.activate()
            self._context.driver.copy_on_device(self.address, source.address, self.nbytes,
                                                self._context.compute)
            return
        array = np.ascontiguousarray(source).reshape(np.shape(source))
        self._check_like(array.shape, array.dtype)
        if array.nbytes:
            context, address = self._context, self.address
            context.activate()
            context.driver.copy_to_device(address, address_of(array), array.nbytes,
                                          context.compute)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a device array is copied to become a NumPy array")
        result = self.numpy()
        return result if dtype is None else result.astype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the CUDA Array Interface; emulated memory does not have it."""
        return array_interface(self)

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> Any:
        """A DLPack capsule; ``stream`` is the consumer's, which is made to wait for the array."""
        return to_capsule(self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack_device(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional array")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self._described()}{', freed' if self.is_freed else ''}>"

    def _described(self) -> str:
        return f"DeviceArray {self.shape} {self.dtype} on {self.device}"

    def _check_like(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        if shape != self.shape or dtype != self.dtype:
            raise DeviceArrayError("arrays of different shape or dtype", expected=self._described(),
                                   got=f"{shape} {dtype}")


def new_array(context: DeviceContext, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
    """An array with new memory for work on the compute stream."""
    block = context.memory.allocate(math.prod(shape) * dtype.itemsize, context.compute)
    return DeviceArray(block.address, shape, dtype, context, block)


def _dtype(dtype: Any) -> np.dtype:
    return numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)


def as_device_array(value: Any, context: DeviceContext) -> DeviceArray | None:
    """``value`` as an array on the device of ``context``; ``None`` if it lies on the host.

    Raises ``DeviceArrayError`` for a freed array, for memory of another device, and for arrays
    that are not C-contiguous.
    """
    if isinstance(value, DeviceArray):
        if value.context is not context:
            raise DeviceArrayError("the array lies on another device", got=repr(value),
                                   expected=str(context.device),
                                   help="copy it: DeviceArray.from_numpy(x.numpy(), device=...)")
        if value.is_freed:
            raise DeviceArrayError("the device array was freed", got=repr(value))
        return value
    if isinstance(value, np.ndarray):
        return None
    found = foreign_memory(value, context)
    return None if found is None else _shared(found, context)


def _shared(found: Foreign | None, context: DeviceContext) -> DeviceArray:
    if found is None:
        raise DeviceArrayError("the array is not in the memory of a GPU")
    return DeviceArray(found.address, found.shape, found.dtype, context, found.owner)
