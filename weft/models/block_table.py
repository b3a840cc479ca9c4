"""Which blocks of the caches hold the tokens of each slot (PagedAttention, Kwon et al., 2023).

Slots share the blocks of equal beginnings; a block that several slots use is copied before one of
them writes to it.
"""

from __future__ import annotations

import numpy as np


class BlockTable:
    """Blocks of ``block_size`` tokens for ``slots`` sequences of up to ``blocks_per_row`` blocks.

    There are as many blocks as full slots need, so an allocation never fails.
    """

    def __init__(self, slots: int, blocks_per_row: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = slots * blocks_per_row
        # Block numbers per slot; -1 beyond the blocks in use.
        self.rows = np.full((slots, blocks_per_row), -1, np.int64)
        self.lengths = np.zeros(slots, np.int64)
        self._users = np.zeros(self.blocks, np.int64)
        self._free = list(range(self.blocks))[::-1]

    @property
    def used_blocks(self) -> int:
        return self.blocks - len(self._free)

    def reserve(self, slot: int, count: int) -> list[tuple[int, int]]:
        """Give a slot blocks of its own for ``count`` more tokens.

        Returns the pairs (source, target) of blocks whose contents are to be copied.
        """
        length, size, row = self.lengths.item(slot), self.block_size, self.rows[slot]
        first, end = length // size, self._in_use(length + count)
        if end <= first or (row[end - 1] >= 0 and self._users[row[first]] == 1):
            return []
        copies = []
        for index in range(first, end):
            block = int(row[index])
            if block >= 0 and self._users[block] == 1:
                continue
            row[index] = self._allocate()
            if block >= 0:
                self._users[block] -= 1
                copies.append((block, int(row[index])))
        return copies

    def share(self, source: int, target: int, length: int) -> None:
        """Make the first ``length`` tokens of ``source`` those of ``target``."""
        if source == target:
            self.truncate(source, length)
            return
        used = self._in_use(length)
        shared = self.rows[source, :used].copy()
        self._users[shared] += 1
        self.truncate(target, 0)
        self.rows[target, :used] = shared
        self.lengths[target] = length

    def truncate(self, slot: int, length: int) -> None:
        """Keep the first ``length`` tokens of a slot, and free the blocks of the others."""
        row, kept = self.rows[slot], self._in_use(length)
        for block in row[kept:][row[kept:] >= 0]:
            self._users[block] -= 1
            if not self._users[block]:
                self._free.append(int(block))
        row[kept:] = -1
        self.lengths[slot] = length

    def _in_use(self, length: int) -> int:
        return -(-length // self.block_size)

    def _allocate(self) -> int:
        block = self._free.pop()
        self._users[block] = 1
        return block
