"""Bulk copies by the TMA unit: ``cp.async.bulk`` and ``cp.async.bulk.tensor``.

A load completes only when every thread waits; until then its destination holds poison. A store
reads its source at the wait for its group, so that a source overwritten too early shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.testing.cuda.async_state import BulkLoad, BulkStore
from weft.testing.cuda.device_memory import PARAM_WINDOW, POISON, WINDOW_BYTES, Region
from weft.testing.cuda.lanes import Lanes
from weft.testing.cuda.tensor_maps import TensorMap, decode_tensor_map

Array = np.ndarray
_ROW_BITS = {0: 0, 32: 1, 64: 3, 128: 7}


def complete_one(x: Lanes) -> bool:
    """Complete one load, chosen at random; False if none is left."""
    pending = x.batch.pending
    if not pending.loads:
        return False
    item = pending.loads.pop(int(x.batch.random.integers(len(pending.loads))))
    data = item.data()
    x.batch.shared.data[item.places] = data
    barrier = pending.mbarriers.get(item.barrier)
    if barrier is None:
        x.fail("a bulk copy completes on an mbarrier that was not initialised", item.site,
               item.slot)
    barrier.bytes -= data.shape[0]
    pending.settle(barrier)
    return True


def swizzled(places: Array, swizzle: int) -> Array:
    """Addresses in shared memory with the 16-byte units of a row exchanged."""
    return places ^ (((places >> 7) & _ROW_BITS[swizzle]) << 4)


def _targets(x: Lanes, slot: int, mask: int | None) -> list[int]:
    """Positions in the batch of the blocks that receive a copy: its own, or those of ``mask``."""
    own = slot // x.batch.slots_per_block
    if mask is None:
        return [own]
    ranks = [rank for rank in range(16) if mask >> rank & 1]
    return [int(x.batch.cluster_block(np.array([own]), np.array([rank]))[0]) for rank in ranks]


def _each(x: Lanes, guard: Array | None) -> list[int]:
    active = x.active(guard)
    return (np.arange(x.count) if active is None else active).tolist()


def _item(value: Array, at: int) -> int:
    return int(value[0 if value.shape[0] == 1 else at])


def load_tensor(
    x: Lanes, target: Array, tensor: Array, coordinates: tuple[Array, ...], barrier: Array,
    mask: Array | None, guard: Array | None, site: int,
) -> None:
    """``cp.async.bulk.tensor`` from global to shared memory."""
    for at in _each(x, guard):
        slot = int(x.slots[at])
        tensor_map = _tensor_map(x, _item(tensor, at), site, slot)
        start = [_signed(_item(value, at)) for value in coordinates]
        nbytes = tensor_map.box_bytes
        where = _box_places(x, tensor_map, _item(target, at), slot, site)
        _load(x, slot, site, where, _reader(x, tensor_map, start, site, slot),
              _item(barrier, at), None if mask is None else _item(mask, at), nbytes)


def load_bytes(
    x: Lanes, target: Array, source: Array, size: Array, barrier: Array, mask: Array | None,
    guard: Array | None, site: int,
) -> None:
    """``cp.async.bulk`` of contiguous bytes from global to shared memory."""
    for at in _each(x, guard):
        slot, nbytes = int(x.slots[at]), _item(size, at)
        address = _item(source, at)
        if nbytes % 16 or address % 16 or _item(target, at) % 16:
            x.fail("misaligned bulk copy", site, slot,
                   got=f"{nbytes} bytes from {address:#x}, which must be multiples of 16")
        where = _offset(x, _item(target, at), nbytes, slot, site) + np.arange(nbytes)
        x.batch.memory.view(address, nbytes)

        def read(address: int = address, nbytes: int = nbytes) -> Array:
            return x.batch.memory.view(address, nbytes).copy()

        _load(x, slot, site, where, read, _item(barrier, at),
              None if mask is None else _item(mask, at), nbytes)


def _load(
    x: Lanes, slot: int, site: int, where: Array, data: Callable[[], Array], barrier: int,
    mask: int | None, nbytes: int,
) -> None:
    own = slot // x.batch.slots_per_block
    signal = _offset(x, barrier, 8, slot, site)
    if signal not in x.batch.pending.mbarriers:
        x.fail("bulk copy with an mbarrier that was not initialised", site, slot)
    for position in _targets(x, slot, mask):
        move = (position - own) * x.batch.shared_stride
        x.batch.shared.data[where + move] = POISON
        x.batch.pending.loads.append(BulkLoad(where + move, data, signal + move, slot, site))
    chosen = np.array([slot])
    x.batch.count_bulk(site, nbytes, chosen)


def _offset(x: Lanes, address: int, nbytes: int, slot: int, site: int) -> int:
    """The offset of an address of shared memory in the memory of the batch."""
    alignment = 8 if nbytes == 8 else 1
    first = np.array([address], dtype=np.uint64)
    _, low = x.locate("shared", first, alignment, np.array([slot]), site)
    last = np.array([address + nbytes - 1], dtype=np.uint64)
    x.locate("shared", last, 1, np.array([slot]), site)
    return int(low[0])


def _box_places(x: Lanes, tensor_map: TensorMap, address: int, slot: int, site: int) -> Array:
    """Where each byte of a box goes in shared memory, swizzled."""
    if address % 128:
        x.fail("the shared address of a tensor copy is not a multiple of 128", site, slot,
               got=f"{address:#x}")
    start = _offset(x, address, tensor_map.box_bytes, slot, site)
    linear = address + np.arange(tensor_map.box_bytes)
    return swizzled(linear, tensor_map.swizzle) - address + start


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _tensor_map(x: Lanes, address: int, site: int, slot: int) -> TensorMap:
    if PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES:
        start = address - PARAM_WINDOW
        data = x.batch.parameters.data[start : start + 128].tobytes()
    elif address < x.batch.parameters.nbytes:
        data = x.batch.parameters.data[address : address + 128].tobytes()
    else:
        data = x.batch.memory.view(address, 128).tobytes()
    if address % 64 or len(data) < 128:
        x.fail("the address of a tensor map is not a multiple of 64", site, slot)
    found = decode_tensor_map(data)
    if found is None:
        x.fail("the bytes at the address of a tensor map are no tensor map", site, slot,
               got=f"{address:#x}")
    return found


def _element_offsets(tensor_map: TensorMap, start: list[int]) -> tuple[Array, Array]:
    """Byte offsets of the elements of a box in the tensor, and which are inside."""
    strides = (tensor_map.element_bytes, *tensor_map.strides)
    offset = np.zeros((1,), dtype=np.int64)
    inside = np.ones((1,), dtype=bool)
    for axis, size in enumerate(tensor_map.box):
        index = start[axis] + np.arange(size) * tensor_map.element_strides[axis]
        within = (index >= 0) & (index < tensor_map.dims[axis])
        offset = ((index * strides[axis])[:, None] + offset[None, :]).reshape(-1)
        inside = (within[:, None] & inside[None, :]).reshape(-1)
    return offset, inside


def _reader(
    x: Lanes, tensor_map: TensorMap, start: list[int], site: int, slot: int
) -> Callable[[], Array]:
    region = x.batch.memory.find(tensor_map.address)
    offset, inside = _element_offsets(tensor_map, start)
    if region is None:
        x.fail("the memory of a tensor map is not allocated", site, slot,
               got=x.batch.memory.describe(tensor_map.address))
    base = tensor_map.address - region.base
    if inside.any() and base + int(offset[inside].max()) + tensor_map.element_bytes > region.nbytes:
        x.fail("a tensor map describes more than its allocation holds", site, slot)
    width = tensor_map.element_bytes
    places = np.where(inside, offset + base, 0)[:, None] + np.arange(width)
    memory = region.data

    def read() -> Array:
        data = np.where(inside[:, None], memory[places],
                        np.uint8(0xFF if tensor_map.fill_nan else 0))
        return data.reshape(-1)

    return read


def store_tensor(
    x: Lanes, tensor: Array, coordinates: tuple[Array, ...], source: Array, reduce: str | None,
    guard: Array | None, site: int,
) -> None:
    """``cp.async.bulk.tensor`` from shared to global memory, of a bulk group."""
    if reduce is not None:
        x.fail("reductions of bulk copies are not supported", site, 0)
    for at in _each(x, guard):
        slot = int(x.slots[at])
        tensor_map = _tensor_map(x, _item(tensor, at), site, slot)
        start = [_signed(_item(value, at)) for value in coordinates]
        where = _box_places(x, tensor_map, _item(source, at), slot, site)
        region = x.batch.memory.find(tensor_map.address)
        if region is None:
            x.fail("the memory of a tensor map is not allocated", site, slot)
        offset, inside = _element_offsets(tensor_map, start)
        base = tensor_map.address - region.base
        places = ((offset + base)[:, None] + np.arange(tensor_map.element_bytes))[inside]
        some = np.flatnonzero(inside)
        end = int(places.max()) + 1 if some.shape[0] else 0
        if end > region.nbytes:
            x.fail("a tensor map describes more than its allocation holds", site, slot)
        picked = where.reshape(-1, tensor_map.element_bytes)[some]

        def run(region: Region = region, places: Array = places, picked: Array = picked) -> None:
            region.data[places] = x.batch.shared.data[picked]

        x.batch.pending.stores.append(BulkStore(slot, int(x.batch.pending.store_groups[slot]), run))
        x.batch.count_bulk(site, tensor_map.box_bytes, np.array([slot]))


def store_bytes(
    x: Lanes, target: Array, source: Array, size: Array, guard: Array | None, site: int
) -> None:
    """``cp.async.bulk`` of contiguous bytes from shared to global memory."""
    for at in _each(x, guard):
        slot, nbytes, address = int(x.slots[at]), _item(size, at), _item(target, at)
        where = _offset(x, _item(source, at), nbytes, slot, site)
        if nbytes % 16 or address % 16 or where % 16:
            x.fail("misaligned bulk copy", site, slot)
        view = x.batch.memory.view(address, nbytes)

        def run(view: Array = view, where: int = where, nbytes: int = nbytes) -> None:
            view[:] = x.batch.shared.data[where : where + nbytes]

        x.batch.pending.stores.append(BulkStore(slot, int(x.batch.pending.store_groups[slot]), run))


def commit(x: Lanes, guard: Array | None) -> None:
    """``cp.async.bulk.commit_group``."""
    for at in _each(x, guard):
        x.batch.pending.store_groups[int(x.slots[at])] += 1


def wait(x: Lanes, allowed: int, guard: Array | None) -> None:
    """``cp.async.bulk.wait_group``: run the stores of all groups but the latest ``allowed``."""
    waiting = {int(x.slots[at]) for at in _each(x, guard)}
    left = []
    for item in x.batch.pending.stores:
        if item.slot in waiting and item.group < x.batch.pending.store_groups[item.slot] - allowed:
            item.run()
        else:
            left.append(item)
    x.batch.pending.stores = left


def finish(x: Lanes) -> None:
    """At the end of a block its stores complete, whatever shared memory holds by then."""
    for item in x.batch.pending.stores:
        item.run()
    x.batch.pending.stores = []
