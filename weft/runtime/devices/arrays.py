"""``ArrayMemory``: the arrays in the memory of one device, as tensors hold them.

A tensor that lies on a device has as its value an array of that device's memory, which programs for
the device take and give. A kind of device brings its own class and registers it here by name; the
arrays of the host are NumPy's.
"""

from __future__ import annotations

import importlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.runtime.arena import AlignedBlock
from weft.runtime.device import HOST, Device
from weft.support.dataclass import dataclass
from weft.support.registry import Registry

# The class of each kind of device, as "module:class", imported with the first array there.
ARRAY_MEMORIES: Registry[str] = Registry("kind of device")
ARRAY_MEMORIES.register("cpu", "weft.runtime.devices.arrays:HostMemory")
ARRAY_MEMORIES.register("cuda", "weft.runtime.devices.cuda.arrays:CudaMemory")
ARRAY_MEMORIES.register("sim", "weft.runtime.devices.sim.arrays:SimMemory")

_NUMBER = itertools.count(1).__next__


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """Bytes in a device's memory: of arrays now and at most so far, and of free blocks kept."""

    used: int
    peak: int
    kept: int = 0


class ArrayMemory(ABC):
    """The memory of one device of a kind. ``target`` is the kind of target that makes programs for
    it, and ``capability`` what its instructions depend on, where they do.
    """

    kind: ClassVar[str]
    target: ClassVar[str] = HOST.kind
    capability: tuple[int, int] | None = None

    def __init__(self, number: int) -> None:
        self.device = Device(type(self).kind, number)
        self.serial = _NUMBER()  # of this memory, for keys of programs

    @classmethod
    def count(cls) -> int:
        """How many devices of the kind there are."""
        return 1

    @abstractmethod
    def upload(self, array: np.ndarray) -> Any:
        """A copy of an array of the host, in this memory."""

    @abstractmethod
    def download(self, value: Any) -> np.ndarray:
        """A copy in host memory, once the work that writes ``value`` is done."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new array with undefined elements."""

    @abstractmethod
    def assign(self, target: Any, source: Any) -> None:
        """Write the elements of ``source``, of this memory too, to ``target``."""

    def clone(self, value: Any) -> Any:
        """A new array with the elements of one of this memory."""
        made = self.empty(value.shape, value.dtype)
        self.assign(made, value)
        return made

    def keeps(self, module: Any, state: str) -> bool:  # noqa: ARG002 - for those that mix memories
        """Whether a program for the device has a state in this memory, not in that of the host."""
        return True

    @abstractmethod
    def run(self, module: Callable[..., Any], values: Sequence[Any]) -> Sequence[Any]:
        """The results of a program, in this memory; some of ``values`` may be of the host."""

    @abstractmethod
    def states(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arrays of this memory as ``Executable.share_state`` takes them."""

    @abstractmethod
    def statistics(self) -> MemoryStatistics:
        """The use of the memory."""

    def synchronize(self) -> None:  # noqa: B027 - most devices are done when a call returns
        """Wait until all work of the device is done."""

    def trim(self) -> None:  # noqa: B027 - most keep nothing
        """Give kept memory back to the system."""


class HostMemory(ArrayMemory):
    """The memory of the host, whose arrays are NumPy's."""

    kind = HOST.kind

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array

    def download(self, value: np.ndarray) -> np.ndarray:
        return value

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return aligned(shape, dtype)

    def assign(self, target: np.ndarray, source: np.ndarray) -> None:
        np.copyto(target, source)

    def clone(self, value: np.ndarray) -> np.ndarray:
        return value.copy()

    def run(self, module: Callable[..., Any], values: Sequence[Any]) -> Sequence[Any]:
        return tupled(module(*values))

    def states(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        return arrays

    def statistics(self) -> MemoryStatistics:
        return MemoryStatistics(0, 0)


def tupled(results: Any) -> Sequence[Any]:
    """The results of a program, which are one array alone or a tuple."""
    return results if isinstance(results, tuple) else (results,)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new array of the host, aligned as programs like it; ``AllocationError`` without memory."""
    count = math.prod(shape)
    if not count:
        return np.zeros(shape, dtype)
    block = AlignedBlock(count * dtype.itemsize, purpose=f"a tensor, {dtype} {shape}")
    return block.array.view(dtype).reshape(shape)


def memory_class(kind: str) -> type[ArrayMemory]:
    """The class of the memories of a kind of device; ``RegistryError`` for an unknown kind."""
    module, _, name = ARRAY_MEMORIES.get(kind).partition(":")
    found: type[ArrayMemory] = getattr(importlib.import_module(module), name)
    return found
