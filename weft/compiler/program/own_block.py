"""The block of the constants of a program, packed by threads while its kernels are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from weft.compiler.program.constants import PlacedConstants, constant_layout
from weft.compiler.program.packing import Packing, SourceMemory
from weft.support.cache_entry import EntryWriter
from weft.support.dataclass import dataclass


@dataclass
class OwnBlock:
    """One block for the constants of a program, aligned to 64 bytes and read-only.

    ``new_entry`` gives the file of the cache that starts with the block of a number of bytes, and
    is written while the block is packed. ``memory`` forgets each constant that will not be read
    again.
    """

    new_entry: Callable[[int], EntryWriter | None] | None = None
    memory: SourceMemory | None = None
    _packing: Packing | None = field(default=None, init=False)

    def begin(self, constants: Sequence[np.ndarray]) -> None:
        """See ``ConstantMemory``."""
        self._packing = self._started(constants)

    def place(self, constants: Sequence[np.ndarray]) -> PlacedConstants:
        """See ``ConstantMemory``."""
        packing = self._packing = self._started(constants)
        packing.finish()
        return PlacedConstants(packing.offsets, packing.block, packing.block.nbytes)

    def _started(self, constants: Sequence[np.ndarray]) -> Packing:
        """The packing of these constants, which starts now unless ``begin`` has started it.

        A program that is lowered again may have other constants than at first. The content of some
        sources has been given back then, so those are copied from the first block.
        """
        packing = self._packing
        if packing is not None and packing.is_of(constants):
            return packing
        offsets, total = constant_layout(constants)
        if packing is None:
            entry = None if self.new_entry is None else self.new_entry(total)
            return Packing(constants, constants, offsets, total, entry, self.memory)
        packing.finish()
        packing.abandon()
        return Packing(constants, [*map(packing.copy_of, constants)], offsets, total)

    def packing_of(self, block: np.ndarray) -> Packing | None:
        """The packing that writes ``block`` to the cache."""
        packing = self._packing
        is_kept = packing is not None and packing.block is block and packing.entry is not None
        return packing if is_kept else None

    def abandon(self) -> None:
        """Remove the unfinished file of a block that does not become an entry."""
        if self._packing is not None:
            self._packing.abandon()
