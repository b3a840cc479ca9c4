"""Which encoded source the sequence in each slot attends to; copies of a sequence share it."""

from __future__ import annotations

import numpy as np

NONE = -1


class SourceTable:
    """``slots`` sequences, and room for as many sources, so that an allocation never fails."""

    def __init__(self, slots: int) -> None:
        # Number of the source of each slot, and the length of each source.
        self.of = np.full(slots, NONE, np.int64)
        self.lengths = np.zeros(slots, np.int64)
        self._free = list(range(slots))[::-1]

    def allocate(self, slot: int, length: int) -> int:
        """The number of a new source of ``slot``."""
        self.release(slot)
        number = self._free.pop()
        self.of[slot], self.lengths[number] = number, length
        return number

    def share(self, source: int, target: int) -> None:
        """Give the slot ``target`` the source of the slot ``source``."""
        if source != target:
            self.release(target)
            self.of[target] = self.of[source]

    def release(self, slot: int) -> None:
        """Forget the source of a slot; it is free when no slot has it."""
        number, self.of[slot] = int(self.of[slot]), NONE
        if number != NONE and number not in self.of:
            self._free.append(number)
