"""The decision for attention: fused tiles, decode attention, or matmuls around a softmax.

``Legalize`` rewrites a call whose decision is ``UNFUSED``; the strategy offers the kernels.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from weft.ir import Call, TensorType, float32, is_static
from weft.op.nn.attention import AS_GOOD_AS_INFINITE, AttentionAttrs
from weft.strategy.common.attention import has_fixed_groups, operand_types
from weft.strategy.cpu.attention.applies import (
    attention_shape,
    typical_shape,
    why_not_decode,
    why_not_streamed,
    why_not_unfused,
    why_only_generic,
)
from weft.strategy.cpu.attention.cost import (
    AttentionShape,
    TilePlan,
    backward_cycles,
    decode_cycles,
    generic_cycles,
    plan_tiles,
    streamed_cycles,
    unfused_cycles,
)
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import attrs_of
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

# The unfused form must be estimated this much shorter: the estimates are no more accurate.
MAX_UNFUSED_SHARE = 0.85


class AttentionAlgorithm(enum.StrEnum):
    """How attention runs."""

    FUSED = "fused"  # tiles of queries by blocks of keys in one kernel
    DECODE = "decode"  # few queries: keys and values are read once, unpacked
    STREAMED = "streamed"  # tiles of rows by blocks of keys; sizes may be symbolic, lengths data
    UNFUSED = "unfused"  # matmul, softmax and matmul as separate kernels
    GENERIC = "generic"  # the operator's compute under the default schedule


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """``shape`` is ``None`` for ``GENERIC``; ``tiles`` is set for ``FUSED``."""

    shape: AttentionShape | None = None
    tiles: TilePlan | None = None


AttentionCandidate = Candidate[AttentionPlan]


@decides("nn.attention", target="cpu")
@decides("nn.masked_attention", target="cpu")
def decide_attention(call: Call, target: CpuTarget) -> Decision[AttentionPlan]:
    """The algorithm that runs a call of ``nn.attention`` or ``nn.masked_attention``."""
    if _is_symbolic(call):
        return decide_streamed(call, target)
    generic = _generic(call, target)
    objection = why_only_generic(call)
    if objection is not None:
        return Decision(generic, tuple(
            Rejected(a, objection) for a in AttentionAlgorithm if a != generic.algorithm))
    candidates, rejected = _candidates(attention_shape(call), _is_float32(call), target)
    return choose((*candidates, generic), rejected)


@decides("nn.cached_attention", target="cpu")
def decide_streamed(call: Call, target: CpuTarget) -> Decision[AttentionPlan]:
    """Streamed attention where it can run the call."""
    generic = Candidate(AttentionAlgorithm.GENERIC, roofline_seconds(call, target), AttentionPlan())
    objection = why_not_streamed(call)
    if objection is not None:
        return Decision(generic, (Rejected(AttentionAlgorithm.STREAMED, objection),))
    shape = typical_shape(call)
    seconds = machine_model(target).seconds
    generic = replace(generic, seconds=seconds(generic_cycles(shape, target)))
    streamed = Candidate(
        AttentionAlgorithm.STREAMED, seconds(streamed_cycles(shape, target)), AttentionPlan(shape),
        f"assumes {shape.queries} queries and {shape.keys} keys")
    return choose((streamed, generic), tuple(
        Rejected(a, "the sizes are not fixed") for a in (
            AttentionAlgorithm.FUSED, AttentionAlgorithm.DECODE, AttentionAlgorithm.UNFUSED)))


def _is_symbolic(call: Call) -> bool:
    types = [arg.checked_type for arg in call.args]
    return not all(isinstance(t, TensorType) and is_static(t) for t in types)


def kernel_candidates(call: Call, target: CpuTarget) -> list[AttentionCandidate]:
    """The candidates that run as one kernel, without a rewrite of the call."""
    if _is_symbolic(call):
        return [decide_streamed(call, target).chosen]
    generic = _generic(call, target)
    if why_only_generic(call) is not None:
        return [generic]
    candidates, _ = _candidates(attention_shape(call), _is_float32(call), target)
    kernels = [c for c in candidates if c.algorithm != AttentionAlgorithm.UNFUSED]
    return [*kernels, generic]


def _is_float32(call: Call) -> bool:
    query = call.args[0].checked_type
    return isinstance(query, TensorType) and query.dtype is float32


def _generic(call: Call, target: CpuTarget) -> AttentionCandidate:
    if why_only_generic(call) is not None:
        seconds = roofline_seconds(call, target)
    else:
        seconds = machine_model(target).seconds(generic_cycles(attention_shape(call), target))
    return Candidate(AttentionAlgorithm.GENERIC, seconds, AttentionPlan())


def _candidates(
    shape: AttentionShape, is_float32: bool, target: CpuTarget
) -> tuple[tuple[AttentionCandidate, ...], tuple[Rejected, ...]]:
    """The algorithms other than ``GENERIC`` that can run the shape, and those that cannot."""
    seconds, tiles = machine_model(target).seconds, plan_tiles(shape, target)
    fused = seconds(tiles.cycles)
    candidates = [Candidate(AttentionAlgorithm.FUSED, fused, AttentionPlan(shape, tiles))]
    rejected = [Rejected(AttentionAlgorithm.STREAMED, "the sizes are fixed")]
    objection = why_not_decode(shape, target)
    if objection is None:
        decode = seconds(decode_cycles(shape, target))
        candidates.append(Candidate(AttentionAlgorithm.DECODE, decode, AttentionPlan(shape)))
    else:
        rejected.append(Rejected(AttentionAlgorithm.DECODE, objection))
    objection = why_not_unfused(shape, is_float32=is_float32, target=target)
    unfused = None if objection is not None else seconds(unfused_cycles(shape, target))
    if unfused is not None and unfused >= MAX_UNFUSED_SHARE * fused:
        objection = (f"must be estimated below {MAX_UNFUSED_SHARE:.0%} of the fused kernel: "
                     "the estimates are no more accurate")
    if objection is not None or unfused is None:
        rejected.append(Rejected(AttentionAlgorithm.UNFUSED, objection or "", unfused))
    else:
        candidates.append(Candidate(AttentionAlgorithm.UNFUSED, unfused, AttentionPlan(shape)))
    return tuple(candidates), tuple(rejected)


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
