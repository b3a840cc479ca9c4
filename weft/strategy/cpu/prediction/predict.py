"""``predict``: the seconds of a lowered kernel, and what they are spent on.

The program of a kernel says what it executes and which bytes it touches; the machine model says how
long both take. It is what the algorithm, the tiles and the remainders came to, where the estimates
that chose them (``Implementation.seconds``) compare alternatives before there are loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from weft.codegen.cost_model import Prediction
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.strategy.cpu.prediction.core import Cycles, add_to, core_cycles, products_of
from weft.strategy.cpu.prediction.instructions import UnpredictableError
from weft.strategy.cpu.prediction.traffic import Traffic
from weft.strategy.cpu.prediction.tree import Block, Loop, tree_of
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import PrimFunc

LEVELS = _L2, _L3, _MEMORY = "bytes from L2", "bytes from L3", "bytes from memory"


@dataclass(slots=True)
class TrafficFactors:
    """Shares of the measured rates that kernels reach, and how times of levels add up.

    Fitted to the kernels of ``benchmarks.kernels`` on Zen 5.
    """

    l2_load: float = 1.0
    l2_store: float = 1.0
    l3_load: float = 1.1
    l3_store: float = 1.1
    memory_load: float = 1.0
    memory_store: float = 0.8
    prefetched_run: float = 256  # bytes in a row from which on the hardware fetches ahead
    capacity: float = 0.9  # the share of a cache that one kernel fills before it loses data
    # Transfers and arithmetic overlap: the exponent of the mean of their times. 1 would be their
    # sum, infinity the longest.
    overlap: float = 4.0
    window: float = 7000  # cycles beyond which one part of a kernel does not overlap the next
    call: float = 120  # cycles of a call: its arguments, its parallel region, the clock


FACTORS = TrafficFactors()
# The data of a call, as a multiple of a cache, from which on none stay in it until the next call;
# observed on Zen 5.
_KEEPS_NONE = 1.5
_MANY, _ALL = 4, 0.99  # pages of a set of those that it holds; a share of them


def predict(func: PrimFunc, target: CpuTarget) -> Prediction | None:
    """The time of one call on one core whose data are where the last call left them.

    ``None`` for loops whose number of iterations only a call knows, for foreign code, and for
    expressions of hundreds of operations that wait for each other, which are walked by recursion.
    """
    model = machine_model(target)
    try:
        roots, forms = tree_of(func, model)
    except (UnpredictableError, RecursionError):
        return None
    return prediction_of(roots, Traffic(roots, forms.parents), model)


def prediction_of(roots: Sequence[Loop | Block], traffic: Traffic,
                  model: MachineModel) -> Prediction:
    """The prediction for a tree of loops."""
    phases = _Phases(traffic, _transfers(traffic, model), model)
    phases.add(roots, 1.0)
    seconds = model.seconds(phases.cycles + FACTORS.call)
    spent = {kind: model.seconds(value) for kind, value in phases.spent.items() if value}
    return Prediction(seconds, spent, products_of(roots))


class _Phases:
    """Adds up the parts of a kernel that are too long to run beside each other.

    In each of them what the core does and the transfers of all levels overlap.
    """

    def __init__(self, traffic: Traffic, transfers: Mapping[Block, Cycles],
                 model: MachineModel) -> None:
        self._traffic, self._transfers, self._model = traffic, transfers, model
        self._known: dict[int, Cycles] = {}
        self.cycles = 0.0
        self.spent: Cycles = {}

    def add(self, nodes: Sequence[Loop | Block], times: float) -> None:
        """Count nodes that are executed ``times`` times in turn."""
        brief: list[Loop | Block] = []
        for node in nodes:
            cycles = self._core(node)
            if isinstance(node, Loop) and sum(cycles.values()) > FACTORS.window:
                if sum(cycles.values()) / node.digit.extent > FACTORS.window:
                    self.add(node.body, times * node.share * node.digit.extent)
                else:
                    self._close([node], times)
            else:
                brief.append(node)
        if brief:
            self._close(brief, times)

    def _core(self, node: Loop | Block) -> Cycles:
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = core_cycles([node], self._model)
        return found

    def _close(self, nodes: Sequence[Loop | Block], times: float) -> None:
        core: Cycles = {}
        levels: Cycles = {}
        for node in nodes:
            add_to(core, self._core(node), times)
            for block in self._traffic.blocks(node):  # their transfers are those of a whole call
                add_to(levels, self._transfers.get(block, {}), 1.0)
        add_to(self.spent, core, 1.0)
        add_to(self.spent, levels, 1.0)
        parts = [sum(core.values()), *levels.values()]
        longest = max(parts)
        if longest:
            power = FACTORS.overlap
            self.cycles += longest * sum((p / longest) ** power for p in parts) ** (1 / power)


def _transfers(traffic: Traffic, model: MachineModel) -> dict[Block, Cycles]:
    """The cycles to bring and to write back what passes through each level, by block."""
    f, machine = FACTORS, model.machine
    l2, memory = machine.l2, machine.memory
    l3 = machine.l3 or memory
    levels = [
        (_L2, model.l1_bytes, l2.load_bytes_per_cycle * f.l2_load,
         l2.store_bytes_per_cycle * f.l2_store, l2.load_bytes_per_cycle),
        (_L3, model.l2_bytes, l3.load_bytes_per_cycle * f.l3_load,
         l3.store_bytes_per_cycle * f.l3_store, model.beyond_l2_line_bandwidth)]
    if machine.l3 is not None:
        levels.append((_MEMORY, model.l3_bytes, memory.load_bytes_per_cycle * f.memory_load,
                       memory.store_bytes_per_cycle * f.memory_store, model.memory_bandwidth))
    found: dict[Block, Cycles] = {}
    for name, capacity, load, store, line in levels:
        held = capacity * f.capacity
        lost = lost_pages(model) if name == _L3 else _lost_lines(held)
        for (block, _), moved in traffic.beyond(held, lost).items():
            rate = load if moved.run >= f.prefetched_run else min(load, line)
            cycles = moved.load / rate + moved.store / store
            if cycles:
                add_to(found.setdefault(block, {}), {name: cycles}, 1.0)
    return found


def _lost_lines(capacity: float) -> Callable[[float], float]:
    """The share of bytes that a cache loses whose lines spread evenly over its sets.

    A cache that holds nearly all data of a call keeps a part of them for the next.
    """
    return lambda nbytes: min(1.0, max(0.0, nbytes / capacity - 1) / (_KEEPS_NONE - 1))


def lost_pages(model: MachineModel) -> Callable[[float], float]:
    """The share of bytes that L2 loses, whose sets are chosen by physical addresses.

    The system gives pages at random: as many as the cache holds fall on some sets more often than
    those have ways, which lose all of them. The number of pages that meet is Poisson's.
    """
    colours = model.l2_bytes / model.l2_ways / model.page_bytes
    if colours < 2:
        return _lost_lines(model.l2_bytes * FACTORS.capacity)

    def lost(nbytes: float) -> float:
        mean = nbytes / model.page_bytes / colours
        if mean > _MANY * model.l2_ways:
            return 1.0
        term, kept = math.exp(-mean), 0.0
        for others in range(model.l2_ways):
            kept += term
            term *= mean / (others + 1)
        return 1.0 - kept if kept < _ALL else 0.0

    return lost
