"""The axes that the result of a group shares with its reductions.

Along these axes the group falls into independent rows: a row of a softmax, the positions of a
softmax over channels, the groups of a group norm. One thread block computes whole rows, so that
intermediate results never leave the SM.
"""

from __future__ import annotations

import math

from weft import te
from weft.strategy.extents import are_equal, size_of
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass
from weft.tir.expr import FloorDiv, PrimExpr, int_value

# For each axis of a stage, the axis of the result that it equals; ``None`` for any other.
Positions = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class SharedAxes:
    """``result`` are the shared axes of the result, by position, ascending.

    ``groups`` gives the adjacent indices of a result's axis that belong to one row, where there
    are several. ``stages`` has the position of each axis of each stage, by the stage's ``id``.
    """

    result: tuple[int, ...]
    groups: dict[int, int]
    stages: dict[int, Positions]

    @staticmethod
    def alone(op: te.ComputeOp) -> SharedAxes:
        """Those of a single stage: all its axes."""
        positions = tuple(range(len(op.axis)))
        return SharedAxes(positions, {}, {id(op): positions})

    @staticmethod
    def of(kept: KeptStages) -> SharedAxes:
        """The shared axes of a group with one output; none if a stage has no part in them."""
        result = kept.output
        groups = _groups(kept)
        stages: dict[int, Positions] = {id(result): tuple(range(len(result.axis)))}
        common = set(range(len(result.axis)))
        for reader in reversed(kept.ops):
            mine = stages.get(id(reader))
            if mine is None:  # read by nothing that is kept
                return SharedAxes((), {}, {})
            for load in kept.loads_inside(reader):
                op = load.producer.op
                if not isinstance(op, te.ComputeOp):
                    continue
                found = tuple(
                    _position(index, axis, reader, mine, result, groups)
                    for index, axis in zip(load.indices, op.axis, strict=True))
                known = stages.setdefault(id(op), found)
                agreed = tuple(a if a == b else None for a, b in zip(known, found, strict=True))
                stages[id(op)] = agreed
        for positions in stages.values():
            common &= {p for p in positions if p is not None}
        used = {p: g for p, g in groups.items() if p in common}
        return SharedAxes(tuple(sorted(common)), used, stages)

    def inside(self, op: te.ComputeOp) -> list[te.IterVar]:
        """The axes of a stage that are not shared: the elements that one row has."""
        shared = self.axes_of(op)
        return [axis for axis in op.axis if axis not in shared]

    def elements_of_row(self, op: te.ComputeOp) -> int:
        """The elements of a stage in one row; typical ones of symbolic sizes."""
        return math.prod(size_of(axis.extent) for axis in self.inside(op))

    def axes_of(self, op: te.ComputeOp) -> list[te.IterVar]:
        """The axes of a stage that are shared, in the order of ``result``."""
        positions = self.stages[id(op)]
        return [op.axis[positions.index(p)] for p in self.result]


def _position(index: PrimExpr, axis: te.IterVar, reader: te.ComputeOp, mine: Positions,
              result: te.ComputeOp, groups: dict[int, int]) -> int | None:
    """The axis of the result that ``index`` of a load in ``reader`` equals."""
    for own, position in zip(reader.axis, mine, strict=True):
        if position is None:
            continue
        if index is own.var:
            size = groups.get(position, 1) if reader is result else 1
            return position if size == 1 and axis.extent is own.extent else None
        if reader is result and _divisor(index, own) == groups.get(position, -1):
            return position
    return None


def _groups(kept: KeptStages) -> dict[int, int]:
    """The axes of the result at whose quotients it reads other stages, with the divisors."""
    result = kept.output
    found: dict[int, set[int]] = {}
    for load in kept.loads_inside(result):
        for index in load.indices:
            for position, axis in enumerate(result.axis):
                divisor = _divisor(index, axis)
                if divisor > 1:
                    covers = any(are_equal(axis.extent, other.extent * divisor)
                                 for op in kept.ops for other in op.axis)
                    found.setdefault(position, set()).add(divisor if covers else 0)
    return {p: sizes.pop() for p, sizes in found.items() if len(sizes) == 1 and 0 not in sizes}


def _divisor(index: PrimExpr, axis: te.IterVar) -> int:
    """``n`` if ``index`` is ``axis // n``, else 0."""
    if isinstance(index, FloorDiv) and index.a is axis.var:
        return int_value(index.b) or 0
    return 0
