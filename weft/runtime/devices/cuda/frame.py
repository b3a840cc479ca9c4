"""The memory of one call of a program on a device: arenas, and the places of inputs and outputs.

Host memory of a frame is page-locked: the device copies from and to it without a detour.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from weft.runtime.arena import address_of, array_at
from weft.runtime.call_sizes import CallSizes
from weft.runtime.calls import Argument
from weft.runtime.devices.cuda.allocator import DeviceBlock
from weft.runtime.devices.cuda.array import DeviceArray, new_array
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.program import DeviceProgram
from weft.runtime.library import Block
from weft.runtime.manifest import TensorSpec
from weft.runtime.sizes import evaluate
from weft.support.errors import InternalError


class PinnedBlock:
    """``nbytes`` of page-locked memory at ``address``; ``array`` is a ``uint8`` view of it.

    Work of the device that uses it must be done when the object is deleted.
    """

    __slots__ = ("__weakref__", "_finalizer", "address", "array", "nbytes")

    def __init__(self, context: DeviceContext, nbytes: int) -> None:
        context.activate()
        self.nbytes = nbytes
        self.address = context.driver.allocate_host(nbytes)
        self.array: np.ndarray = array_at(self.address, (nbytes,), np.dtype(np.uint8))
        self._finalizer = weakref.finalize(self, context.driver.free_host, self.address)
        setattr(self._finalizer, "atexit", False)  # noqa: B010 - a property that the stubs lack


P = TypeVar("P")
# Sets of device addresses whose launches are kept ready.
KEPT_PLANS = 4


class DeviceFrame:
    """Used by one call at a time.

    An input of the host that steps on the device read is copied to memory of the frame, and an
    output that they write for the host is copied from there; device arrays are used where they are.
    """

    def __init__(self, program: DeviceProgram, sizes: CallSizes) -> None:
        self.program = program
        self.sizes = sizes
        self._context = program.context
        # Programs with symbolic sizes have a frame for each, so frames keep no memory.
        self._keeps_memory = not program.manifest.symbols
        self._arena_bytes = {arena.space: evaluate(arena.nbytes, _names(sizes))
                             for arena in program.manifest.arenas}
        self._arenas: dict[str, Block] = {}
        self._own_inputs: dict[int, DeviceBlock] = {}
        self._own_outputs: dict[int, DeviceBlock] = {}
        self._host_arena = 0
        self._pinned: PinnedBlock | None = None
        self._copied = 0  # an event that happens when the copies so far are done
        self._is_copying = False
        self.inputs = [0] * len(sizes.inputs)
        self.outputs = [0] * len(sizes.outputs)
        self.host_inputs = [0] * len(sizes.inputs)
        self.host_outputs = [0] * len(sizes.outputs)
        self._kept: list[object] = []
        self._plans: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def planned(self, make: Callable[[], P]) -> P:
        """What ``make`` gave for the device addresses of this call, kept for the next with them."""
        if self.program.manifest.counts:
            return make()  # for sizes that differ from call to call
        key = (*self.inputs, *self.outputs, *(block.address for block in self._arenas.values()))
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = make()
            if len(self._plans) > KEPT_PLANS:
                self._plans.popitem(last=False)
        return found

    def acquire(self, inputs: Sequence[np.ndarray | DeviceArray],
                outputs: Sequence[np.ndarray | DeviceArray]) -> None:
        """Bind the arrays of a call, which the caller keeps alive until ``release``."""
        if not self._arenas:
            self._arenas = {space: self._allocate(nbytes)
                            for space, nbytes in self._arena_bytes.items()}
        self._host_arena = self._take_host_arena()
        for number, value in enumerate(inputs):
            self._bind_input(number, value)
        for number, value in enumerate(outputs):
            self._bind_output(number, value)

    def release(self) -> None:
        """End the call; later work on the compute stream may follow at once."""
        if self._pinned is None:
            self.program.host_arenas.give_back(self._host_arena)
        self._host_arena = 0
        self._kept.clear()
        if not self._keeps_memory:
            self._arenas, self._own_inputs, self._own_outputs = {}, {}, {}

    def _take_host_arena(self) -> int:
        """The host's arena: page-locked where frames keep it, so that copies run by themselves."""
        nbytes = self.sizes.arena_bytes
        if not self._keeps_memory or not nbytes:
            return self.program.host_arenas.take(nbytes)
        if self._pinned is None:
            self._pinned = PinnedBlock(self._context, nbytes)
        return self._pinned.address

    def note_copy(self) -> None:
        """Remember that a copy between host and device was issued."""
        driver = self._context.driver
        if not self._copied:
            self._copied = driver.create_event()
            weakref.finalize(self, driver.destroy_event, self._copied)
        driver.record(self._copied, self._context.compute)
        self._is_copying = True

    def await_copies(self) -> None:
        """Wait on the host until all copies that were issued are done; later work goes on."""
        if self._is_copying:
            self._is_copying = False
            self.program.library.synchronize_event(self._copied)

    def _allocate(self, nbytes: int) -> DeviceBlock:
        return self._context.memory.allocate(nbytes, self._context.compute)

    def _bind_input(self, number: int, value: np.ndarray | DeviceArray) -> None:
        program, context = self.program, self._context
        if isinstance(value, DeviceArray):
            self.inputs[number] = value.address
            if number in program.on_host.inputs:
                copied = value.numpy()
                self._kept.append(copied)
                self.host_inputs[number] = address_of(copied)
            return
        self.host_inputs[number] = address_of(value)
        if number in program.on_device.inputs:
            block = self._own_inputs.get(number)
            if block is None:
                block = self._own_inputs[number] = self._allocate(value.nbytes)
            self.inputs[number] = block.address
            if value.nbytes:
                context.driver.copy_to_device(block.address, self.host_inputs[number],
                                              value.nbytes, context.compute)

    def _bind_output(self, number: int, value: np.ndarray | DeviceArray) -> None:
        on_device = number in self.program.on_device.outputs
        if isinstance(value, DeviceArray):
            self.outputs[number] = value.address
            if not on_device:
                self._bind_host_output(number, value)
            return
        self.host_outputs[number] = address_of(value)
        if on_device:
            block = self._own_outputs.get(number)
            if block is None:
                block = self._own_outputs[number] = self._allocate(value.nbytes)
            self.outputs[number] = block.address

    def _bind_host_output(self, number: int, value: DeviceArray) -> None:
        """Let the host write an output that the caller wants on the device."""
        array = np.empty(value.shape, value.dtype)
        self._kept.append(array)
        self.host_outputs[number] = address_of(array)

    def collect(self, outputs: Sequence[np.ndarray | DeviceArray]) -> None:
        """Copy outputs to where the caller wants them; arrays of the host are complete then."""
        context, waits = self._context, False
        for number, value in enumerate(outputs):
            on_device = number in self.program.on_device.outputs
            if isinstance(value, np.ndarray) and on_device:
                waits = True
                if value.nbytes:
                    context.driver.copy_to_host(self.host_outputs[number], self.outputs[number],
                                                value.nbytes, context.compute)
            elif isinstance(value, DeviceArray) and not on_device and value.nbytes:
                context.driver.copy_to_device(value.address, self.host_outputs[number],
                                              value.nbytes, context.compute)
        if waits:
            self.program.library.synchronize()

    def value(self, argument: Argument, *, on_host: bool) -> int:
        """An argument of a step: an address in memory of the host or of the device, or a size."""
        kind, value = argument
        if kind == "input":
            return (self.host_inputs if on_host else self.inputs)[value]
        if kind == "output":
            return (self.host_outputs if on_host else self.outputs)[value]
        if kind == "const":
            program = self.program
            return program.host_constants_address + value if on_host \
                else program.constants.address(value)
        if kind == "state":
            return self.program.state.address(self.program.manifest.states[value].name)
        if kind == "size":
            return self.sizes.table[value]
        if kind == "arena":
            return self._host_arena + value
        if kind == "slot":
            arena = self._host_arena if on_host else next(iter(self._arenas.values())).address
            return arena + self.sizes.table[value]
        found = self._arenas.get(kind)
        if found is None:
            raise InternalError(f"unknown memory space {kind!r}")
        return found.address + value


def new_output(program: DeviceProgram, spec: TensorSpec, *, on_device: bool
               ) -> np.ndarray | DeviceArray:
    """A new array for an output of a call, on the device or on the host."""
    if on_device:
        return new_array(program.context, spec.concrete_shape, spec.numpy_dtype)
    return np.empty(spec.concrete_shape, spec.numpy_dtype)


def _names(sizes: CallSizes) -> dict[str, int]:
    return {**sizes.symbols, **{f"_{n}": value for n, value in enumerate(sizes.table)}}
