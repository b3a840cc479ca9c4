"""Cycles of a core that runs a tree of loops from its first-level cache, and what takes them.

A block takes as long as its busiest port. A loop around one block takes at least the latencies that
an iteration carries over to the next. What the parts of a loop cost adds up, except for what the
core runs ahead: as many instructions as its reorder window holds, of which none may wait for a
value of the iteration before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from weft.strategy.cpu.machine_model import MachineModel
from weft.strategy.cpu.prediction.instructions import Instructions
from weft.strategy.cpu.prediction.tree import Block, Loop
from weft.support.dataclass import dataclass
from weft.tir.buffer import Buffer

# What cycles are spent on, as explanations name it.
ARITHMETIC, OTHER, LOADS, STORES = "multiply-adds", "other instructions", "loads", "stores"
SHUFFLES, GATHERS, ISSUE = "shuffles", "gathered elements", "decoding"
LATENCY, LOOPS, PACKING = "sums that wait", "starts of loops", "packing"


@dataclass(slots=True)
class Factors:
    """How instructions count; fitted to the kernels of ``benchmarks.kernels`` on Zen 5.

    The machine has no value for them: they describe loops, and instructions of all kinds.
    """

    scattered: float = 0.6  # stores of one element that is taken out of a vector
    issue: float = 4.0  # instructions of all kinds in a cycle
    iteration: float = 0.1  # cycles of a branch
    start: float = 10.0  # cycles from the last iteration of a loop to what follows
    fill: float = 0.1  # the share of the latency of a body that its loop does not hide
    unrolled: float = 8  # iterations up to which a loop has no branches


FACTORS = Factors()
Cycles: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of the loops takes: cycles by kind, those of each port, and instructions.

    ``waits_for`` are the buffers in registers whose values one execution hands to the next.
    """

    spent: Cycles
    ports: Cycles
    instructions: float
    waits_for: frozenset[Buffer] = frozenset()

    def times(self, count: float) -> Part:
        """The part executed ``count`` times."""
        return Part(_times(self.spent, count), _times(self.ports, count),
                    self.instructions * count, self.waits_for)


def add_to(total: Cycles, more: Cycles, times: float) -> None:
    """Add ``times`` as many cycles of each kind."""
    for kind, cycles in more.items():
        total[kind] = total.get(kind, 0.0) + cycles * times


def _times(cycles: Cycles, count: float) -> Cycles:
    return {kind: value * count for kind, value in cycles.items()}


def core_cycles(nodes: Iterable[Loop | Block], model: MachineModel) -> Cycles:
    """The cycles of nodes in turn, by what they are spent on."""
    return _sequence(nodes, model).spent


def _sequence(nodes: Iterable[Loop | Block], model: MachineModel) -> Part:
    spent: Cycles = {}
    ports: Cycles = {}
    instructions, waits_for, fresh = 0.0, frozenset[Buffer](), frozenset[Buffer]()
    for node in nodes:
        one = _block(node, model) if isinstance(node, Block) else _loop(node, model)
        add_to(spent, one.spent, node.share)
        add_to(ports, one.ports, node.share)
        instructions += one.instructions * node.share
        waits_for |= one.waits_for
        if isinstance(node, Block):
            fresh |= node.work.fresh
    return Part(spent, ports, instructions, waits_for - fresh)


def products_of(nodes: Iterable[Loop | Block]) -> float:
    """The multiply-adds that nodes execute, each lane of a vector counted."""
    return sum(node.share * (node.work.products if isinstance(node, Block)
                             else node.digit.extent * products_of(node.body)) for node in nodes)


def _block(block: Block, model: MachineModel) -> Part:
    ports = _ports(block.work, model)
    kind, cycles = max(ports.items(), key=lambda port: port[1])
    return Part({PACKING if block.packs else kind: cycles}, ports, block.work.count)


def _ports(work: Instructions, model: MachineModel) -> Cycles:
    f = FACTORS
    return {
        ARITHMETIC: work.fma / model.fma_per_cycle + work.divide * model.divide_cycles,
        OTHER: work.vectors / model.vector_ops_per_cycle,
        SHUFFLES: work.shuffle / model.shuffles_per_cycle,
        GATHERS: work.gathered * model.gather_cycles,
        ISSUE: work.count / f.issue,
        LOADS: ((work.load - work.narrow_load) / model.loads_per_cycle
                + work.narrow_load / model.narrow_loads_per_cycle),
        STORES: ((work.store - work.narrow_store + f.scattered * work.scattered)
                 / model.stores_per_cycle + work.narrow_store / model.narrow_stores_per_cycle)}


def _loop(loop: Loop, model: MachineModel) -> Part:
    f, count = FACTORS, loop.digit.extent
    inner = _only_block(loop.body)
    if inner is None:
        whole = _running_ahead(_sequence(loop.body, model), model).times(count)
        if count > f.unrolled:
            add_to(whole.spent, {LOOPS: f.iteration}, count)
        return whole
    whole = _around_block(_sequence(loop.body, model), inner, count, model).times(count)
    if count > f.unrolled:
        drained = f.start + f.fill * min(inner.depth, 8) * model.fma_latency
        add_to(whole.spent, {LOOPS: drained}, 1.0)
    return whole


def _around_block(body: Part, work: Instructions, count: float, model: MachineModel) -> Part:
    """An iteration of ``count`` of a loop around one block."""
    chain, total = work.chain * model.fma_latency, sum(body.spent.values())
    spent = body.spent
    if chain > total:
        spent = {LATENCY: chain}
    elif count > FACTORS.unrolled and total < FACTORS.iteration:
        spent = {LOOPS: FACTORS.iteration}
    if not chain:
        return Part(spent, body.ports, body.instructions)
    return Part(spent, {**body.ports, LATENCY: chain}, body.instructions, work.carried)


def _running_ahead(body: Part, model: MachineModel) -> Part:
    """An iteration of which the core begins a share while the one before is not done.

    In that share the parts of the body use the ports together, and those that wait leave them to
    the others, unless a register carries its value over.
    """
    ports = {port: cycles for port, cycles in body.ports.items()
             if port != LATENCY or body.waits_for}
    busiest = max(ports, key=lambda port: ports[port], default=LATENCY)
    taken = sum(body.spent.values()) - body.spent.get(LOOPS, 0.0)
    if not ports or ports[busiest] >= taken:
        return body
    ahead = min(1.0, model.reorder_window / body.instructions)
    spent = {kind: cycles if kind == LOOPS else cycles * (1 - ahead)
             for kind, cycles in body.spent.items()}
    add_to(spent, {busiest: ports[busiest]}, ahead)
    return Part(spent, ports, body.instructions, body.waits_for)


def _only_block(body: Sequence[Loop | Block]) -> Instructions | None:
    only = body[0] if len(body) == 1 else None
    return only.work if isinstance(only, Block) else None
