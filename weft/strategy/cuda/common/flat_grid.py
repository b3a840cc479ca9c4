"""One thread per element, or per vector of elements, over a flat grid.

All data loops are fused, innermost last, so that adjacent threads own adjacent elements: their
accesses coalesce wherever the body is contiguous along the innermost axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.strategy.cuda.machine_model import VECTOR_BYTES, GpuModel
from weft.strategy.extents import is_fixed, is_multiple, size_of
from weft.te import loads_of
from weft.tir import Call, PrimExpr, post_order

BLOCK = 256  # threads; a multiple of the warp that divides the threads of every SM
# A grid of more waves than this on the whole GPU becomes a grid-stride loop, so that what a thread
# computes once (indices, scalars) is shared by several elements.
MOST_WAVES = 16
MOST_LANES = 8


def vector_lanes(loop: te.IterVar, dtype_bytes: int, body: Sequence[PrimExpr], rows: int,
                 model: GpuModel) -> int:
    """Elements of ``loop`` that one thread computes as a vector of up to 128 bits.

    ``rows`` are the iterations of the loops around it. 1 if the extent is not a multiple, if lanes
    would diverge, or if the vectors would leave SMs idle.
    """
    if not is_fixed(loop.extent) or _has_condition(body):
        return 1
    lanes = min(MOST_LANES, VECTOR_BYTES // max(1, dtype_bytes))
    extent = size_of(loop.extent)
    busy = model.sms * BLOCK // 2
    while lanes > 1 and (not is_multiple(loop.extent, lanes) or rows * extent // lanes < busy):
        lanes //= 2
    return lanes


def _has_condition(body: Sequence[PrimExpr]) -> bool:
    """Whether a load is evaluated under a condition, as in a pad."""
    return any(isinstance(e, Call) and e.name == "if_then_else" and loads_of((e,))
               for root in body for e in post_order(root))


def bind_flat(stage: te.Stage, loops: Sequence[te.IterVar], model: GpuModel, *,
              inside: Sequence[te.IterVar] = (), block: int = BLOCK) -> te.IterVar:
    """Fuse ``loops``, which are adjacent and outermost, and give each iteration to a thread.

    ``inside`` are the loops of one thread. Returns the loop over blocks.
    """
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    total = size_of(flat.extent)
    if is_fixed(flat.extent) and total < block:
        block = max(32, 1 << max(0, total - 1).bit_length())
    blocks, thread = stage.split(flat, factor=block)
    most = model.sms * (model.threads_per_sm // block) * MOST_WAVES
    if is_fixed(flat.extent) and -(-total // block) > most:
        chunk, blocks = stage.split(blocks, factor=most)
        stage.reorder(blocks, thread, chunk, *inside)
    stage.bind(blocks, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")
    return blocks


def iterations(loops: Sequence[te.IterVar]) -> int:
    """The iterations of nested loops, at typical sizes."""
    return math.prod(size_of(loop.extent) for loop in loops)
