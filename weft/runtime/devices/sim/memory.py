"""The memories of a program: the constants of each device, and the buffers of one call."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from weft.runtime.arena import AlignedBlock, ArenaPool, address_of
from weft.runtime.call_sizes import CallSizes
from weft.runtime.calls import DEVICE_COPY, Argument
from weft.runtime.device import HOST, Device
from weft.runtime.manifest import Manifest
from weft.runtime.sizes import evaluate
from weft.support.errors import TargetError


class DeviceMemoryError(TargetError):
    """A program needs more memory than a device has."""


class DeviceMemories:
    """The memory that all calls of a program share: arenas, and the constants of each device."""

    def __init__(self, manifest: Manifest, constants: np.ndarray) -> None:
        self.manifest = manifest
        self._host_constants = constants
        places = (HOST, *(one.device for one in manifest.devices))
        self.pools = {device: ArenaPool() for device in places}

    @functools.cached_property
    def constants(self) -> Mapping[Device, int]:
        """The address of the block of constants on each device; a device has those it reads."""
        return {device: address_of(block) for device, block in self._blocks.items()}

    @functools.cached_property
    def _blocks(self) -> dict[Device, np.ndarray]:
        found = {HOST: self._host_constants}
        sizes = {spec.offset: spec.nbytes for spec in self.manifest.constants}
        for device in self.pools:
            if device != HOST:
                # Pages that are never written take no memory.
                block = AlignedBlock(self.manifest.constants_bytes).array
                for offset in constants_read(self.manifest, device):
                    data = slice(offset, offset + sizes[offset])
                    block[data] = self._host_constants[data]
                found[device] = block
        return found


def arena_bytes(manifest: Manifest, sizes: CallSizes) -> dict[Device, int]:
    """The size of the arena of each device."""
    known = {f"_{number}": value for number, value in enumerate(sizes.table)}
    made = {HOST: sizes.arena_bytes}
    for arena in manifest.arenas:
        made[arena.device] = evaluate(arena.nbytes, {**sizes.symbols, **known})
    return made


def bytes_at(manifest: Manifest, device: Device, symbols: Mapping[str, int]) -> int:
    """The size of the arena of a device where the symbols have these values."""
    known = dict(symbols)
    for number, size in enumerate(manifest.sizes):
        known[f"_{number}"] = evaluate(size, known)
    arenas = {HOST: manifest.arena_bytes, **{one.device: one.nbytes for one in manifest.arenas}}
    return evaluate(arenas.get(device, 0), known)


def constant_bytes(manifest: Manifest, device: Device) -> int:
    """The bytes of the constants that a device reads."""
    sizes = {spec.offset: spec.nbytes for spec in manifest.constants}
    return sum(sizes.get(offset, 0) for offset in constants_read(manifest, device))


def state_bytes(manifest: Manifest, device: Device) -> int:
    """The bytes of the states that a device keeps."""
    return sum(manifest.states[number].nbytes
               for number, where in state_devices(manifest).items() if where == device)


def peak_bytes(manifest: Manifest, sizes: CallSizes) -> dict[Device, int]:
    """The memory that a call needs on each device: its buffers, constants and states."""
    return {device: nbytes + constant_bytes(manifest, device) + state_bytes(manifest, device)
            for device, nbytes in arena_bytes(manifest, sizes).items()}


def state_devices(manifest: Manifest) -> dict[int, Device]:
    """The device whose memory each state lies in."""
    found: dict[int, Device] = {}
    for call in manifest.steps:
        places = [call.device] * len(call.args)
        places[:1] = [call.source if call.symbol == DEVICE_COPY else call.device]
        for (kind, number), device in zip(call.args, places, strict=True):
            if kind == "state":
                found.setdefault(number, device)
    return found


def check_memories(manifest: Manifest, sizes: CallSizes) -> None:
    """Raise ``DeviceMemoryError`` if a call needs more memory than a device has.

    Where symbols determine sizes, the first call with the sizes is checked.
    """
    limits = {one.device: one.memory for one in manifest.devices if one.memory is not None}
    if not limits or (manifest.symbols and not sizes.table):
        return
    peaks = peak_bytes(manifest, sizes)
    for device, limit in limits.items():
        if peaks.get(device, 0) > limit:
            raise DeviceMemoryError(
                f"the program needs more memory than {device} has", expected=f"{limit} bytes",
                got=f"{peaks[device]} bytes",
                notes=[f"{one}: {nbytes} bytes for buffers, constants and states"
                       for one, nbytes in peaks.items()],
                help='spread the program over more devices, or try placement="cost"')


def constants_read(manifest: Manifest, device: Device) -> list[int]:
    """The offsets of the constants that the calls on a device read, in order."""
    found: set[int] = set()
    for call in manifest.steps:
        if call.device == device:
            for args in (call.args, *(variant.args for variant in call.variants)):
                found |= {value for kind, value in args if kind == "const"}
    return sorted(found)


class CallMemory:
    """The addresses of one call: arenas, inputs, outputs, states and symbols.

    ``extras`` are the pointers behind those to the inputs. The caller keeps the arrays alive.
    """

    __slots__ = ("_arrays", "_inputs", "_num_inputs", "_outputs", "arenas", "inputs_address",
                 "memories", "outputs_address", "sizes")

    def __init__(self, memories: DeviceMemories, sizes: CallSizes, inputs: Sequence[np.ndarray],
                 outputs: Sequence[np.ndarray], extras: Sequence[int]) -> None:
        self.memories = memories
        self.sizes = sizes
        self._arrays = (inputs, outputs)
        self._num_inputs = len(inputs)
        addresses = [*map(address_of, inputs), *extras]
        self._inputs = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self._outputs = (ctypes.c_void_p * max(1, len(outputs)))(*map(address_of, outputs))
        self.inputs_address = ctypes.addressof(self._inputs)
        self.outputs_address = ctypes.addressof(self._outputs)
        self.arenas: dict[Device, int] = {}

    def acquire(self, nbytes: Mapping[Device, int]) -> None:
        """Take an arena on each device; may raise ``MemoryError``."""
        for device, pool in self.memories.pools.items():
            self.arenas[device] = pool.take(nbytes.get(device, 0))

    def release(self) -> None:
        """Give the arenas back; nothing may use them any more."""
        while self.arenas:
            device, arena = self.arenas.popitem()
            self.memories.pools[device].give_back(arena)

    def value(self, argument: Argument, device: Device) -> int:
        """An argument of a call, in the memory of ``device``: an address or a size."""
        kind, value = argument
        if kind == "input":
            return self._inputs[value] or 0
        if kind == "output":
            return self._outputs[value] or 0
        if kind == "const":
            return self.memories.constants[device] + value
        if kind == "state":
            return self._inputs[self._num_inputs + value] or 0
        if kind == "size":
            return self.sizes.table[value]
        if kind == "slot":
            return self.arenas[device] + self.sizes.table[value]
        return self.arenas[device] + value  # an arena, which is the only one of the device
