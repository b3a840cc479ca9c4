"""What a lowered kernel says of itself in numbers, for cost models that learn from measurements.

The numbers are logarithms where sizes are, so that kernels of all sizes compare. They do not name
an operator: what is learned from one kernel holds for others, and those of the machine carry it to
other machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.strategy.cpu.prediction import core, predict
from weft.strategy.cpu.prediction.instructions import Instructions, UnpredictableError
from weft.strategy.cpu.prediction.predict import prediction_of
from weft.strategy.cpu.prediction.traffic import Traffic
from weft.strategy.cpu.prediction.tree import Block, Loop, tree_of
from weft.target import CpuTarget
from weft.tir import PrimFunc

NANOSECONDS = 1e9  # in a second
DEPTH = 5  # loops around the busiest block that are described, from the innermost one
_KINDS = (core.ARITHMETIC, core.OTHER, core.SHUFFLES, core.GATHERS, core.ISSUE, core.LOADS,
          core.STORES, core.LATENCY, core.LOOPS, core.PACKING, *predict.LEVELS)
_INSTRUCTIONS = ("fma", "alu", "shuffle", "load", "store", "gathered", "scattered", "chain")
_MACHINE = ("fma_per_cycle", "loads_per_cycle", "stores_per_cycle", "vector_bytes", "fma_latency",
            "frequency", "l1_bytes", "l2_bytes", "l3_bytes", "l2_bandwidth", "memory_bandwidth")
NAMES: tuple[str, ...] = (
    "predicted", "multiply_adds", "bytes", "intensity", *_KINDS, *_INSTRUCTIONS,
    *(f"extent{n}" for n in range(DEPTH)), *(f"footprint{n}" for n in range(DEPTH)),
    "blocks", "code", *_MACHINE)


def features_of(func: PrimFunc, target: CpuTarget) -> tuple[float, Mapping[str, float]] | None:
    """The predicted seconds of a kernel, and its features by ``NAMES``.

    ``None`` for loops that say too little (``predict``).
    """
    model = machine_model(target)
    try:
        roots, forms = tree_of(func, model)
    except (UnpredictableError, RecursionError):
        return None
    traffic = Traffic(roots, forms.parents)
    predicted = prediction_of(roots, traffic, model)
    products = max(1.0, predicted.multiply_adds)
    found = {"predicted": _log(predicted.seconds * NANOSECONDS), "multiply_adds": _log(products),
             "bytes": _log(traffic.nbytes), "intensity": _log(products / max(1.0, traffic.nbytes))}
    found |= {kind: predicted.spent.get(kind, 0.0) / predicted.seconds for kind in _KINDS}
    found |= _busiest(roots, traffic)
    blocks = list(_blocks(roots, 1.0, ()))
    found["blocks"] = _log(len(blocks))
    found["code"] = _log(sum(map(_size, (block.work for block, _, _ in blocks))))
    return predicted.seconds, found | _of_machine(model)


def _busiest(roots: Sequence[Loop | Block], traffic: Traffic) -> dict[str, float]:
    """The instructions of the block that executes the most, and the loops around it."""
    blocks = list(_blocks(roots, 1.0, ()))
    if not blocks:
        return dict.fromkeys(NAMES, 0.0)
    block, _, loops = max(blocks, key=lambda one: _size(one[0].work) * one[1])
    found = {name: float(getattr(block.work, name)) for name in _INSTRUCTIONS}
    inner = loops[::-1]
    for n in range(DEPTH):
        loop = inner[n] if n < len(inner) else None
        found[f"extent{n}"] = 0.0 if loop is None else _log(loop.digit.extent)
        found[f"footprint{n}"] = 0.0 if loop is None else _log(_footprint(loop, traffic))
    return found


def _footprint(loop: Loop, traffic: Traffic) -> float:
    return sum(max(moved.load, moved.store) for moved in traffic.touched(loop).values())


def _blocks(
    nodes: Sequence[Loop | Block], times: float, around: tuple[Loop, ...]
) -> Iterator[tuple[Block, float, tuple[Loop, ...]]]:
    for node in nodes:
        if isinstance(node, Block):
            yield node, times * node.share, around
        else:
            yield from _blocks(node.body, times * node.share * node.digit.extent, (*around, node))


def _size(work: Instructions) -> float:
    return work.vectors + work.load + work.store + work.gathered + work.scattered


def _of_machine(model: MachineModel) -> dict[str, float]:
    return {name: _log(float(getattr(model, name))) for name in _MACHINE}


def _log(value: float) -> float:
    return math.log2(max(value, 1e-3))
