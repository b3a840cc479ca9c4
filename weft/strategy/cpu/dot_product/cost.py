"""The register tile of a matmul by a dot-product instruction, and its estimate in cycles."""

from __future__ import annotations

from dataclasses import dataclass

from weft.op.nn.dense import WeightPanels
from weft.strategy.cpu.common.register_tile import (
    RegisterTile,
    choose_tile,
    cover_cycles,
    fits_registers,
)
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.strategy.cpu.machine_model import machine_model
from weft.target import CpuTarget

MAX_PANEL_VECTORS = 4  # the widest panel of a constant weight: more leave few rows for the tile


@dataclass(frozen=True, slots=True)
class DotProductPlan:
    """How one call runs: the instruction, the accumulators that a tile keeps in registers, and the
    layout of a weight that is packed at compile time (``None``: B is packed at run time).
    """

    dot: DotInstruction
    tile: RegisterTile
    panels: WeightPanels | None = None

    def __str__(self) -> str:
        nr = self.tile.nr_vectors * self.dot.lanes
        weight = "packs B" if self.panels is None else f"weight {self.panels.layout}"
        return f"{self.dot.instruction.name}, mr {self.tile.mr}, nr {nr}, {weight}"


def plan_run_time(dot: DotInstruction, m: int, n: int, target: CpuTarget) -> DotProductPlan:
    """The plan that packs both operands at run time."""
    vectors = -(-n // dot.lanes)
    if dot.shifts_left:
        # Of few rows the tile has one more: it sums the columns of B, which are in registers then.
        tile = choose_tile(m + 1, vectors, target)
        if tile.mr > m:
            return DotProductPlan(dot, tile)
    return DotProductPlan(dot, choose_tile(m, vectors, target))


def plan_prepacked(
    dot: DotInstruction, m: int, n: int, target: CpuTarget, panels: WeightPanels | None = None
) -> DotProductPlan:
    """The plan for a constant weight, in ``panels`` if it has been packed already.

    A tile is as wide as a panel, or narrower where that makes room for the row of column sums.
    """
    panels = panels or panels_for(n, dot)
    vectors = panels.nr // dot.lanes
    if dot.shifts_left:
        for width in range(vectors, 0, -1):
            tile = RegisterTile(m + 1, width)
            # A tile must divide the panel: its columns lie in one.
            if vectors % width == 0 and fits_registers(tile, target):
                return DotProductPlan(dot, tile, panels)
    tile = choose_tile(m, -(-n // panels.nr) * vectors, target, vector_step=vectors)
    return DotProductPlan(dot, RegisterTile(tile.mr, vectors), panels)


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
