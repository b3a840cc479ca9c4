"""The memory of one call: arenas, and the pointer arrays that ``weft_main`` reads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from weft.runtime.arena import ArenaPool, address_of
from weft.runtime.call_sizes import CallSizes
from weft.runtime.library import Block, Library
from weft.runtime.manifest import Argument, Manifest
from weft.runtime.sizes import evaluate


class Frame:
    """Arrays of input and output pointers, with an arena between ``acquire`` and ``release``.

    It is used by one call at a time. ``extras`` are the pointers behind those to the inputs.
    """

    __slots__ = ("_behind", "_pool", "arena", "arenas", "inputs", "inputs_address", "outputs",
                 "outputs_address", "sizes")

    def __init__(self, manifest: Manifest, library: Library, pool: ArenaPool,
                 sizes: CallSizes, extras: Sequence[int] = ()) -> None:
        self._pool = pool
        self.sizes = sizes
        self.arena = 0
        self.arenas: dict[str, Block] = {
            arena.space: library.allocate(evaluate(arena.nbytes, sizes.symbols), arena.device,
                                          arena.alignment)
            for arena in manifest.arenas}
        self._behind = len(manifest.inputs)
        self.inputs = (ctypes.c_void_p * max(1, self._behind + len(extras)))()
        self.outputs = (ctypes.c_void_p * max(1, len(sizes.outputs)))()
        for number, address in enumerate(extras):
            self.inputs[self._behind + number] = address
        self.inputs_address = ctypes.addressof(self.inputs)
        self.outputs_address = ctypes.addressof(self.outputs)

    def acquire(self) -> None:
        """Take an arena; may raise ``MemoryError``."""
        self.arena = self._pool.take(self.sizes.arena_bytes)

    def release(self) -> None:
        """Give the arena back."""
        self._pool.give_back(self.arena)
        self.arena = 0

    def point_at(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Set the pointers to these arrays, which the caller keeps alive during the call."""
        for number, array in enumerate(inputs):
            self.inputs[number] = address_of(array)
        for number, array in enumerate(outputs):
            self.outputs[number] = address_of(array)

    def value(self, argument: Argument, constants: int) -> int:
        """A kernel argument: an address or a size; ``constants`` is that of the constant data."""
        kind, value = argument
        if kind == "input":
            return self.inputs[value] or 0
        if kind == "output":
            return self.outputs[value] or 0
        if kind == "const":
            return constants + value
        if kind == "state":
            return self.inputs[self._behind + value] or 0
        if kind == "size":
            return self.sizes.table[value]
        if kind == "slot":
            return self.arena + self.sizes.table[value]
        return (self.arena if kind == "arena" else self.arenas[kind].address) + value
