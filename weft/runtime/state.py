"""The tensors that a module keeps from call to call."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from weft.runtime.arena import AlignedBlock
from weft.runtime.manifest import TensorSpec
from weft.support.errors import InvalidInputError
from weft.support.fork_locks import renew_in_child


class State(Mapping[str, np.ndarray]):
    """The state of a module by name: zeros at first, updated by calls, readable and writable.

    ``lock`` is held during a call.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.lock = threading.Lock()
        renew_in_child(self, "lock")
        self._arrays = {spec.name: _zeros(spec) for spec in specs}

    def share(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the states of these names in memory of the caller, which other modules may share.

        Each array is C-contiguous and writable, and has the dtype and shape of the state. Raises
        ``InvalidInputError`` for other arrays and for unknown names.
        """
        for name, array in arrays.items():
            known = self._arrays.get(name)
            if known is None:
                raise InvalidInputError(f"the module has no state {name!r}",
                                        expected=", ".join(self._arrays))
            if array.dtype != known.dtype or array.shape != known.shape \
                    or not (array.flags.c_contiguous and array.flags.writeable):
                raise InvalidInputError(
                    f"the memory does not fit the state {name!r}",
                    expected=f"a C-contiguous array, Tensor[{known.shape}, {known.dtype}]",
                    got=f"Tensor[{array.shape}, {array.dtype}]")
        self._arrays.update(arrays)

    def start(self, offsets: Sequence[int], constants: np.ndarray) -> None:
        """Set all states to their first values, at these byte offsets of the constants."""
        for name, offset in zip(self, offsets, strict=False):
            array = self[name]
            data = constants[offset:offset + array.nbytes]
            self[name] = data.view(array.dtype).reshape(array.shape)

    def __getitem__(self, name: str) -> np.ndarray:
        """The array with the current value; writing to it changes the state."""
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __setitem__(self, name: str, value: object) -> None:
        """Copy ``value`` into the array of that name; ``KeyError`` for an unknown one."""
        self._arrays[name][...] = value

    def reset(self) -> None:
        """Set all elements to zero."""
        with self.lock:
            for array in self._arrays.values():
                array[...] = np.zeros((), array.dtype)


def _zeros(spec: TensorSpec) -> np.ndarray:
    block = AlignedBlock(spec.nbytes, purpose=f"state {spec}")
    block.array[:] = 0
    return block.array.view(spec.numpy_dtype).reshape(spec.concrete_shape) if math.prod(
        spec.concrete_shape) else np.zeros(spec.concrete_shape, spec.numpy_dtype)
