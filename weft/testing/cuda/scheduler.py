"""Runs the blocks of a batch: divergence, barriers, waits, exits.

Threads of a batch run in lock-step as far as their control flow agrees. Diverged groups are keyed
by the basic block they are about to run; the group of the lowest block runs next, which makes
groups meet again at the immediate post-dominator (see ``flow``).
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from weft.testing.cuda.batch import WARP, Batch
from weft.testing.cuda.block_writer import RegisterFile
from weft.testing.cuda.bulk_copies import complete_one, finish
from weft.testing.cuda.compiled import CompiledBlock
from weft.testing.cuda.deferred_reads import DeferredRead, DeferredReads
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.lanes import Lanes

Array = np.ndarray


class Scheduler:
    """The control flow of one batch."""

    def __init__(self, batch: Batch, budget: int) -> None:
        self.batch = batch
        self.blocks = batch.program.blocks
        self.lanes = Lanes(batch)
        poison = (1 << 64) - 1
        self.registers = RegisterFile(batch.names.widths, batch.lanes, poison)
        self.budget = budget
        # Groups of threads by their next block; None stands for all live lanes.
        self.ready: dict[int, Array | None] = {0: None}
        self.waiting: dict[int, _Barrier] = {}
        self.spinning: dict[int, Array | None] = {}
        self.polling: int | None = None
        self.seen_events = -1
        self.deferred = DeferredReads()

    def run(self) -> None:
        """Run until every thread has exited."""
        with np.errstate(all="ignore"):
            while True:
                if not self.ready and not self._wake():
                    break
                at = min(self.ready)
                self._step(at, self.ready.pop(at))
        finish(self.lanes)
        if any(barrier.slots.shape[0] for barrier in self.waiting.values()):
            self._deadlock()

    def _step(self, at: int, index: Array | None) -> None:
        block = self.blocks[at]
        self.lanes.enter(index)
        self.budget -= block.instructions
        if self.budget < 0:
            self._out_of_budget(at, index)
        if self.batch.counters is not None:
            self.batch.counters.block(block, self.lanes.slots if self.batch.live is None or
                                      index is not None else self.batch.live_slots)
        if self.deferred.mask:
            self.deferred.check(self.lanes, block.uses.uses)
        result = block.function(self.lanes, self.registers)
        if self.deferred.mask or self.lanes.deferred:
            self._carry_reads(block)
        if block.end is None:
            self._go(block.successors[0], index) if block.successors else self._exit(index)
            return
        assert isinstance(result, tuple)
        match block.end.opcode:
            case "bra":
                self._branch(block, index, result[0])
            case "ret" | "exit":
                self._guarded_exit(block, index, result[0])
            case "bar" | "barrier":
                self._barrier(block, index, result)
            case "brx":
                self._table(block, index, result[1])
            case "trap":
                self._trap(block, index, result[0])
            case "mbarrier":
                self._poll(block, index, result[1])
            case "nanosleep":
                self._hold(block.successors[0], index)
            case _:
                self._go(block.successors[0], index)

    def _carry_reads(self, block: CompiledBlock) -> None:
        """Follow loaded values whose race check waits for a use."""
        deferred, x = self.deferred, self.lanes
        moved = [(target, deferred.copies(x, source)) for target, source in block.uses.copies]
        deferred.kill(x, block.uses.writes)
        for target, reads in moved:
            for read in reads:
                deferred.add((target,), read)
        for held, region, offset, nbytes, slots, site in x.deferred:
            who = self.batch.accessor(slots)
            deferred.add(held, DeferredRead(region, offset, nbytes, slots, who, site,
                                            np.ones(slots.shape, dtype=bool)))
        x.deferred.clear()

    # groups

    def _go(self, at: int, index: Array | None) -> None:
        self._join(self.ready, at, index)

    def _hold(self, at: int, index: Array | None) -> None:
        """Let all other threads run first."""
        self._join(self.spinning, at, index)

    def _join(self, groups: dict[int, Array | None], at: int, index: Array | None) -> None:
        if at not in groups:
            groups[at] = index
            return
        other = groups[at]
        assert index is not None
        assert other is not None
        merged = np.sort(np.concatenate((index, other)))
        groups[at] = None if merged.shape[0] == self._live_count() else merged

    def _live_count(self) -> int:
        return self.batch.live_slots.shape[0]

    def _slots(self, index: Array | None) -> Array:
        return self.batch.live_slots if index is None else index

    def _chosen(self, index: Array | None, condition: Array) -> tuple[Array, Array]:
        """The lanes of a group for which ``condition`` holds, and the others."""
        slots = self._slots(index)
        if index is None and self.batch.live is not None:
            condition = condition[slots]
        return slots[condition], slots[~condition]

    def _branch(self, block: CompiledBlock, index: Array | None, condition: Array | None) -> None:
        if condition is None:
            self._go(block.successors[0], index)
            return
        taken, following = block.successors[0], block.successors[-1]
        if condition.shape[0] == 1:
            self._go(taken if condition[0] else following, index)
            return
        yes, no = self._chosen(index, condition)
        if no.shape[0] == 0:
            self._go(taken, index)
        elif yes.shape[0] == 0:
            self._go(following, index)
        else:
            if self.batch.counters is not None:
                self.batch.counters.divergence(block.site, yes, no)
            self._go(taken, yes)
            self._go(following, no)

    def _table(self, block: CompiledBlock, index: Array | None, number: Array) -> None:
        slots = self._slots(index)
        if number.shape[0] != 1 and index is None and self.batch.live is not None:
            number = number[slots]
        number = np.broadcast_to(number, slots.shape)
        if (number >= len(block.successors)).any():
            self.lanes.fail("index of a branch table is out of range", block.site, int(slots[0]))
        for value in np.unique(number):
            self._go(block.successors[int(value)], self._group(slots[number == value]))

    def _group(self, slots: Array) -> Array | None:
        return None if slots.shape[0] == self._live_count() else slots

    def _guarded_exit(
        self, block: CompiledBlock, index: Array | None, condition: Array | None
    ) -> None:
        if condition is None:
            self._exit(index)
            return
        if condition.shape[0] == 1:
            if condition[0]:
                self._exit(index)
            else:
                self._go(block.successors[0], index)
            return
        gone, staying = self._chosen(index, condition)
        if gone.shape[0]:
            self._exit(gone)
        if staying.shape[0]:
            self._go(block.successors[0], self._group(staying))

    def _exit(self, index: Array | None) -> None:
        live = self.batch.live
        live = np.ones(self.batch.lanes, dtype=bool) if live is None else live.copy()
        live[self._slots(index)] = False
        self.batch.set_live(live)
        count = self._live_count()
        for groups in (self.ready, self.spinning):
            for at, group in groups.items():
                if group is not None and group.shape[0] == count:
                    groups[at] = None
        self._release()

    def _trap(self, block: CompiledBlock, index: Array | None, condition: Array | None) -> None:
        slots = self._slots(index)
        if condition is not None:
            slots = slots if condition.shape[0] == 1 and condition[0] else self._chosen(
                index, np.broadcast_to(condition, (self.lanes.count,)))[0]
        if slots.shape[0]:
            self.lanes.fail("trap", block.site, int(slots[0]))
        self._go(block.successors[0], index)

    # barriers

    def _barrier(
        self, block: CompiledBlock, index: Array | None, result: tuple[Array, ...]
    ) -> None:
        following = block.successors[0] if block.successors else None
        if following is None:
            self._exit(index)
            return
        modifiers = block.end.modifiers if block.end is not None else ()
        if "cluster" in modifiers:
            self._cluster_barrier(block, index, following, "arrive" in modifiers)
            return
        if result[0] is not None:
            self.lanes.fail("barrier under a predicate", block.site, int(self._slots(index)[0]))
        numbers = result[1] if len(result) > 1 else _ZERO
        if numbers.shape[0] != 1:
            self.lanes.fail("barrier number differs between threads", block.site, 0)
        number = int(numbers[0])
        count = int(result[2][0]) if len(result) > 2 else 0
        arrive = "arrive" in modifiers
        if index is None and (count in {0, self.batch.slots_per_block}) and not arrive and (
            number not in self.waiting or not self.waiting[number].slots.shape[0]
        ):
            self.batch.synchronise(None)
            self._go(following, None)
            return
        slots = self._slots(index)
        self._check_whole_warps(block, slots)
        barrier = self.waiting.setdefault(number, _Barrier())
        barrier.add(slots, following, block.site, count)
        if arrive:
            barrier.arrived(slots)
            self._go(following, index)
        self._release()

    def _cluster_barrier(
        self, block: CompiledBlock, index: Array | None, following: int, arrive: bool
    ) -> None:
        """``barrier.cluster``: the wait needs every thread of the cluster; it implies arrival."""
        if arrive:
            self._go(following, index)
            return
        barrier = self.waiting.setdefault(_CLUSTER, _Barrier())
        barrier.add(self._slots(index), following, block.site, 0)
        self._release()

    def _check_whole_warps(self, block: CompiledBlock, slots: Array) -> None:
        """``bar.sync`` is aligned: the threads of a warp come together."""
        if block.end is not None and block.end.opcode == "barrier" and (
            "aligned" not in block.end.modifiers
        ):
            return
        live = np.bincount(self.batch.live_slots // WARP, minlength=self.batch.lanes // WARP)
        here = np.bincount(slots // WARP, minlength=self.batch.lanes // WARP)
        split = (here != 0) & (here != live)
        if split.any():
            warp = int(np.flatnonzero(split)[0])
            slot = int(slots[slots // WARP == warp][0])
            self.lanes.fail("barrier reached by a part of a warp", block.site, slot,
                            notes=(f"{here[warp]} of {live[warp]} threads of the warp are here",))

    def _release(self) -> None:
        """Let blocks pass whose barriers are complete."""
        for number, barrier in self.waiting.items():
            if not barrier.slots.shape[0]:
                continue
            per = self.batch.slots_per_block
            if number == _CLUSTER:
                x, y, z = self.batch.shape.cluster
                per *= x * y * z
            blocks = self.batch.lanes // per
            here = np.bincount(barrier.slots // per, minlength=blocks)
            live = np.bincount(self.batch.live_slots // per, minlength=blocks)
            needed = np.where(barrier.count > 0, barrier.count, live)
            if barrier.count > 0 and (here > barrier.count).any():
                self._too_many(barrier)
            complete = (here > 0) & (here >= needed)
            if not complete.any():
                continue
            passing = complete[barrier.slots // per]
            slots, targets, arrived = barrier.take(passing)
            if number == _CLUSTER:  # the blocks of a cluster are ordered now
                self.batch.fenced[slots // self.batch.slots_per_block] = True
            self.batch.synchronise(slots)
            for target in np.unique(targets[~arrived]):
                group = np.sort(slots[(targets == target) & ~arrived])
                self._go(int(target), self._group(group))

    def _too_many(self, barrier: _Barrier) -> NoReturn:
        self.lanes.fail(f"more threads than the {barrier.count} of a barrier arrived",
                        int(barrier.sites[0]), int(barrier.slots[0]))

    # waits in memory

    def _poll(self, block: CompiledBlock, index: Array | None, done: Array) -> None:
        """``try_wait``: threads whose phase is complete go on, the others after everyone else."""
        following = block.successors[0]
        self.polling = block.site
        done = np.broadcast_to(done, (self.lanes.count,))
        yes, no = self._chosen(index, done)
        if yes.shape[0]:
            self.batch.synchronise(yes)
            self._go(following, self._group(yes))
        if no.shape[0]:
            self._hold(following, self._group(no))

    def _wake(self) -> bool:
        """Resume threads that poll, completing an asynchronous copy first; False if none polls."""
        if not self.spinning:
            return False
        pending = self.batch.pending
        completed = complete_one(self.lanes)
        if not completed and pending.events == self.seen_events and self.polling is not None:
            self._endless_poll()
        self.seen_events = pending.events
        self.ready, self.spinning = self.spinning, {}
        return True

    def _endless_poll(self) -> NoReturn:
        assert self.polling is not None
        groups = [self._slots(group) for group in self.spinning.values()]
        notes = [f"{self._slots(group).shape[0]} threads poll before block {at} of the kernel"
                 for at, group in self.spinning.items()]
        notes += self._waiting_notes()
        self.lanes.fail("deadlock: threads wait at an mbarrier whose phase never ends",
                        self.polling, int(groups[0][0]), notes=tuple(notes))

    # errors

    def _deadlock(self) -> NoReturn:
        barrier = next(item for item in self.waiting.values() if item.slots.shape[0])
        self.lanes.fail("deadlock: threads wait at a barrier that others never reach",
                        int(barrier.sites[0]), int(barrier.slots[0]),
                        notes=tuple(self._waiting_notes()))

    def _waiting_notes(self) -> list[str]:
        notes = []
        for number, barrier in self.waiting.items():
            for at in np.unique(barrier.sites):
                some = barrier.slots[barrier.sites == at]
                instruction = self.batch.names.sites[int(at)]
                where = self.batch.place(instruction, int(some[0]))
                notes.append(f"{some.shape[0]} threads wait at barrier {number}, "
                             f"{instruction.name}, the first: {where}")
        return notes

    def _out_of_budget(self, at: int, index: Array | None) -> NoReturn:
        body = self.batch.program.blocks[at]
        slots = self._slots(index)
        where = self.batch.program.function.name
        if body.end is not None:
            where = self.batch.place(body.end, int(slots[0]))
        raise CudaEmulationError("the instruction budget is used up: an endless loop?",
                                 where=where, help="raise EmulationOptions.instruction_budget")


class _Barrier:
    """The threads that wait at one barrier number, over all blocks of the batch."""

    def __init__(self) -> None:
        self.slots = np.zeros(0, dtype=np.int64)
        self.targets = np.zeros(0, dtype=np.int64)
        self.sites = np.zeros(0, dtype=np.int64)
        self.passed = np.zeros(0, dtype=bool)
        self.count = 0

    def add(self, slots: Array, target: int, site: int, count: int) -> None:
        self.count = count
        self.slots = np.concatenate((self.slots, slots))
        self.targets = np.concatenate((self.targets, np.full(slots.shape, target)))
        self.sites = np.concatenate((self.sites, np.full(slots.shape, site)))
        self.passed = np.concatenate((self.passed, np.zeros(slots.shape, dtype=bool)))

    def arrived(self, slots: Array) -> None:
        """The latest ``slots`` do not wait."""
        self.passed[-slots.shape[0] :] = True

    def take(self, passing: Array) -> tuple[Array, Array, Array]:
        """Remove and give the threads in ``passing``: lanes, next blocks, who did not wait."""
        result = self.slots[passing], self.targets[passing], self.passed[passing]
        keep = ~passing
        self.slots, self.targets = self.slots[keep], self.targets[keep]
        self.sites, self.passed = self.sites[keep], self.passed[keep]
        return result


_CLUSTER = -1  # the number of the barrier of a cluster, whose blocks lie side by side
_ZERO = np.zeros(1, dtype=np.uint32)
