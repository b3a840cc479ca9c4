"""A program on its device: what all calls and all sizes of it share.

Its buffers lie on the host, on a device, or on both; constants and states stay on the device from
call to call.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from weft.runtime.arena import ArenaPool, address_of
from weft.runtime.calls import DEVICE_COPY, Argument, KernelCall
from weft.runtime.device import HOST
from weft.runtime.devices.cuda.allocator import DeviceBlock, size_class
from weft.runtime.devices.cuda.array import DeviceArray, new_array
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.library import CudaLibrary
from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.state import State
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError


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

    def share(self, arrays: Mapping[str, Any]) -> None:
        """See ``State.share``: of states on the device, device arrays."""
        host = {}
        for name, array in arrays.items():
            known = self._on_device.get(name)
            if known is None:
                host[name] = array
                continue
            if not isinstance(array, DeviceArray) or array.context is not known.context \
                    or array.shape != known.shape or array.dtype != known.dtype:
                raise InvalidInputError(f"the memory does not fit the state {name!r}",
                                        expected=repr(known), got=repr(array))
            self._on_device[name] = array
        super().share(host)

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


@dataclass(frozen=True, slots=True)
class Uses:
    """The numbers of inputs, outputs and states, and offsets of constants, that steps use there."""

    inputs: frozenset[int]
    outputs: frozenset[int]
    states: frozenset[int]
    constants: frozenset[int]


def uses_on(manifest: Manifest, *, host: bool) -> Uses:
    """What the steps on the host, or those on the device, read and write."""
    found: dict[str, set[int]] = {"input": set(), "output": set(), "state": set(), "const": set()}
    for step in manifest.steps:
        for (kind, number), on_host in arguments_of(step):
            if on_host is host and kind in found:
                found[kind].add(number)
        if host:
            for (kind, number), _ in step.guards:
                if kind in found:
                    found[kind].add(number)
    return Uses(*(frozenset(found[kind]) for kind in ("input", "output", "state", "const")))


def arguments_of(step: KernelCall) -> list[tuple[Argument, bool]]:
    """The arguments of a step and of its variants, each with whether it lies on the host."""
    if step.symbol == DEVICE_COPY:
        source, target = step.args
        return [(source, step.source == HOST), (target, step.device == HOST)]
    on_host = step.device == HOST
    variants = (argument for variant in step.variants for argument in variant.args)
    return [(argument, on_host) for argument in (*step.args, *variants)]


class DeviceProgram:
    """``constants`` are the bytes that the manifest's offsets point into.

    The device is opened when ``context`` is first read.
    """

    def __init__(self, manifest: Manifest, library: CudaLibrary, constants: np.ndarray) -> None:
        self.manifest = manifest
        self.library = library
        self.host_constants = constants
        self.host_constants_address = address_of(constants)
        self.host_arenas = ArenaPool()
        self.on_host = uses_on(manifest, host=True)
        self.on_device = uses_on(manifest, host=False)

    @functools.cached_property
    def context(self) -> DeviceContext:
        """The device; ``NoDeviceError`` if there is none."""
        return self.library.context

    @functools.cached_property
    def constants(self) -> DeviceConstants:
        """The constants on the device, uploaded at the first use."""
        self.context.activate()
        return DeviceConstants(self.manifest, self.on_device, self.host_constants, self.context)

    @functools.cached_property
    def state(self) -> DeviceState:
        """The tensors that the program keeps from call to call."""
        state = DeviceState(self.manifest, self.on_device, self.context)
        state.start(self.manifest.initial, self.host_constants)
        return state
