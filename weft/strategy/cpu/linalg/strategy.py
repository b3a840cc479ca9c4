"""Factorizations on CPUs: the loop programs of the operators, with tiles that fit the registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.ir import Call, Family, Op
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CpuTarget
from weft.topi.linalg.program import LANES
from weft.topi.linalg.registers import rows_in_registers


def tile_rows(target: CpuTarget) -> int:
    """Rows of a tile of float64 whose sums are in registers at a time: equal parts of the tile.

    A row of it is a vector of ``LANES`` elements. Its registers, those of a vector that is shared
    by all rows and one factor are in use at a time.
    """
    vectors = max(1, LANES // target.lanes("float64"))
    most = max(1, (target.vector_registers - vectors - 1) // vectors)
    return -(-LANES // -(-LANES // most))


@strategy(Family.FACTORIZATION, target="cpu", complete=True)
def factorization(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The compute of the operator."""
    op = call.op
    if not isinstance(op, Op) or op.compute is None:
        raise InternalError(f"a factorization without a compute: {op}")
    original = op.compute

    def compute(*operands: Any) -> Any:
        with rows_in_registers(tile_rows(target)):
            return original(*operands)

    yield Implementation(f"{op.name}.cpu.tiles", schedule_default, compute=compute,
                         seconds=roofline_seconds(call, target))
