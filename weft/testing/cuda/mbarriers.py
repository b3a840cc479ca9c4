"""Barriers in shared memory that count arrivals and bytes (PTX ISA, ``mbarrier``)."""

from __future__ import annotations

import numpy as np

from weft.testing.cuda.async_state import Mbarrier
from weft.testing.cuda.lanes import Lanes

Array = np.ndarray


def _lanes_of(x: Lanes, address: Array, guard: Array | None, site: int) -> tuple[Array, Array]:
    """Positions of the active lanes and the offsets of their barriers."""
    active = x.active(guard)
    positions = np.arange(x.count) if active is None else active
    if positions.shape[0] == 0:
        return positions, positions
    address = np.broadcast_to(address, (x.count,))[positions]
    _, offset = x.locate("shared", address, 8, x.slots[positions], site)
    return positions, offset


def _find(x: Lanes, offset: int, site: int, slot: int) -> Mbarrier:
    barrier = x.batch.pending.mbarriers.get(offset)
    if barrier is None:
        x.fail("mbarrier that was not initialised", site, slot,
               got=f"shared memory offset {offset % x.batch.shared_stride}")
    return barrier


def initialise(x: Lanes, address: Array, count: Array, guard: Array | None, site: int) -> None:
    """``mbarrier.init``."""
    positions, offsets = _lanes_of(x, address, guard, site)
    counts = np.broadcast_to(count, (x.count,))[positions]
    if positions.shape[0]:
        x.track_slots(x.batch.shared, offsets, 8, x.slots[positions], site, write=True)
    for offset, number in zip(offsets.tolist(), counts.tolist(), strict=True):
        x.batch.pending.mbarriers[offset] = Mbarrier(number, number)


def invalidate(x: Lanes, address: Array, guard: Array | None, site: int) -> None:
    """``mbarrier.inval``."""
    _, offsets = _lanes_of(x, address, guard, site)
    for offset in offsets.tolist():
        x.batch.pending.mbarriers.pop(offset, None)


def arrive(
    x: Lanes, address: Array, count: Array, expected: Array, drop: bool, guard: Array | None,
    site: int,
) -> Array:
    """``mbarrier.arrive``: after adding ``expected`` bytes, ``count`` arrivals; the phase."""
    positions, offsets = _lanes_of(x, address, guard, site)
    state = np.zeros(x.count, dtype=np.uint64)
    counts = np.broadcast_to(count, (x.count,))[positions]
    nbytes = np.broadcast_to(expected, (x.count,))[positions]
    for at, position in enumerate(positions.tolist()):
        slot = int(x.slots[position])
        barrier = _find(x, int(offsets[at]), site, slot)
        state[position] = barrier.phase
        barrier.bytes += int(nbytes[at])
        barrier.pending -= int(counts[at])
        if drop:
            barrier.count -= int(counts[at])
        if barrier.pending < 0:
            x.fail("more arrivals at an mbarrier than its count", site, slot,
                   got=f"a count of {barrier.count}")
        x.batch.pending.settle(barrier)
    return state


def expect(x: Lanes, address: Array, nbytes: Array, guard: Array | None, site: int) -> None:
    """``mbarrier.expect_tx`` without an arrival, and ``complete_tx`` with negative bytes."""
    positions, offsets = _lanes_of(x, address, guard, site)
    amounts = np.broadcast_to(nbytes, (x.count,))[positions].astype(np.int64)
    for at, position in enumerate(positions.tolist()):
        barrier = _find(x, int(offsets[at]), site, int(x.slots[position]))
        barrier.bytes += int(amounts[at])
        x.batch.pending.settle(barrier)


def test(
    x: Lanes, address: Array, state: Array, parity: bool, guard: Array | None, site: int
) -> Array:
    """``mbarrier.test_wait`` and ``try_wait``: whether the phase is complete."""
    positions, offsets = _lanes_of(x, address, guard, site)
    done = np.zeros(x.count, dtype=bool)
    wanted = np.broadcast_to(state, (x.count,))[positions].tolist()
    slots = x.slots[positions].tolist()
    phases: dict[int, int] = {}
    for at, offset in enumerate(offsets.tolist()):
        if offset not in phases:
            phases[offset] = _find(x, offset, site, slots[at]).phase
        phase = phases[offset]
        done[positions[at]] = (phase & 1) != (wanted[at] & 1) if parity else phase != wanted[at]
    return done
