"""The decision for a group with reductions: one launch for whole rows, or one for each stage.

``decide_reduction_call`` gives the decision for an operator that is not fused.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

from weft import te
from weft.ir import Call, Family
from weft.strategy.analysis import elements, is_reduction
from weft.strategy.build_tensors import tensors_of_call
from weft.strategy.common.stage_traffic import group_bytes, stage_bytes
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.cuda.reduction.decide import decide_alone, plan_group
from weft.strategy.cuda.reduction.groups import GroupPlan
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.extents import size_of
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass
from weft.target import CudaTarget


class GroupAlgorithm(enum.StrEnum):
    """The launches of a group with reductions."""

    ROWS = "rows"  # one launch: a block computes whole rows, kept in registers and shared memory
    RECOMPUTED_ROWS = "recomputed_rows"  # the same, but elementwise stages are computed again
    SEPARATE = "separate"  # one launch for each materialized stage


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The materialized stages; ``group`` says how one launch computes them all."""

    stages: KeptStages
    group: GroupPlan | None = None


def decide_reduction(outputs: Sequence[te.Tensor], target: CudaTarget) -> Decision[ReductionPlan]:
    """The launches of the group that computes ``outputs``."""
    model, kept = machine_model(target), KeptStages.of(tuple(outputs))
    separate = Candidate(GroupAlgorithm.SEPARATE, _separate_seconds(kept, model),
                         ReductionPlan(kept))
    if len(outputs) > 1 or len(kept.ops) < 2:
        reason = "several outputs" if len(outputs) > 1 else "a single stage"
        return choose([separate], [Rejected(GroupAlgorithm.ROWS, reason)])
    candidates, rejected = list[Candidate[ReductionPlan]](), list[Rejected]()
    for algorithm, stages in ((GroupAlgorithm.ROWS, kept),
                              (GroupAlgorithm.RECOMPUTED_ROWS,
                               kept.without_elements(tuple(outputs)))):
        plan = plan_group(stages, SharedAxes.of(stages), model)
        if plan is None:
            rejected.append(Rejected(algorithm, "the stages share no axes, or their rows do not "
                                     "fit in shared memory"))
        elif not candidates:  # rows that fit are not computed again
            candidates.append(Candidate(algorithm, _group_seconds(stages, plan, model),
                                        ReductionPlan(stages, plan), _summary(plan)))
    return choose([*candidates, separate], rejected)


def _summary(plan: GroupPlan) -> str:
    shape = plan.shape
    return f"{shape.rows} rows x {shape.lanes} lanes, vectors of {shape.vector}"


def _group_seconds(kept: KeptStages, plan: GroupPlan, model: GpuModel) -> float:
    """Operands and results once, and the exchanges of the lanes of each reduction."""
    rows = math.prod(size_of(kept.output.axis[p].extent) for p in plan.shared.result)
    threads = rows * plan.shape.lanes
    waves = max(1.0, threads / model.resident_threads)
    levels = max(1, plan.shape.lanes.bit_length() // 3) * len(kept.reductions)
    exchange = model.cycles_seconds(levels * model.exchange_cycles) * waves
    return model.launch_seconds + exchange + model.memory_seconds(group_bytes(kept), threads)


def _separate_seconds(kept: KeptStages, model: GpuModel) -> float:
    """Each stage reads its operands from memory and stores its result."""
    total = 0.0
    for op in kept.ops:
        if is_reduction(op):
            total += decide_alone(kept, op, model).seconds
        else:
            moved = stage_bytes(kept, op)
            total += model.launch_seconds + model.memory_seconds(moved, elements(op))
    return total


@decides(Family.REDUCTION, target="cuda")
def decide_reduction_call(call: Call, target: CudaTarget) -> Decision[ReductionPlan]:
    """The launches of one operator that is not fused; symbolic dimensions count as their typical
    sizes.
    """
    return decide_reduction(tensors_of_call(call), target)
