"""The lanes that run a block: what generated code calls for memory, addresses and values."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from weft.testing.cuda import atomics
from weft.testing.cuda.batch import Batch
from weft.testing.cuda.device_memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_START,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Region,
)
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.races import (
    Accessor,
    Report,
    Shadow,
    describe_word,
)

Array = np.ndarray
_UNSIGNED = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


class Lanes:
    """The active lanes of a batch. ``index`` is None if every live lane is active."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.index: Array | None = None
        self.count = batch.lanes
        self._slots: Array | None = None
        self._accessor: Accessor | None = None
        # Loads of the block whose values it does not use.
        self.deferred: list[tuple[tuple[int, ...], Region, Array, int, Array, int]] = []

    def enter(self, index: Array | None) -> None:
        """Choose the active lanes of the next block."""
        self.index = index
        self.count = self.batch.lanes if index is None else len(index)
        self._slots = None
        self._accessor = None

    @property
    def slots(self) -> Array:
        """Lane numbers in the batch, one per entry of the arrays of a block."""
        if self._slots is None:
            self._slots = self.batch.every_slot if self.index is None else self.index
        return self._slots

    def active(self, guard: Array | None) -> Array | None:
        """Positions of the lanes that access memory, or None for all of them."""
        live = self.batch.live if self.index is None else None
        if guard is None:
            return None if live is None else self.batch.live_slots
        if guard.shape[0] == 1 and self.count != 1:
            if not guard[0]:
                return _EMPTY
            return None if live is None else self.batch.live_slots
        mask = guard if live is None else guard & live
        return None if mask.all() else np.flatnonzero(mask)

    # values

    def special(self, name: str) -> Array:
        """A special register."""
        value = self.batch.special(name)
        if self.index is None or value.shape[0] == 1:
            return value
        return value[self.index]

    def symbol(self, name: str, dtype: str) -> Array:
        """The address of a variable in its state space."""
        return np.array([self.batch.symbol_address(name)], dtype="u8").astype(dtype)

    def parameter(self, name: str, offset: int, dtype: str) -> Array:
        """A kernel parameter."""
        return self.batch.parameter(name, offset, dtype)

    # addresses

    def to_generic(self, space: str, address: Array) -> Array:
        """``cvta.space``."""
        window = _WINDOWS.get(space)
        return address if window is None else address.astype("u8") + np.uint64(window)

    def from_generic(self, space: str, address: Array) -> Array:
        """``cvta.to.space``."""
        window = _WINDOWS.get(space)
        return address if window is None else address - np.uint64(window)

    def map_generic(self, address: Array, rank: Array) -> Array:
        """``mapa``: the generic address of the same variable in another block of the cluster."""
        inside = address - np.uint64(SHARED_WINDOW)
        tag = (rank.astype("u8") + np.uint64(1)) << np.uint64(24)
        moved = (inside & np.uint64(0xFFFFFF)) | tag
        return moved + np.uint64(SHARED_WINDOW)

    def rank_of(self, address: Array) -> Array:
        """``getctarank``: the block of the cluster that owns an address of shared memory."""
        tag = (address & np.uint64(0xFFFFFFFF)) >> np.uint64(24)
        own = self.batch.cluster_rank(self.batch.blocks[self.slots // self.batch.slots_per_block])
        return np.where(tag > 0, tag - np.uint64(1), own).astype("u4")

    def is_space(self, space: str, address: Array) -> Array:
        """``isspacep``."""
        window = _WINDOWS.get(space)
        if window is not None:
            return (address >= window) & (address < window + WINDOW_BYTES)
        return address >= np.uint64(PARAM_WINDOW + WINDOW_BYTES)

    def _space_of_generic(self, address: Array, site: int) -> tuple[str, Array]:
        """All lanes of a generic access must be in one space."""
        for space, window in _WINDOWS.items():
            inside = (address >= window) & (address < window + WINDOW_BYTES)
            if inside.any():
                if not inside.all():
                    self.fail("generic access to several state spaces in one instruction", site, 0)
                return space, address - np.uint64(window)
        return "global", address

    def locate(
        self, space: str, address: Array, nbytes: int, chosen: Array, site: int
    ) -> tuple[Region, Array]:
        """The region and the byte offsets of an access; checks bounds and alignment."""
        if space == "generic":
            space, address = self._space_of_generic(address, site)
        if (address & address.dtype.type(nbytes - 1)).any():
            at = int(np.flatnonzero(address & address.dtype.type(nbytes - 1))[0])
            self.fail(f"misaligned access of {nbytes} bytes to {space} memory at "
                      f"{int(address[at]):#x}", site, _lane(chosen, at, address))
        if space in {"global", "const"}:
            return self._global(address, nbytes)
        if space == "shared":
            return self._shared(address, nbytes, chosen, site)
        if space == "local":
            return self._local(address, nbytes, chosen, site)
        return self._param(address, nbytes, site)

    def _global(self, address: Array, nbytes: int) -> tuple[Region, Array]:
        memory = self.batch.memory
        low, high = int(address.min()), int(address.max())
        region = memory.find(low)
        if region is None or high + nbytes > region.base + region.nbytes:
            raise MixedRegions
        return region, (address - np.uint64(region.base)).view(np.int64)

    def _shared(
        self, address: Array, nbytes: int, chosen: Array, site: int
    ) -> tuple[Region, Array]:
        batch = self.batch
        offset = address.astype(np.int64) - SHARED_START
        rank = None
        if offset.max() >= 1 << 24:
            rank = (offset + SHARED_START) >> 24
            offset = ((offset + SHARED_START) & 0xFFFFFF) - SHARED_START
        if offset.min() < 0 or offset.max() + nbytes > batch.shared_bytes:
            bad = (offset < 0) | (offset + nbytes > batch.shared_bytes)
            at = int(np.flatnonzero(bad)[0])
            self.fail(f"access of {nbytes} bytes at {int(offset[at])} is outside of shared memory "
                      f"({batch.shared_bytes} bytes)", site, _lane(chosen, at, address))
        block = chosen // batch.slots_per_block
        if rank is not None:
            peers = batch.cluster_block(block, rank - 1)
            block = np.where(rank > 0, peers, block)
        return batch.shared, offset + block * batch.shared_stride

    def _local(
        self, address: Array, nbytes: int, chosen: Array, site: int
    ) -> tuple[Region, Array]:
        batch = self.batch
        offset = address.astype(np.int64)
        if offset.min() < 0 or offset.max() + nbytes > batch.local_bytes:
            bad = (offset < 0) | (offset + nbytes > batch.local_bytes)
            at = int(np.flatnonzero(bad)[0])
            self.fail(f"access of {nbytes} bytes at {int(offset[at])} is outside of local memory "
                      f"({batch.local_bytes} bytes)", site, _lane(chosen, at, address))
        return batch.local, offset + chosen * batch.local_stride

    def _param(self, address: Array, nbytes: int, site: int) -> tuple[Region, Array]:
        region = self.batch.parameters
        offset = address.astype(np.int64)
        if offset.min() < 0 or offset.max() + nbytes > region.nbytes:
            self.fail(f"access of {nbytes} bytes is outside of the parameters", site, 0)
        return region, offset

    # loads and stores

    def load(self, space: str, address: Array, width: int, count: int, guard: Array | None,
             site: int, tracked: bool, held: tuple[int, ...] = ()) -> tuple[Array, ...]:
        """``count`` consecutive unsigned values of ``width`` bytes for each active lane.

        ``deferred`` are the numbers of the registers that receive them unused in the block.
        """
        active = self.active(guard)
        if active is not None:
            if active.shape[0] == 0:
                return (np.zeros(1, _UNSIGNED[width]),) * count
            chosen = self.slots[active]
            if address.shape[0] != 1:
                address = address[active]
        else:
            chosen = self.slots
        try:
            region, offset = self.locate(space, address, width * count, chosen, site)
        except MixedRegions:
            values = self._by_region(address, width, count, chosen, site, None)
        else:
            if tracked and held and self.batch.check_races and region is not self.batch.local:
                self.deferred.append((held, region, offset, width * count, chosen, site))
            elif tracked:
                self.track(region, offset, width * count, active, site, write=False)
            self.batch.count_access(site, space, region, offset, width * count, chosen)
            view = region.views[_UNSIGNED[width]]
            element = offset // width if width > 1 else offset
            values = (view[element],) if count == 1 else tuple(
                view[element + part] for part in range(count))
        if active is None or values[0].shape[0] == 1 != self.count:
            return values
        return tuple(self._spread(value, active) for value in values)

    def _spread(self, value: Array, active: Array) -> Array:
        full = np.zeros(self.count, dtype=value.dtype)
        full[active] = value
        return full

    def store(self, space: str, address: Array, values: tuple[Array, ...], width: int,
              guard: Array | None, site: int, tracked: bool) -> None:
        """Write ``values`` at consecutive places."""
        active = self.active(guard)
        if active is not None:
            if active.shape[0] == 0:
                return
            chosen = self.slots[active]
            if address.shape[0] != 1:
                address = address[active]
            values = tuple(v if v.shape[0] == 1 else v[active] for v in values)
        else:
            chosen = self.slots
        if address.shape[0] == 1 and space == "local":
            address = np.broadcast_to(address, chosen.shape)
        try:
            region, offset = self.locate(space, address, width * len(values), chosen, site)
        except MixedRegions:
            self._by_region(address, width, len(values), chosen, site, values)
            return
        if region.read_only:
            self.fail(f"write to {region.name}", site, int(chosen[0]))
        if tracked:
            self.track(region, offset, width * len(values), active, site, write=True)
        self.batch.count_access(site, space, region, offset, width * len(values), chosen)
        view = region.views[_UNSIGNED[width]]
        element = offset // width if width > 1 else offset
        for part, value in enumerate(values):
            last = element.shape[0] == 1 != value.shape[0]  # all lanes write one place
            view[element + part if part else element] = value[-1:] if last else value

    def _by_region(
        self, address: Array, width: int, count: int, chosen: Array, site: int,
        values: tuple[Array, ...] | None,
    ) -> tuple[Array, ...]:
        """An access that touches several allocations, or none."""
        memory = self.batch.memory
        result = tuple(np.zeros(address.shape, _UNSIGNED[width]) for _ in range(count))
        left = np.ones(address.shape, dtype=bool)
        while left.any():
            at = int(np.flatnonzero(left)[0])
            region = memory.find(int(address[at]))
            if region is None:
                self._outside(address, at, width * count, chosen, site, values is not None)
            inside = left & (address >= region.base) & (address < region.base + region.nbytes)
            over = inside & (address + np.uint64(width * count) > region.base + region.nbytes)
            if over.any() or not inside.any():
                at = int(np.flatnonzero(over)[0]) if over.any() else at
                self._outside(address, at, width * count, chosen, site, values is not None)
            offset = (address[inside] - np.uint64(region.base)).view(np.int64)
            some = chosen[inside] if address.shape[0] != 1 else chosen
            self.track_slots(region, offset, width * count, some, site, write=values is not None)
            self.batch.count_access(site, "global", region, offset, width * count, some)
            view = region.views[_UNSIGNED[width]]
            for part in range(count):
                element = offset // width + part
                if values is None:
                    result[part][inside] = view[element]
                else:
                    value = values[part]
                    view[element] = value if value.shape[0] == 1 else value[inside]
            left &= ~inside
        return result

    def _outside(
        self, address: Array, at: int, nbytes: int, chosen: Array, site: int, write: bool
    ) -> NoReturn:
        value = int(address[at])
        self.fail(f"{'write' if write else 'read'} of {nbytes} bytes of global memory out of "
                  "bounds", site, _lane(chosen, at, address),
                  got=self.batch.memory.describe(value))

    def atomic(
        self, space: str, operation: str, kind: str, address: Array, operands: tuple[Array, ...],
        guard: Array | None, site: int, returns: bool,
    ) -> Array:
        """``atom`` and ``red``: the old values; lanes act one after another in shuffled order."""
        active = self.active(guard)
        positions = np.arange(self.count) if active is None else active
        width = operands[0].dtype.itemsize
        result = np.zeros(self.count, dtype=operands[0].dtype)
        if positions.shape[0] == 0:
            return result
        chosen = self.slots[positions]
        address = np.broadcast_to(address, (self.count,))[positions]
        operands = tuple(np.broadcast_to(v, (self.count,))[positions] for v in operands)
        try:
            region, offset = self.locate(space, address, width, chosen, site)
        except MixedRegions:
            at = int(np.argmin(address))
            self._outside(address, at, width, chosen, site, True)
        self.batch.count_access(site, space, region, offset, width, chosen)
        view = region.views[_UNSIGNED[width]]
        shuffled = self.batch.random.permutation(positions.shape[0])
        old = atomics.apply(
            view, offset[shuffled] // width, operation, kind,
            tuple(v[shuffled] for v in operands), returns)
        if returns:
            result[positions[shuffled]] = old
        return result

    def fence(self) -> None:
        """A fence of device scope: accesses of these blocks may be ordered with other blocks'."""
        self.batch.fenced[np.unique(self.slots // self.batch.slots_per_block)] = True
        self._accessor = None

    def forget_order(self) -> None:
        """The clocks of lanes changed."""
        self._accessor = None

    # races and errors

    def track(
        self, region: Region, offset: Array, nbytes: int, active: Array | None, site: int, *,
        write: bool,
    ) -> None:
        """Check and remember an access of the active lanes."""
        if not self.batch.check_races or region is self.batch.local:
            return
        if active is not None:
            self.track_slots(region, offset, nbytes, self.slots[active], site, write=write)
            return
        if self._accessor is None:
            self._accessor = self.batch.accessor(self.index)
        self._track(region, offset, nbytes, self._accessor, site, write)

    def track_slots(
        self, region: Region, offset: Array, nbytes: int, slots: Array, site: int, *, write: bool
    ) -> None:
        """The same for lanes given by number."""
        if self.batch.check_races and region is not self.batch.local:
            self._track(region, offset, nbytes, self.batch.accessor(slots), site, write)

    def _track(
        self, region: Region, offset: Array, nbytes: int, who: Accessor, site: int, write: bool
    ) -> None:
        shadow = self._shadow(region, nbytes)
        check = shadow.write if write else shadow.read
        check(offset, nbytes, who, site, self._reporter(region))

    def check_read(
        self, region: Region, offset: Array, nbytes: int, who: Accessor, site: int
    ) -> None:
        """Check a read that happened before."""
        shadow = self._shadow(region, nbytes)
        shadow.read(offset, nbytes, who, site, self._reporter(region), late=True)

    def _shadow(self, region: Region, nbytes: int) -> Shadow:
        if region.shadow is None:
            private = region is self.batch.shared and not self.batch.has_clusters
            region.shadow = Shadow(region.data.shape[0], min(nbytes, 4), private)
            self.batch.tracked.append(region)
        return region.shadow

    def _reporter(self, region: Region) -> Report:
        def report(word: int, prior: int, at: int, writes: bool) -> None:
            self._race(region, word, prior, at, writes)

        return report

    def _race(self, region: Region, word: int, prior: int, site: int, write: bool) -> None:
        block, thread, _ = describe_word(word | site)
        other_block, other_thread, other_site = describe_word(prior)
        other = self.batch.names.sites[other_site % max(len(self.batch.names.sites), 1)]
        slot = self.batch.slot_of(int(block), int(thread))
        self.fail(
            f"data race in {region.name}: {'write' if write else 'read'} by thread {thread} of "
            f"block {block}, and an access by thread {other_thread} of block {other_block}, "
            "without a barrier between", site, slot,
            notes=(f"the other access: {other.name} at PTX line {other.line}"
                   + (f", source line {other.source}" if other.source else ""),))

    def fail(
        self, what: str, site: int, slot: int, got: str | None = None, notes: tuple[str, ...] = ()
    ) -> NoReturn:
        """Raise for the instruction ``site`` and the lane ``slot``."""
        instruction = self.batch.names.sites[site]
        raise CudaEmulationError(
            what, where=self.batch.place(instruction, slot), got=got,
            notes=(f"instruction: {instruction.name}", *notes))


class MixedRegions(Exception):  # noqa: N818
    """Lanes of one instruction access several allocations, or memory outside of all."""


_EMPTY = np.zeros(0, dtype=np.int64)


def _lane(chosen: Array, at: int, address: Array) -> int:
    return int(chosen[0 if address.shape[0] == 1 else at])
