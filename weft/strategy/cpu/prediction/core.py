"""Cycles of a core that runs a tree of loops from its first-level cache, and what takes them.

A block takes as long as its busiest port. A loop around one block takes at least the latencies that
an iteration carries over to the next. What the parts of a loop cost adds up: branches, and sums
that wait for each other, keep most of one from running beside the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from weft.strategy.cpu.machine_model import MachineModel
from weft.strategy.cpu.prediction.instructions import Instructions
from weft.strategy.cpu.prediction.tree import Block, Loop
from weft.support.dataclass import dataclass

# What cycles are spent on, as explanations name it.
ARITHMETIC, OTHER, LOADS, STORES = "multiply-adds", "other instructions", "loads", "stores"
LATENCY, LOOPS, PACKING = "sums that wait", "starts of loops", "packing"


@dataclass(slots=True)
class Factors:
    """How instructions count; fitted to the kernels of ``benchmarks.kernels`` on Zen 5.

    The machine has no value for them: they describe instructions that all vector units share
    (``other``: how many run in the time of a multiply-add), or loops.
    """

    other: float = 1.65  # vector instructions in the time of one multiply-add
    divide: float = 5.0  # multiply-adds in the time of a division or a root
    gathered: float = 0.6  # loads of one element that is inserted into a vector
    scattered: float = 0.6
    issue: float = 4.0  # instructions of all kinds in a cycle
    iteration: float = 0.1  # cycles of a branch
    start: float = 16.0  # cycles from the last iteration of a loop to what follows
    fill: float = 0.1  # the share of the latency of a body that its loop does not hide
    unrolled: float = 8  # iterations up to which a loop has no branches


FACTORS = Factors()
Cycles: TypeAlias = dict[str, float]


def add_to(total: Cycles, more: Cycles, times: float) -> None:
    """Add ``times`` as many cycles of each kind."""
    for kind, cycles in more.items():
        total[kind] = total.get(kind, 0.0) + cycles * times


def core_cycles(nodes: Iterable[Loop | Block], model: MachineModel) -> Cycles:
    """The cycles of nodes in turn, by what they are spent on."""
    total: Cycles = {}
    for node in nodes:
        one = _block(node, model) if isinstance(node, Block) else _loop(node, model)
        add_to(total, one, node.share)
    return total


def products_of(nodes: Iterable[Loop | Block]) -> float:
    """The multiply-adds that nodes execute, each lane of a vector counted."""
    return sum(node.share * (node.work.products if isinstance(node, Block)
                             else node.digit.extent * products_of(node.body)) for node in nodes)


def _block(block: Block, model: MachineModel) -> Cycles:
    kind, cycles = max(_ports(block.work, model).items(), key=lambda port: port[1])
    return {PACKING if block.packs else kind: cycles}


def _ports(work: Instructions, model: MachineModel) -> dict[str, float]:
    f = FACTORS
    vectors = work.fma + work.alu + work.shuffle + work.divide
    moves = work.load + work.store + 2 * (work.gathered + work.scattered)
    return {
        ARITHMETIC: (work.fma + work.divide * f.divide) / model.fma_per_cycle,
        OTHER: max(vectors / f.other / model.fma_per_cycle,
                   (vectors + moves + work.scalar) / f.issue),
        LOADS: (work.load + f.gathered * work.gathered) / model.loads_per_cycle,
        STORES: (work.store + f.scattered * work.scattered) / model.stores_per_cycle}


def _loop(loop: Loop, model: MachineModel) -> Cycles:
    f, count = FACTORS, loop.digit.extent
    cycles = core_cycles(loop.body, model)
    inner = _only_block(loop.body)
    total = sum(cycles.values())
    if inner is not None:
        chain = inner.chain * model.fma_latency
        if chain > total:
            cycles = {LATENCY: chain}
        elif count > f.unrolled and total < f.iteration:
            cycles = {LOOPS: f.iteration}
    whole = {kind: value * count for kind, value in cycles.items()}
    if count > f.unrolled and inner is not None:
        drained = f.start + f.fill * min(inner.depth, 8) * model.fma_latency
        add_to(whole, {LOOPS: drained}, 1.0)
    elif count > f.unrolled:
        add_to(whole, {LOOPS: f.iteration}, count)
    return whole


def _only_block(body: Sequence[Loop | Block]) -> Instructions | None:
    only = body[0] if len(body) == 1 else None
    return only.work if isinstance(only, Block) else None
