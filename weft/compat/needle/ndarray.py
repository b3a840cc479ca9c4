"""Needle's NDArray: a shape, strides and an offset over a flat buffer of float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from weft.support.errors import InvalidInputError


class BackendDevice:
    """A device of Needle: it makes arrays.

    Those of ``cpu_numpy()`` are NumPy's, of any dtype, as in Needle's first homework.
    """

    __tile_size__ = 8  # rows and columns of a tile of ``matmul_tiled``
    weft_device = "cpu"  # where tensors of weft are

    def __init__(self, name: str, is_enabled: bool, *, is_numpy: bool = False) -> None:
        self.name, self._is_enabled, self.is_numpy = name, is_enabled, is_numpy

    def __repr__(self) -> str:
        return f"{self.name}()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendDevice) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def enabled(self) -> bool:
        """Whether arrays can be on the device."""
        return self._is_enabled

    def _check(self) -> None:
        if not self._is_enabled:
            raise InvalidInputError(f"the device {self.name} is not there", expected="cpu()",
                                    help="all_devices() lists devices, enabled() says which work")

    def of(self, values: np.ndarray) -> Any:
        """An array of the device with these elements. Raises ``InvalidInputError``."""
        self._check()
        return values.copy() if self.is_numpy else NDArray(values, self)

    def empty(self, shape: Sequence[int], dtype: str = "float32") -> Any:
        """An array of zeros."""
        return self.full(shape, 0.0, dtype)

    def full(self, shape: Sequence[int], fill_value: float, dtype: str = "float32") -> Any:
        return self.of(np.full(tuple(shape), fill_value, dtype))

    def one_hot(self, n: int, i: Any, dtype: str = "float32") -> Any:
        """Rows of the identity matrix."""
        return self.of(np.eye(n, dtype=dtype)[np.asarray(i).astype(int)])

    def matmul_tiled(self, a: Any, b: Any, out: Any, m: int, n: int, p: int) -> None:
        """``out = a @ b`` of memory in tiles: (m / t, n / t, t, t) for an m x n matrix."""
        t = self.__tile_size__
        left = a.memory.reshape(m // t, n // t, t, t)
        right = b.memory.reshape(n // t, p // t, t, t)
        out.memory[:] = np.einsum("mnij,npjk->mpik", left, right).reshape(-1)

    def rand(self, *shape: int, dtype: str = "float32") -> Any:
        """Uniform numbers between 0 and 1, of NumPy's global generator as in Needle."""
        return self.of(np.random.rand(*shape).astype(dtype))  # noqa: NPY002 - Needle's seeds

    def randn(self, *shape: int, dtype: str = "float32") -> Any:
        """Normally distributed numbers."""
        return self.of(np.random.randn(*shape).astype(dtype))  # noqa: NPY002 - as above


_CPU, _CUDA = BackendDevice("cpu", True), BackendDevice("cuda", False)
_NUMPY = BackendDevice("cpu_numpy", True, is_numpy=True)
_DEFAULT: ContextVar[BackendDevice] = ContextVar("needle_device", default=_CPU)


def cpu() -> BackendDevice:
    """The host."""
    return _CPU


def cuda() -> BackendDevice:
    """NVIDIA GPUs, on which these arrays cannot be: ``enabled()`` is false."""
    return _CUDA


def cpu_numpy() -> BackendDevice:
    """The host, with NumPy's arrays of any dtype; ``all_devices`` does not list it."""
    return _NUMPY


def default_device() -> BackendDevice:
    """The device of arrays that name none."""
    return _DEFAULT.get()


def set_default_device(device: BackendDevice) -> None:
    """Put arrays that name no device on ``device`` (Needle's ``NEEDLE_BACKEND``)."""
    _DEFAULT.set(device)


def all_devices() -> list[BackendDevice]:
    """The devices by name, enabled or not."""
    return [_CPU, _CUDA]


