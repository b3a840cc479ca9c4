"""The memory of one call: arenas, and the pointer arrays that ``weft_main`` reads."""

from __future__ import annotations

import ctypes

from weft.runtime.arena import AlignedBlock, address_of
from weft.runtime.library import Block, Library
from weft.runtime.manifest import Argument, Manifest


class Frame:
    """An arena with arrays of input and output pointers; used by one call at a time."""

    __slots__ = ("arena", "arenas", "inputs", "inputs_address", "outputs", "outputs_address")

    def __init__(self, manifest: Manifest, library: Library) -> None:
        self.arena = AlignedBlock(manifest.arena_bytes)
        self.arenas: dict[str, Block] = {
            arena.space: library.allocate(arena.nbytes, arena.device, arena.alignment)
            for arena in manifest.arenas}
        self.inputs = (ctypes.c_void_p * max(1, len(manifest.inputs)))()
        self.outputs = (ctypes.c_void_p * max(1, len(manifest.outputs)))()
        self.inputs_address = ctypes.addressof(self.inputs)
        self.outputs_address = ctypes.addressof(self.outputs)

    def point_at(self, inputs: list, outputs: list) -> None:
        """Set the pointers to these arrays, which the caller keeps alive during the call."""
        for number, array in enumerate(inputs):
            self.inputs[number] = address_of(array)
        for number, array in enumerate(outputs):
            self.outputs[number] = address_of(array)

    def pointer(self, argument: Argument, constants: int) -> int:
        """The address of a kernel argument; ``constants`` is that of the constant data."""
        kind, value = argument
        if kind == "input":
            return self.inputs[value] or 0
        if kind == "output":
            return self.outputs[value] or 0
        if kind == "const":
            return constants + value
        return (self.arena if kind == "arena" else self.arenas[kind]).address + value
