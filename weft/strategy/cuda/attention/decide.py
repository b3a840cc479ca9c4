"""The decision for attention: FlashAttention on tensor cores, products around a softmax, or the
operator's compute.
"""

from __future__ import annotations

import enum
import math

from weft.ir import Call, typical_size
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import has_fixed_groups, operand_types
from weft.strategy.cuda.attention.plan import (
    MAX_DEPTH,
    FlashPlan,
    FlashShape,
    flash_seconds,
    plan_flash,
)
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.support.dataclass import dataclass
from weft.target import CudaTarget

STORED = ("float16", "bfloat16")  # what tensor cores multiply


class AttentionAlgorithm(enum.StrEnum):
    """How attention runs."""

    FLASH = "flash"  # one kernel on tensor cores
    UNFUSED = "unfused"  # matmul, softmax and matmul as separate kernels
    GENERIC = "generic"  # the operator's compute under the default schedule


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """``flash`` is set for ``FLASH``."""

    flash: FlashPlan | None = None


@decides("nn.attention", target="cuda")
@decides("nn.masked_attention", target="cuda")
def decide_attention(call: Call, target: CudaTarget) -> Decision[AttentionPlan]:
    """The algorithm of ``nn.attention`` or ``nn.masked_attention``."""
    model = machine_model(target)
    objection = why_not_flash(call)
    types = operand_types(call)
    if isinstance(types, str):
        generic = Candidate(AttentionAlgorithm.GENERIC.value, 0.0, AttentionPlan())
        return Decision(generic, (Rejected(AttentionAlgorithm.FLASH.value, objection or ""),))
    shape = shape_of(call)
    unfused = Candidate(AttentionAlgorithm.UNFUSED.value, _unfused_seconds(shape, model),
                        AttentionPlan())
    if objection is not None:
        return Decision(unfused, (Rejected(AttentionAlgorithm.FLASH.value, objection),))
    return choose((_flash(shape, model), unfused))


@decides("nn.cached_attention", target="cuda")
def decide_cached(call: Call, target: CudaTarget) -> Decision[AttentionPlan]:
    """The algorithm of attention over caches."""
    generic = Candidate(AttentionAlgorithm.GENERIC.value, math.inf, AttentionPlan())
    objection = why_not_flash(call)
    if objection is not None:
        return Decision(generic, (Rejected(AttentionAlgorithm.FLASH.value, objection),))
    return Decision(_flash(shape_of(call), machine_model(target)))


def _flash(shape: FlashShape, model: GpuModel) -> Candidate[AttentionPlan]:
    plan = plan_flash(shape, model)
    return Candidate(AttentionAlgorithm.FLASH.value, flash_seconds(shape, plan, model),
                     AttentionPlan(plan), str(plan))


def why_not_flash(call: Call) -> str | None:
    """Why tensor cores cannot run a call of any attention operator; ``None`` if they can."""
    types = operand_types(call)
    if isinstance(types, str):
        return types
    q, k, _ = types
    if any(str(t.dtype) not in STORED or t.dtype is not q.dtype for t in types):
        return f"tensor cores multiply float16 or bfloat16, the operands are {q.dtype}"
    for tensor in types:
        depth = tensor.shape[-1]
        if not isinstance(depth, int) or not 0 < depth <= MAX_DEPTH:
            return f"the last sizes must be fixed, from 1 to {MAX_DEPTH}"
        if 0 in tensor.shape:
            return "an operand is empty"
    if not has_fixed_groups(q, k):
        return "the number of heads that share keys is not fixed"
    return None


def shape_of(call: Call) -> FlashShape:
    """The sizes that estimates take; symbols count as their typical sizes."""
    types = operand_types(call)
    assert not isinstance(types, str)
    q, k, v = ([max(typical_size(d), 1) for d in t.shape] for t in types)
    heads = math.prod(q[:-2])
    group = max(q[-3] // k[-3], 1) if len(q) > 2 else 1
    causal = isinstance(call.attrs, AttentionAttrs) and call.attrs.causal
    return FlashShape(heads // group, q[-2] * group, k[-2], q[-1], v[-1], causal)


def _unfused_seconds(shape: FlashShape, model: GpuModel) -> float:
    """Two products in float32 and a softmax, with scores in memory."""
    scores = 4 * shape.leads * shape.rows * shape.keys
    return 3 * (model.launch_seconds + model.dram_latency) + max(
        shape.flops / (0.8 * model.fp32_flops), (5 * scores + 2 * shape.moved) / model.bandwidth)