class _Handle:
    """The memory of an array, which its views share."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory

    def ptr(self) -> int:
        """The address of the memory."""
        return self.memory.ctypes.data


class NDArray:
    """A view of flat memory: reshaping, permuting, broadcasting and slicing copy nothing.

    Arithmetic makes compact arrays; assignment writes through to the memory.
    """

    def __init__(self, other: Any, device: BackendDevice | None = None) -> None:
        if isinstance(other, NDArray):
            other, device = other.numpy(), device or other.device
        values = np.array(other, np.float32, order="C")
        self.put_over(values.shape, compact_strides(values.shape), 0, _Handle(values.reshape(-1)),
                  device or default_device())

    def put_over(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, handle: _Handle,
        device: BackendDevice,
    ) -> None:
        self._shape, self._strides, self._offset = shape, strides, offset
        self._handle, self._device = handle, device

    @staticmethod
    def make(
        shape: Sequence[int], strides: Sequence[int] | None = None,
        device: BackendDevice | None = None, handle: _Handle | None = None, offset: int = 0,
    ) -> NDArray:
        """An array over ``handle``, or over new memory."""
        made = NDArray.__new__(NDArray)
        memory = handle or _Handle(np.zeros(math.prod(shape), np.float32))
        steps = compact_strides(shape) if strides is None else tuple(strides)
        made.put_over(tuple(shape), steps, offset, memory, device or default_device())
        return made

    def view(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> NDArray:
        return NDArray.make(shape, strides, self._device, self._handle, offset)

    shape = property(lambda self: self._shape)
    strides = property(lambda self: self._strides)
    device = property(lambda self: self._device)
    ndim = property(lambda self: len(self._shape))
    size = property(lambda self: math.prod(self._shape))
    dtype = "float32"

    def elements(self) -> np.ndarray:
        """The elements, as a view of the memory."""
        return np.lib.stride_tricks.as_strided(
            self._handle.memory[self._offset :], self._shape, [4 * s for s in self._strides])

    def numpy(self) -> np.ndarray:
        """A copy of the elements."""
        return self.elements().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # always one
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"NDArray({self.numpy()}, device={self._device})"

    def __len__(self) -> int:
        return self._shape[0]

    # -- views ----------------------------------------------------------------------------------

    def is_compact(self) -> bool:
        """Whether the array is the whole of its memory, in order."""
        return (self._strides == compact_strides(self._shape)
                and self.size == self._handle.memory.size)

    def compact(self) -> NDArray:
        """The array itself, or a compact copy."""
        return self if self.is_compact() else NDArray(self.numpy(), self._device)

    def as_strided(self, shape: Sequence[int], strides: Sequence[int]) -> NDArray:
        """The same memory with another shape and strides."""
        return self.view(shape, strides, self._offset)

    def reshape(self, *new_shape: Any) -> NDArray:
        """Another shape of as many elements; a compact array is not copied."""
        given = new_shape[0] if len(new_shape) == 1 and not isinstance(
            new_shape[0], int) else new_shape
        known = math.prod(s for s in given if s != -1)
        shape = tuple(self.size // max(known, 1) if s == -1 else s for s in given)
        if math.prod(shape) != self.size:
            raise InvalidInputError("reshape: another number of elements", expected=self.size,
                                    got=tuple(given))
        source = self.compact()
        return source.view(shape, compact_strides(shape), 0)

    @property
    def flat(self) -> NDArray:
        """The elements as one axis."""
        return self.reshape((self.size,))

    def permute(self, new_axes: Sequence[int]) -> NDArray:
        """The axes in another order."""
        if sorted(new_axes) != list(range(self.ndim)):
            raise InvalidInputError("permute: not a permutation of the axes", got=tuple(new_axes))
        return self.view([self._shape[i] for i in new_axes],
                          [self._strides[i] for i in new_axes], self._offset)

    def broadcast_to(self, new_shape: Sequence[int]) -> NDArray:
        """Axes of size 1 repeated, by a stride of 0."""
        added = len(new_shape) - self.ndim
        shape, strides = (1,) * added + self._shape, (0,) * added + self._strides
        if added < 0 or any(old not in (1, new) for old, new in
                            zip(shape, new_shape, strict=True)):
            raise InvalidInputError("broadcast_to: the shapes do not fit", got=self._shape,
                                    expected=tuple(new_shape))
        steps = [0 if old != new else step
                 for old, new, step in zip(shape, new_shape, strides, strict=True)]
        return self.view(new_shape, steps, self._offset)

    def process_slice(self, sl: slice, dim: int) -> slice:
        """``sl`` of axis ``dim`` with a start, stop and step, of which the step is positive."""
        start, stop, step = sl.indices(self._shape[dim])
        if step <= 0 or stop <= start:
            raise InvalidInputError("a slice with a positive step and elements", got=sl)
        return slice(start, stop, step)

    def __getitem__(self, idxs: Any) -> NDArray:
        """Slices of positive steps; an index keeps its axis, of size 1."""
        chosen = idxs if isinstance(idxs, tuple) else (idxs,)
        chosen += (slice(None),) * (self.ndim - len(chosen))
        if len(chosen) != self.ndim:
            raise InvalidInputError("an index for each axis", expected=self.ndim, got=len(chosen))
        offset, shape, strides = self._offset, [], []
        for index, size, stride in zip(chosen, self._shape, self._strides, strict=True):
            single = not isinstance(index, slice)
            start, stop, step = slice(index, index + 1 or None).indices(size) if single \
                else index.indices(size)
            offset += start * stride
            shape.append(len(range(start, stop, step)))
            strides.append(stride * step)
        return self.view(shape, strides, offset)

    def __setitem__(self, idxs: Any, other: Any) -> None:
        self[idxs].elements()[...] = np.asarray(other, np.float32).reshape(
            self[idxs].shape if isinstance(other, NDArray) else np.shape(other))

    # -- arithmetic -----------------------------------------------------------------------------

    def _of(self, values: Any) -> NDArray:
        return NDArray(values, self._device)

    def matmul(self, other: NDArray) -> NDArray:
        return self._of(self.elements() @ other.elements())

    __matmul__ = matmul

    def sum(self, axis: Any = None, keepdims: bool = False) -> NDArray:
        return self._of(self.elements().sum(_axis(axis), keepdims=keepdims))

    def max(self, axis: Any = None, keepdims: bool = False) -> NDArray:
        return self._of(self.elements().max(_axis(axis), keepdims=keepdims))

    def flip(self, axes: Any) -> NDArray:
        """The elements of ``axes`` in reverse order."""
        return self._of(np.flip(self.elements(), _axis(axes)))

    def pad(self, axes: Sequence[tuple[int, int]]) -> NDArray:
        """Zeros before and after each axis."""
        return self._of(np.pad(self.elements(), axes))


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def compact_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a compact array."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _method(function: Callable[..., Any], is_swapped: bool = False) -> Callable[..., NDArray]:
    def apply(self: NDArray, *others: Any) -> NDArray:
        values = [o.elements() if isinstance(o, NDArray) else o for o in others]
        operands = (*values, self.elements()) if is_swapped else (self.elements(), *values)
        return self._of(function(*operands))

    return apply


for _name, _function in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "pow": np.power,
}.items():
    setattr(NDArray, f"__{_name}__", _method(_function))
    setattr(NDArray, f"__r{_name}__", _method(_function, is_swapped=True))
for _name, _function in {
    "__neg__": np.negative, "__eq__": np.equal, "__ne__": np.not_equal, "__ge__": np.greater_equal,
    "__le__": np.less_equal, "__gt__": np.greater, "__lt__": np.less, "log": np.log,
    "exp": np.exp, "tanh": np.tanh, "maximum": np.maximum,
}.items():
    setattr(NDArray, _name, _method(_function))


def array(a: Any, dtype: str = "float32", device: BackendDevice | None = None) -> NDArray:
    """An array of the elements of ``a``."""
    if dtype != "float32":
        raise InvalidInputError("arrays of Needle are float32", got=dtype)
    return NDArray(a, device)
