"""What a program keeps on its device from call to call: constants and states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.runtime.arena import address_of
from weft.runtime.devices.cuda.allocator import DeviceBlock, size_class
from weft.runtime.devices.cuda.array import DeviceArray, new_array
from weft.runtime.devices.cuda.buffer_uses import Uses
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.state import State


class DeviceConstants:
    """The constants that steps on the device read, uploaded once into one block.

    Constants of the host are not uploaded. ``address`` gives where the constant at an offset of
    the manifest lies.
    """

    def __init__(self, manifest: Manifest, uses: Uses, constants: np.ndarray,
                 context: DeviceContext) -> None:
        nbytes = {spec.offset: spec.nbytes for spec in manifest.constants}
        self._offsets: dict[int, int] = {}
        end = 0
        for offset in sorted(uses.constants):
            self._offsets[offset] = end
            end += size_class(nbytes.get(offset, 0))
        self._block: DeviceBlock | None = None
        if not self._offsets:
            return
        stream = context.compute
        self._block = context.memory.allocate(end, stream)
        host = address_of(constants)
        for offset, at in self._offsets.items():
            if size := nbytes.get(offset, 0):
                context.driver.copy_to_device(self._block.address + at, host + offset, size, stream)

    def address(self, offset: int) -> int:
        """The device address of the constant at ``offset`` of the manifest's constants."""
        start = 0 if self._block is None else self._block.address
        return start + self._offsets[offset]


class DeviceState(State):
    """State that lies on the device where steps there update it; the rest lies on the host.

    Items are ``DeviceArray`` objects or NumPy arrays.
    """

    def __init__(self, manifest: Manifest, uses: Uses, context: DeviceContext) -> None:
        specs = manifest.states
        super().__init__([s for n, s in enumerate(specs) if n not in uses.states])
        self._on_device = {spec.name: _zeros(spec, context)
                           for n, spec in enumerate(specs) if n in uses.states}
        self._names = [spec.name for spec in specs]

    def __getitem__(self, name: str) -> np.ndarray:
        found = self._on_device.get(name)
        return super().__getitem__(name) if found is None else found  # type: ignore[return-value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __setitem__(self, name: str, value: object) -> None:
        """Copy ``value`` into the state of that name; ``KeyError`` for an unknown one."""
        found = self._on_device.get(name)
        if found is None:
            super().__setitem__(name, value)
        else:
            found.copy_from(value if isinstance(value, DeviceArray)
                            else np.broadcast_to(np.asarray(value, found.dtype), found.shape))

    def reset(self) -> None:
        """Set all elements to zero."""
        super().reset()
        with self.lock:
            for array in self._on_device.values():
                _clear(array)

    def address(self, name: str) -> int:
        """The address of a state, on the device or on the host."""
        found = self._on_device.get(name)
        return address_of(super().__getitem__(name)) if found is None else found.address


def _zeros(spec: TensorSpec, context: DeviceContext) -> DeviceArray:
    array = new_array(context, spec.concrete_shape, spec.numpy_dtype)
    _clear(array)
    return array


def _clear(array: DeviceArray) -> None:
    if array.nbytes:
        array.context.activate()
        array.context.driver.fill(array.address, 0, array.nbytes, array.stream)
