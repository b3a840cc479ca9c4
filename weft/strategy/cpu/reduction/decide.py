"""The decision for a group with reductions: one loop nest by rows or by columns, or several.

It is taken on the tensor expressions of the fused group, because the stages decide and not the
operators; ``decide_reduction_call`` gives the decision for an operator alone.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from weft import te
from weft.ir import Call, Family
from weft.strategy.analysis import elements, work_of
from weft.strategy.build_tensors import tensors_of_call
from weft.strategy.common.stage_traffic import group_bytes, stage_bytes
from weft.strategy.cpu.elementwise.schedule import MIN_PARALLEL_EXTENT
from weft.strategy.cpu.machine_model import machine_model, parallel_threshold
from weft.strategy.cpu.reduction.column_blocks import ColumnBlocks
from weft.strategy.cpu.reduction.columns import PARTIALS
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.kept_stages import KeptStages, SharedRows
from weft.support.dataclass import dataclass
from weft.support.errors import ScheduleError
from weft.target import CpuTarget


class ReductionAlgorithm(enum.StrEnum):
    """The loop structure of a group with reductions."""

    COLUMN_BLOCKS = "column_blocks"  # blocks of the contiguous axis; an outer axis is reduced
    ROWS = "rows"  # all stages row by row, so that rows stay in L1
    SEPARATE = "separate"  # one loop nest per reduction


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The materialized stages, and what they share: leading rows, or blocks of columns."""

    stages: KeptStages
    rows: SharedRows
    column_blocks: ColumnBlocks | None


def decide_reduction(
    outputs: Sequence[te.Tensor], target: CpuTarget, wanted: str = "auto"
) -> Decision[ReductionPlan]:
    """The loop structure of the group that computes ``outputs``.

    Raises ``ScheduleError`` if the group cannot run by the algorithm that is ``wanted``.
    """
    kept = KeptStages.of(tuple(outputs))
    rows = kept.shared_rows() if len(outputs) == 1 else SharedRows(0)
    blocks = ColumnBlocks.of(kept, target) if len(outputs) == 1 else None
    plan, model = ReductionPlan(kept, rows, blocks), machine_model(target)
    fused = model.seconds(fused_cycles(kept, target))
    separate = model.seconds(separate_cycles(kept, target))
    candidates, rejected = list[Candidate[ReductionPlan]](), list[Rejected]()
    for algorithm, objection in (
        (ReductionAlgorithm.COLUMN_BLOCKS, _why_not_column_blocks(plan)),
        (ReductionAlgorithm.ROWS, _why_not_rows(plan, target)),
    ):
        if objection is None:
            candidates.append(Candidate(algorithm, fused, plan))
        else:
            rejected.append(Rejected(algorithm, objection))
    candidates.append(Candidate(ReductionAlgorithm.SEPARATE, separate, plan))
    if wanted != "auto":
        candidates = [c for c in candidates if c.algorithm == wanted]
        if not candidates:
            raise ScheduleError(f"the group cannot run by {wanted}",
                                got="; ".join(map(str, rejected)))
    return choose(candidates, rejected)


def _why_not_column_blocks(plan: ReductionPlan) -> str | None:
    if plan.column_blocks is None:
        return "the stages do not share a contiguous axis that is wide enough"
    if len(plan.column_blocks.shared) <= plan.rows.count:
        return "the stages share as many leading axes"
    return None


def _why_not_rows(plan: ReductionPlan, target: CpuTarget) -> str | None:
    if not plan.rows.count:
        return "the stages share no leading axis that is not contiguous"
    if len(plan.stages.ops) == 1 and has_few_results(plan.stages.output, target):
        return "too few results for threads: the reduction itself is split"
    if _why_not_column_blocks(plan) is None:
        return "blocks of columns share more axes"
    return None


def has_few_results(op: te.ComputeOp, target: CpuTarget) -> bool:
    """Whether a large reduction has too few results to share among threads."""
    is_large = work_of(op) >= PARTIALS * parallel_threshold(target)
    return elements(op) < MIN_PARALLEL_EXTENT and is_large


@decides(Family.REDUCTION, target="cpu")
def decide_reduction_call(call: Call, target: CpuTarget) -> Decision[ReductionPlan]:
    """The loop structure of one operator that is not fused; symbolic dimensions count as
    their typical sizes.
    """
    return decide_reduction(tensors_of_call(call), target)


def fused_cycles(kept: KeptStages, target: CpuTarget) -> float:
    """All stages in one loop nest: intermediate results stay in L1."""
    arithmetic = sum(_arithmetic_cycles(op, target) for op in kept.ops)
    moved = group_bytes(kept)
    return max(arithmetic, machine_model(target).transfer_cycles(moved))


def separate_cycles(kept: KeptStages, target: CpuTarget) -> float:
    """One loop nest per stage: intermediate results are stored and loaded again."""
    model, working_set = machine_model(target), group_bytes(kept)
    return sum(
        max(_arithmetic_cycles(op, target),
            model.transfer_cycles(stage_bytes(kept, op), working_set))
        for op in kept.ops
    )


def _arithmetic_cycles(op: te.ComputeOp, target: CpuTarget) -> float:
    """One vector operation per step of a reduction, or per element of another stage."""
    model, dtype = machine_model(target), op.output(0).dtype
    lanes = max(1, model.vector_bytes // dtype.itemsize)
    steps = work_of(op) if op.reduce_axis else elements(op)
    return steps / (lanes * model.fma_per_cycle)
