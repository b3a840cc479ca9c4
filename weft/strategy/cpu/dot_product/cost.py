"""The register tile of a matmul by a dot-product instruction, and its estimate in cycles."""

from __future__ import annotations

import dataclasses

from weft.op.nn.dense import WeightPanels
from weft.strategy.cpu.common.register_tile import (
    RegisterTile,
    choose_tile,
    cover_cycles,
    fits_registers,
)
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.strategy.cpu.gemm.blocking import rank_symbolic_tiles
from weft.strategy.cpu.gemm.cost import GemmShape
from weft.strategy.cpu.machine_model import machine_model
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

MAX_PANEL_VECTORS = 4  # the widest panel of a constant weight: more leave few rows for the tile


@dataclass(frozen=True, slots=True)
class DotProductPlan:
    """How one call runs: the instruction, the accumulators that a tile keeps in registers, and the
    layout of a weight that is packed at compile time (``None``: B is packed at run time).
    ``assumes`` says which numbers the estimates take for symbolic sizes.
    """

    dot: DotInstruction
    tile: RegisterTile
    panels: WeightPanels | None = None
    assumes: str = ""

    def __str__(self) -> str:
        nr = self.tile.nr_vectors * self.dot.lanes
        weight = "packs B" if self.panels is None else f"weight {self.panels.layout}"
        assumes = f", assumes {self.assumes}" if self.assumes else ""
        return f"{self.dot.instruction.name}, mr {self.tile.mr}, nr {nr}, {weight}{assumes}"


def plan_run_time(dot: DotInstruction, shape: GemmShape, target: CpuTarget) -> DotProductPlan:
    """The plan that packs both operands at run time."""
    m, vectors = shape.m, -(-shape.n // dot.lanes)
    if dot.shifts_left and not shape.samples:
        # Of few rows the tile has one more: it sums the columns of B, which are in registers then.
        tile = choose_tile(m + 1, vectors, target)
        if tile.mr > m:
            return DotProductPlan(dot, tile, assumes=shape.assumptions)
    return DotProductPlan(dot, _tile(dot, shape, vectors, target), assumes=shape.assumptions)


def plan_prepacked(
    dot: DotInstruction, shape: GemmShape, target: CpuTarget, panels: WeightPanels | None = None
) -> DotProductPlan:
    """The plan for a constant weight, in ``panels`` if it has been packed already.

    A tile is as wide as a panel, or narrower where that makes room for the row of column sums.
    """
    m, n = shape.m, shape.n
    panels = panels or panels_for(n, dot)
    vectors = panels.nr // dot.lanes
    if dot.shifts_left and not shape.samples:
        for width in range(vectors, 0, -1):
            tile = RegisterTile(m + 1, width)
            # A tile must divide the panel: its columns lie in one.
            if vectors % width == 0 and fits_registers(tile, target):
                return DotProductPlan(dot, tile, panels)
    tile = _tile(dot, shape, -(-n // panels.nr) * vectors, target, vector_step=vectors)
    return DotProductPlan(dot, RegisterTile(tile.mr, vectors), panels, shape.assumptions)


def _tile(
    dot: DotInstruction, shape: GemmShape, vectors: int, target: CpuTarget, *, vector_step: int = 1
) -> RegisterTile:
    """The fastest tile; for a symbolic M, the ranking of a GEMM with as many groups of K."""
    if not shape.samples:
        return choose_tile(shape.m, vectors, target, vector_step=vector_step)
    groups = dataclasses.replace(shape, n=vectors * dot.lanes, k=-(-shape.k // dot.k_group))
    return rank_symbolic_tiles(groups, target, lanes=dot.lanes, step=vector_step)[0]


def panels_for(n: int, dot: DotInstruction) -> WeightPanels:
    """The panels for a constant weight of ``n`` columns: the widest with the least padding."""
    widths = [dot.lanes * vectors for vectors in range(MAX_PANEL_VECTORS, 0, -1)]
    return WeightPanels(min(widths, key=lambda width: -n % width), dot.k_group)


def dot_product_cycles(
    plan: DotProductPlan, m: int, n: int, k: int, target: CpuTarget
) -> float:
    """One matmul without packing; the corrections of shifted operands are left out."""
    vectors = -(-n // plan.dot.lanes)
    steps = cover_cycles(machine_model(target), m, vectors, plan.tile)
    return -(-k // plan.dot.k_group) * steps
