"""The decision for attention: FlashAttention on tensor cores, products around a softmax, or the
operator's compute.
"""

from __future__ import annotations

import enum
import math

from weft.ir import Call, typical_size
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import has_fixed_groups, operand_types
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.support.dataclass import dataclass
from weft.target import CudaTarget

WARP_ROWS = 16  # query rows of a warp: those of one mma instruction
STAGES = 2  # blocks of keys and values in shared memory
MAX_DEPTH = 256
# Share of the rate of mma.sync that FlashAttention-2 reaches on A100 (Dao 2023: 225 of 312
# TFLOP/s); on sm_90 mma.sync has 0.62 of the rate of wgmma.
FLASH_SHARE, HOPPER_SHARE = 0.70, 0.62


@dataclass(frozen=True, slots=True)
class FlashShape:
    """``leads`` heads of keys (times batch) with ``rows`` queries each, that see ``keys`` keys.

    Rows are the queries of all heads that share keys. ``depth`` is that of keys, ``width`` that of
    values.
    """

    leads: int
    rows: int
    keys: int
    depth: int
    width: int
    is_causal: bool = False

    @property
    def flops(self) -> float:
        visible = 0.5 if self.is_causal and self.rows > 1 else 1.0
        return 2.0 * self.leads * self.rows * self.keys * (self.depth + self.width) * visible

    @property
    def moved(self) -> int:
        """Bytes of all operands and the result, 16-bit elements."""
        return 2 * self.leads * (self.depth + self.width) * (self.rows + self.keys)


@dataclass(frozen=True, slots=True)
class FlashPlan:
    """``warps`` warps of 16 rows by blocks of ``block`` keys, in ``splits`` shares."""

    warps: int
    block: int
    splits: int = 1

    @property
    def rows(self) -> int:
        return self.warps * WARP_ROWS

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def shared_bytes(self, depth: int, width: int) -> int:
        d, e = padded(depth), padded(width)
        return 2 * (self.rows * d + STAGES * self.block * (d + e))

    def __str__(self) -> str:
        split = f", keys split {self.splits} ways" if self.splits > 1 else ""
        return f"{self.rows} rows by blocks of {self.block} keys{split}"


def padded(size: int) -> int:
    """A depth or width as whole instructions of 16 elements."""
    return -(-size // 16) * 16


def plan_flash(shape: FlashShape, model: GpuModel) -> FlashPlan:
    """The tile of a shape; few rows leave the GPU empty unless several blocks share their keys."""
    warps = min(4, -(-shape.rows // WARP_ROWS))
    warps = 4 if warps == 3 else warps
    largest = max(shape.depth, shape.width)  # the sums take as many registers as the width
    block = 64 if largest <= 128 else 32 if largest <= 192 else 16
    plan = FlashPlan(warps, block)
    blocks = shape.leads * -(-shape.rows // plan.rows)
    key_blocks = -(-shape.keys // plan.block)
    wanted = model.sms * 2 // max(blocks, 1)
    splits = 1
    while splits * 2 <= min(wanted, key_blocks // 2, 32):
        splits *= 2
    return FlashPlan(plan.warps, plan.block, splits)


def flash_seconds(shape: FlashShape, plan: FlashPlan, model: GpuModel) -> float:
    """Seconds of the kernel, and of adding the shares."""
    share = FLASH_SHARE * (HOPPER_SHARE if model.l2_bytes >= 50 << 20 else 1.0)
    tiles = shape.leads * -(-shape.rows // plan.rows)
    padded_rows = tiles * plan.rows / (shape.leads * shape.rows)
    used = min(1.0, tiles * plan.splits / model.sms)
    compute = shape.flops * padded_rows / (model.tensor_flops["f16"] * share * used)
    seconds = model.launch_seconds + 2 * model.dram_latency + max(
        compute, shape.moved / model.bandwidth / max(used, 0.05))
    if plan.splits > 1:
        sums = 8 * shape.leads * shape.rows * shape.width * plan.splits
        seconds += model.launch_seconds + sums / model.l2_bandwidth
    return seconds


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
