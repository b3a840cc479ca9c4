"""Asynchronous operations of a batch that are not complete: copies, mbarriers, ``wgmma``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.support.dataclass import dataclass
from weft.testing.cuda.device_memory import Region

Array = np.ndarray


@dataclass(slots=True)
class ThreadCopy:
    """One ``cp.async``: a copy for each lane of ``slots``, in the lane's group ``groups``."""

    slots: Array
    groups: Array
    destination: Array
    source: Region
    offsets: Array
    used: Array
    nbytes: int
    site: int


@dataclass(slots=True)
class Mbarrier:
    """``phase`` counts completed phases; a phase ends when ``pending`` and ``bytes`` are 0."""

    count: int
    pending: int
    bytes: int = 0
    phase: int = 0


@dataclass(slots=True)
class BulkLoad:
    """Bytes to be written to shared memory at ``places``, counted by a barrier."""

    places: Array
    data: Callable[[], Array]
    barrier: int
    slot: int
    site: int


@dataclass(slots=True)
class BulkStore:
    """A write to global memory, done when its group is waited for."""

    slot: int
    group: int
    run: Callable[[], None]


@dataclass(slots=True)
class MatrixOperand:
    """A matrix that ``wgmma`` read from shared memory: warpgroup, group, places and bits."""

    leader: int
    group: int
    places: Array
    bits: Array
    site: int


class AsyncState:
    """Everything asynchronous in a batch. Groups count the commits of each lane."""

    def __init__(self, lanes: int) -> None:
        self.copies: list[ThreadCopy] = []
        self.copy_groups = np.zeros(lanes, dtype=np.int64)
        self.mbarriers: dict[int, Mbarrier] = {}
        self.loads: list[BulkLoad] = []
        self.stores: list[BulkStore] = []
        self.store_groups = np.zeros(lanes, dtype=np.int64)
        self.operands: list[MatrixOperand] = []
        self.operand_groups = np.zeros(lanes, dtype=np.int64)
        # Grows with every arrival: threads that poll make no progress without one.
        self.events = 0

    def settle(self, barrier: Mbarrier) -> None:
        """Note a change of a barrier; begin its next phase if this one is complete."""
        self.events += 1
        if not barrier.pending and not barrier.bytes:
            barrier.phase += 1
            barrier.pending = barrier.count
