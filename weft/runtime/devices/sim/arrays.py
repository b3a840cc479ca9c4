"""``SimArray`` and ``SimMemory``: tensors on a simulated device, which is a part of this machine.

A program there is one for CPUs that runs in the worker of the device, on arrays of its memory. An
array is no NumPy array, so that no program of another device reads it unnoticed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from weft.runtime.devices.arrays import ArrayMemory, MemoryStatistics, aligned, tupled
from weft.runtime.devices.sim.description import SIM
from weft.runtime.devices.sim.workers import WORKERS

T = TypeVar("T")


class SimArray:
    """An array of ``shape`` and ``dtype`` in the memory of a simulated device."""

    __slots__ = ("_counter", "_data", "dtype", "shape")

    def __init__(self, data: np.ndarray, counter: Counter) -> None:
        self._data = data
        self._counter = counter
        self.shape = data.shape
        self.dtype = data.dtype
        counter.add(data.nbytes)

    def __del__(self) -> None:
        counter = getattr(self, "_counter", None)  # none after a refused allocation
        if counter is not None:
            counter.add(-self._data.nbytes)

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def data(self) -> np.ndarray:
        """The memory itself, for programs of the device."""
        return self._data


class Counter:
    """The bytes in use, now and at most so far."""

    __slots__ = ("_lock", "peak", "used")

    def __init__(self) -> None:
        # Arrays are freed by garbage collection, which may interrupt ``add``.
        self._lock = threading.RLock()
        self.used = 0
        self.peak = 0

    def add(self, nbytes: int) -> None:
        with self._lock:
            self.used += nbytes
            self.peak = max(self.peak, self.used)


class SimMemory(ArrayMemory):
    """The memory of ``sim:number``."""

    kind = SIM

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._counter = Counter()

    @classmethod
    def count(cls) -> int:
        return 0  # a simulated device is there once it is named

    def upload(self, array: np.ndarray) -> SimArray:
        made = self.empty(array.shape, array.dtype)
        np.copyto(made.data(), array)
        return made

    def download(self, value: Any) -> np.ndarray:
        return value.data().copy() if isinstance(value, SimArray) else np.asarray(value)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> SimArray:
        return SimArray(aligned(shape, dtype), self._counter)

    def assign(self, target: SimArray, source: SimArray) -> None:
        np.copyto(target.data(), source.data())

    def run(self, module: Callable[..., Any], values: Sequence[Any]) -> Sequence[Any]:
        arrays = [value.data() if isinstance(value, SimArray) else value for value in values]
        results = self._in_worker(lambda: tupled(module(*arrays)))
        return [SimArray(one, self._counter) for one in results]

    def states(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: array.data() if isinstance(array, SimArray) else array
                for name, array in arrays.items()}

    def statistics(self) -> MemoryStatistics:
        return MemoryStatistics(self._counter.used, self._counter.peak)

    def _in_worker(self, work: Callable[[], T]) -> T:
        """The result of ``work`` in the thread of the device, or its error."""
        done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                done.put((work(), None))
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                done.put((None, error))

        WORKERS.worker((self.device, self.device)).submit(run)
        result, error = done.get()
        if error is not None:
            raise error
        return result
