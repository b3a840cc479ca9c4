"""The decision for the gradient of attention: blocks in scratch, or the operator's compute."""

from __future__ import annotations

import enum

from weft.ir import Call, float32
from weft.op.nn.attention import AS_GOOD_AS_INFINITE, AttentionAttrs
from weft.strategy.common.attention import has_fixed_groups, operand_types
from weft.strategy.cpu.attention.applies import typical_shape
from weft.strategy.cpu.attention.cost import AttentionShape, backward_cycles, generic_cycles
from weft.strategy.cpu.attention.decide import AttentionPlan
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import attrs_of
from weft.target import CpuTarget

# The definition stores three matrices of the size of the scores, and reads them more often.
GENERIC_PASSES = 3


class BackwardAlgorithm(enum.StrEnum):
    """How the gradient of attention runs."""

    BLOCKED = "blocked"  # blocks of queries by blocks of keys in one kernel
    GENERIC = "generic"  # the operator's compute under the default schedule


@decides("nn.attention_backward", target="cpu")
@decides("nn.masked_attention_backward", target="cpu")
def decide_backward(call: Call, target: CpuTarget) -> Decision[AttentionPlan]:
    """Blocked loops where they can run the call."""
    objection = why_not_blocked(call)
    if objection is not None:
        generic = Candidate(BackwardAlgorithm.GENERIC, roofline_seconds(call, target),
                            AttentionPlan())
        return Decision(generic, (Rejected(BackwardAlgorithm.BLOCKED, objection),))
    shape, seconds = _shape(call), machine_model(target).seconds
    blocked = Candidate(BackwardAlgorithm.BLOCKED, seconds(backward_cycles(shape, target)),
                        AttentionPlan(shape))
    generic = Candidate(BackwardAlgorithm.GENERIC,
                        GENERIC_PASSES * seconds(generic_cycles(shape, target)), AttentionPlan())
    return choose((blocked, generic), ())


def why_not_blocked(call: Call) -> str | None:
    """Why the blocked loops cannot run a call; ``None`` if they can."""
    types = operand_types(call.replace(args=call.args[2:5]))
    if isinstance(types, str):
        return types
    q, k, v = types
    if q.dtype is not float32:
        return f"the loops compute in float32, the dtype is {q.dtype}"
    if not all(isinstance(t.shape[-1], int) and t.shape[-1] for t in (k, v)):
        return "the last sizes must be fixed and positive"
    if not has_fixed_groups(q, k):
        return "the number of heads that share keys is not fixed"
    return None


def backward_offset(call: Call) -> int | None:
    """The offset beyond which keys can be skipped; ``None`` if all keys must be read."""
    attrs = attrs_of(call, AttentionAttrs)
    if attrs.fill is None:
        return attrs.last_key
    has_mask = len(call.args) > 5
    is_infinite = attrs.fill <= AS_GOOD_AS_INFINITE and attrs.offset >= 0 and not has_mask
    return attrs.last_key if is_infinite else None


def _shape(call: Call) -> AttentionShape:
    return typical_shape(call.replace(args=call.args[2:5]))
