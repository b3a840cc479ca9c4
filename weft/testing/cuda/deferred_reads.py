"""Race checks of loads whose values may never be used.

Compilers load early: a thread may load a place that another thread writes, and drop the value on
the path that it takes. Such a load is no error of the program. So if the block of a load does not
use the value, the load is checked when a thread runs a block that does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.support.dataclass import dataclass
from weft.testing.cuda.compiled import BlockUses
from weft.testing.cuda.device_memory import Region
from weft.testing.cuda.lanes import Lanes
from weft.testing.cuda.ptx.module import (
    Address,
    Instruction,
    Operand,
    Pair,
    Register,
    Vector,
)
from weft.testing.cuda.races import Accessor

Array = np.ndarray


@dataclass(slots=True)
class DeferredRead:
    """A load by ``slots`` that was not checked for those in ``left``."""

    region: Region
    offset: Array
    nbytes: int
    slots: Array
    who: Accessor
    site: int
    left: Array


class DeferredReads:
    """The loads of a batch to be checked at the first use, by the register that holds the value."""

    def __init__(self) -> None:
        self.held: dict[int, list[DeferredRead]] = {}
        self.mask = 0

    def add(self, registers: tuple[int, ...], read: DeferredRead) -> None:
        """The value of ``read`` is in these registers now."""
        for register in registers:
            self.held.setdefault(register, []).append(read)
            self.mask |= 1 << register

    def check(self, x: Lanes, uses: int) -> None:
        """The active lanes use the registers of the bit set ``uses``."""
        found = self.mask & uses
        if not found:
            return
        active = active_lanes(x)
        for register in [number for number in self.held if found >> number & 1]:
            for read in self.held[register]:
                self._check(x, read, active)
            self.held[register] = [read for read in self.held[register] if read.left.any()]
            self._tidy(register)

    def _check(self, x: Lanes, read: DeferredRead, active: Array) -> None:
        now = read.left & active[read.slots]
        if not now.any():
            return
        read.left = read.left & ~now
        who = read.who.of(now)
        offset = read.offset if read.offset.shape[0] == 1 else read.offset[now]
        x.check_read(read.region, offset, read.nbytes, who, read.site)

    def copies(self, x: Lanes, source: int) -> list[DeferredRead]:
        """The reads whose values the active lanes move from a register."""
        if source not in self.held:
            return []
        active = active_lanes(x)
        return [replace(read, left=read.left & active[read.slots]) for read in self.held[source]]

    def kill(self, x: Lanes, written: int) -> None:
        """The active lanes wrote these registers: the loaded values are gone from them."""
        found = self.mask & written
        if not found:
            return
        active = active_lanes(x)
        for register in [number for number in self.held if found >> number & 1]:
            kept = []
            for read in self.held[register]:
                gone = active[read.slots]
                if gone.all():
                    continue
                rest = ~gone
                kept.append(DeferredRead(
                    read.region, read.offset if read.offset.shape[0] == 1 else read.offset[rest],
                    read.nbytes, read.slots[rest], read.who.of(rest), read.site,
                    read.left[rest]))
            self.held[register] = kept
            self._tidy(register)

    def _tidy(self, register: int) -> None:
        if not self.held[register]:
            del self.held[register]
            self.mask &= ~(1 << register)


def active_lanes(x: Lanes) -> Array:
    """A boolean for each lane of the batch."""
    active = np.zeros(x.batch.lanes, dtype=bool)
    active[x.batch.live_slots if x.index is None else x.index] = True
    return active


def block_uses(
    body: list[Instruction], numbers: dict[str, int]
) -> tuple[BlockUses, frozenset[int]]:
    """The uses of a block, and the positions of its loads that can be checked later."""
    uses, writes = 0, 0
    copies: dict[int, int] = {}
    loads: dict[int, int] = {}  # register -> position of the load in this block
    deferred: set[int] = set()
    for at, instruction in enumerate(body):
        targets, sources = _operands(instruction, numbers)
        if _is_move(instruction) and len(sources) == 1 == len(targets):
            (source,), (target,) = sources, targets
            if source in loads:  # a move of a value of this block: check it at the load
                deferred.discard(loads[source])
            elif not writes >> source & 1:
                copies[target] = copies.get(source, source)
            elif source in copies:
                copies[target] = copies[source]
        else:
            for source in sources:
                if source in loads:
                    deferred.discard(loads[source])
                else:
                    uses |= 1 << copies.get(source, source)
        for target in targets:
            writes |= 1 << target
            loads.pop(target, None)
            if not (_is_move(instruction) and len(sources) == 1):
                copies.pop(target, None)
        if instruction.opcode == "ld" and instruction.guard is None and targets:
            deferred.add(at)
            loads.update(dict.fromkeys(targets, at))
    kept = frozenset(at for at in deferred if at in set(loads.values()))
    return BlockUses(uses, tuple(copies.items()), writes), kept


def _is_move(instruction: Instruction) -> bool:
    return instruction.opcode == "mov" and instruction.guard is None


def _operands(
    instruction: Instruction, numbers: dict[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Registers that an instruction writes and reads."""
    operands = list(instruction.operands)
    writes: list[int] = []
    if operands and instruction.opcode not in _NO_TARGET and not isinstance(operands[0], Address):
        writes = _registers(operands.pop(0), numbers)
    reads = [number for operand in operands for number in _registers(operand, numbers)]
    if instruction.guard is not None:
        reads += _registers(instruction.guard, numbers)
        reads += writes
    if instruction.opcode == "wgmma":
        reads += writes
    return tuple(writes), tuple(reads)


_NO_TARGET = frozenset(("st", "red", "bra", "brx", "bar", "barrier", "cp", "stmatrix", "ret",
                        "exit", "trap", "nanosleep", "prefetch", "fence", "membar"))


def _registers(operand: Operand, numbers: dict[str, int]) -> list[int]:
    match operand:
        case Register(name):
            return [numbers[name]] if name in numbers else []
        case Address(base, _, coordinates):
            return [number for item in (base, *coordinates) for number in _registers(item, numbers)]
        case Vector(elements):
            return [number for item in elements for number in _registers(item, numbers)]
        case Pair(first, second):
            return _registers(first, numbers) + _registers(second, numbers)
        case _:
            return []
