"""The tiles of attention and their estimates."""

from __future__ import annotations

from weft.strategy.cuda.machine_model import GpuModel
from weft.support.dataclass import dataclass

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
        split = f", keys in {self.splits} shares" if self.splits > 1 else ""
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
