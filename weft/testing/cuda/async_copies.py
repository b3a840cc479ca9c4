"""``cp.async``: copies from global to shared memory that become visible at the wait, no earlier.

Until then the destination holds poison: the hardware may write any part of it at any time.
"""

from __future__ import annotations

import numpy as np

from weft.testing.cuda.async_state import ThreadCopy
from weft.testing.cuda.device_memory import POISON, Region
from weft.testing.cuda.lanes import Lanes

Array = np.ndarray


def copy(
    x: Lanes, target: Array, source: Array, nbytes: int, used: Array, guard: Array | None,
    site: int,
) -> None:
    """``cp.async``: ``used`` bytes of ``nbytes``, zeros for the rest."""
    active = x.active(guard)
    positions = np.arange(x.count) if active is None else active
    if positions.shape[0] == 0:
        return
    slots = x.slots[positions]
    target, source, used = (
        np.broadcast_to(v, (x.count,))[positions] for v in (target, source, used))
    if (used > nbytes).any():
        x.fail("cp.async reads more bytes than it writes", site, int(slots[0]))
    shared, destination = x.locate("shared", target, nbytes, slots, site)
    x.track_slots(shared, destination, nbytes, slots, site, write=True)
    x.batch.count_access(site, "shared", shared, destination, nbytes, slots)
    shared.data[destination[:, None] + np.arange(nbytes)] = POISON
    region, offsets = _source(x, source, nbytes, used, slots, site)
    pending = x.batch.pending
    pending.copies.append(ThreadCopy(
        slots, pending.copy_groups[slots], destination, region, offsets, used, nbytes, site))


def _source(
    x: Lanes, source: Array, nbytes: int, used: Array, slots: Array, site: int
) -> tuple[Region, Array]:
    """Check the bytes that are read; lanes that read nothing may have any address."""
    reading = used > 0
    offsets = np.zeros(source.shape, dtype=np.int64)
    if not reading.any():
        return x.batch.shared, offsets
    misaligned = (source & np.uint64(nbytes - 1)) != 0
    if (misaligned & reading).any():
        at = int(np.flatnonzero(misaligned & reading)[0])
        x.fail(f"misaligned cp.async of {nbytes} bytes from {int(source[at]):#x}", site,
               int(slots[at]))
    low = source[reading]
    region = x.batch.memory.find(int(low.min()))
    ends = low + used[reading].astype(np.uint64)
    if region is None or int(ends.max()) > region.base + region.nbytes:
        at = int(np.argmin(low)) if region is None else int(np.argmax(ends))
        x.fail("cp.async reads global memory out of bounds", site, int(slots[reading][at]),
               got=x.batch.memory.describe(int(low[at] if region is None else ends[at] - 1)))
    offsets[reading] = (low - np.uint64(region.base)).view(np.int64)
    for size in np.unique(used[reading]):
        some = reading & (used == size)
        if x.batch.check_races:
            x.track_slots(region, offsets[some], int(size), slots[some], site, write=False)
    x.batch.count_access(site, "global", region, offsets[reading], nbytes, slots[reading])
    return region, offsets


def commit(x: Lanes, guard: Array | None) -> None:
    """``cp.async.commit_group``."""
    slots = _active_slots(x, guard)
    x.batch.pending.copy_groups[slots] += 1


def wait(x: Lanes, allowed: int, guard: Array | None) -> None:
    """``cp.async.wait_group``: all groups but the latest ``allowed`` become visible."""
    _complete(x, _active_slots(x, guard), allowed)


def wait_all(x: Lanes, guard: Array | None) -> None:
    """``cp.async.wait_all``: also copies of no group."""
    _complete(x, _active_slots(x, guard), -1)


def _active_slots(x: Lanes, guard: Array | None) -> Array:
    active = x.active(guard)
    return x.slots if active is None else x.slots[active]


def _complete(x: Lanes, slots: Array, allowed: int) -> None:
    pending = x.batch.pending
    waiting = np.zeros(x.batch.lanes, dtype=bool)
    waiting[slots] = True
    left = []
    for item in pending.copies:
        done = waiting[item.slots] & (item.groups < pending.copy_groups[item.slots] - allowed)
        if done.any():
            _write(x, item, done)
        if not done.all():
            keep = ~done
            left.append(ThreadCopy(
                item.slots[keep], item.groups[keep], item.destination[keep], item.source,
                item.offsets[keep], item.used[keep], item.nbytes, item.site))
    pending.copies = left


def _write(x: Lanes, item: ThreadCopy, done: Array) -> None:
    place = np.arange(item.nbytes)
    used = place[None, :] < item.used[done][:, None]
    start = item.offsets[done][:, None] + place
    data = np.where(used, item.source.data[np.where(used, start, 0)], 0)
    shared = x.batch.shared
    shared.data[item.destination[done][:, None] + place] = data
    x.track_slots(shared, item.destination[done], item.nbytes, item.slots[done], item.site,
                  write=True)
