"""``CudaMemory``: tensors on a GPU. Copies and programs are ordered on its compute stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.runtime.devices.arrays import ArrayMemory, MemoryStatistics, tupled
from weft.runtime.devices.cuda.array import DeviceArray, new_array
from weft.runtime.devices.cuda.context import KIND, context_of, current_driver
from weft.runtime.devices.cuda.errors import NoDeviceError


class CudaMemory(ArrayMemory):
    """The memory of ``cuda:number`` of the present driver; ``NoDeviceError`` without one."""

    kind = target = KIND

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.context = context_of(number)
        self.capability = self.context.properties.capability

    @classmethod
    def count(cls) -> int:
        try:
            return current_driver().device_count()
        except NoDeviceError:
            return 0

    def upload(self, array: np.ndarray) -> DeviceArray:
        made = self.empty(array.shape, array.dtype)
        made.copy_from(array)
        return made

    def download(self, value: Any) -> np.ndarray:
        return value.numpy() if isinstance(value, DeviceArray) else np.asarray(value)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        return new_array(self.context, shape, dtype)

    def assign(self, target: DeviceArray, source: Any) -> None:
        target.copy_from(source)

    def run(self, module: Callable[..., Any], values: Sequence[Any]) -> Sequence[Any]:
        results = tupled(module(*values))
        # A program none of whose inputs is on the device gives arrays of the host.
        return [self.upload(one) if isinstance(one, np.ndarray) else one for one in results]

    def keeps(self, module: Any, state: str) -> bool:
        return isinstance(module.state[state], DeviceArray)

    def states(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        return arrays

    def statistics(self) -> MemoryStatistics:
        memory = self.context.memory
        return MemoryStatistics(memory.used_bytes, memory.peak_bytes, memory.kept_bytes)

    def synchronize(self) -> None:
        self.context.activate()
        self.context.driver.synchronize_device()

    def trim(self) -> None:
        self.context.memory.trim()
