"""``wgmma``: asynchronous matrix products of a warpgroup over shared memory (sm_90a).

The sums are computed at once: ptxas orders uses of the accumulators. Operands in shared memory may
not change until the wait for the group, so the wait compares them with what was read.

Descriptors and canonical layouts: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
Layout" and "Matrix Descriptor Format".
"""

from __future__ import annotations

import numpy as np

from weft.testing.cuda.async_state import MatrixOperand
from weft.testing.cuda.batch import WARP
from weft.testing.cuda.bulk_copies import swizzled
from weft.testing.cuda.device_memory import SHARED_START
from weft.testing.cuda.lanes import Lanes
from weft.testing.cuda.matrices import (
    numbers,
    packed_sums,
    registers_of,
    unpacked,
    whole_warps,
)

Array = np.ndarray
_SWIZZLE = {0: 0, 1: 128, 2: 64, 3: 32}
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}
_LANE = np.arange(WARP)


def matrix_places(
    descriptor: int, rows: int, depth: int, nbytes: int, transposed: bool
) -> Array:
    """Addresses in shared memory of the elements of a (rows, depth) operand.

    ``transposed`` operands are contiguous along their rows (M or N), others along K.
    """
    start = (descriptor & 0x3FFF) << 4
    leading = ((descriptor >> 16) & 0x3FFF) << 4
    stride = ((descriptor >> 32) & 0x3FFF) << 4
    swizzle = _SWIZZLE[descriptor >> 62]
    row = np.arange(rows)[:, None]
    column = np.arange(depth)[None, :]
    if transposed:
        per = max(swizzle, 16) // nbytes  # elements of a row of the atom
        along, across = row, column
        outer, inner = along // per, along % per
        if swizzle:
            linear = (start + outer * leading + (across // 8) * stride
                      + (across % 8) * swizzle + inner * nbytes)
        else:
            linear = (start + outer * stride + (across // 8) * leading
                      + (across % 8) * 16 + inner * nbytes)
    elif swizzle:
        linear = start + (row // 8) * stride + (row % 8) * swizzle + column * nbytes
    else:
        per = 16 // nbytes
        linear = (start + (row // 8) * stride + (row % 8) * 16 + (column // per) * leading
                  + (column % per) * nbytes)
    return swizzled(linear, swizzle)


def multiply(
    x: Lanes, shape: tuple[int, int, int], kinds: tuple[str, str, str], sums: tuple[Array, ...],
    a: tuple[Array, ...], b: Array, accumulate: Array, signs: tuple[int, int],
    transposed: tuple[int, int], guard: Array | None, site: int,
) -> tuple[Array, ...]:
    """``wgmma.mma_async``: D = A * B (+ D). ``a`` is a descriptor or four registers."""
    rows, columns, depth = shape
    d_kind, a_kind, b_kind = kinds
    warps = whole_warps(x, guard, site)
    if warps.shape[0] % 4 or (warps.reshape(-1, 4)[:, 0] % 4).any() or (
        np.diff(warps.reshape(-1, 4), axis=1) != 1
    ).any():
        x.fail("wgmma needs warpgroups of four warps", site, int(warps[0]) * WARP)
    if columns % 8 or not 8 <= columns <= 256:
        x.fail("wgmma with an invalid number of columns", site, 0)
    groups = warps.reshape(-1, 4)
    right = np.stack([
        _shared_matrix(x, group, b, columns, depth, b_kind, bool(transposed[1]), site)
        for group in groups])
    if len(a) == 1 and a[0].dtype == np.uint64:
        left = np.stack([
            _shared_matrix(x, group, a[0], rows, depth, a_kind, bool(transposed[0]), site)
            for group in groups])
    else:
        left = _register_matrix(x, warps, a, depth, a_kind)
    total = (left * signs[0]) @ (right * signs[1]).swapaxes(1, 2)  # (groups, 64, columns)
    x.batch.count_mma(2 * rows * columns * depth * groups.shape[0])
    result = _fragments(total, columns)
    kind = "f32" if d_kind == "f32" else d_kind
    held = np.concatenate(
        [unpacked(registers_of(x, warps, value), kind) for value in sums], axis=-1)
    keep = registers_of(x, warps, accumulate)[:, :, None]
    return packed_sums(x, warps, result + np.where(keep, held, 0.0), d_kind)


def _fragments(total: Array, columns: int) -> Array:
    """(groups, 64, columns) as the elements of each lane: (warps, 32, columns / 2)."""
    groups = total.shape[0]
    i = np.arange(columns // 2)[None, :]
    row = (_LANE // 4)[:, None] + 8 * ((i // 2) % 2)
    column = 8 * (i // 4) + 2 * (_LANE % 4)[:, None] + i % 2
    by_warp = total.reshape(groups * 4, 16, columns)
    return by_warp[:, row, column]


def _register_matrix(
    x: Lanes, warps: Array, a: tuple[Array, ...], depth: int, kind: str
) -> Array:
    values = np.stack([unpacked(registers_of(x, warps, v), kind) for v in a], axis=2)
    elements = values.shape[-1]
    r, j = np.arange(len(a))[None, :, None], np.arange(elements)[None, None, :]
    row = (_LANE // 4)[:, None, None] + 8 * (r % 2) + 0 * j
    column = 4 * elements * (r // 2) + elements * (_LANE % 4)[:, None, None] + j
    left = np.zeros((warps.shape[0], 16, depth))
    left[:, row, column] = values
    return left.reshape(-1, 64, depth)


def _shared_matrix(
    x: Lanes, group: Array, descriptor: Array, rows: int, depth: int, kind: str,
    transposed: bool, site: int,
) -> Array:
    """An operand in shared memory, (rows, depth)."""
    leader = int(group[0]) * WARP
    values = np.unique(registers_of(x, group, descriptor))
    if values.shape[0] != 1:
        x.fail("the threads of a warpgroup give different descriptors", site, leader)
    nbytes = _BYTES[kind]
    if transposed and nbytes != 2:
        x.fail("wgmma transposes 16-bit operands only", site, leader)
    address = matrix_places(int(values[0]), rows, depth, nbytes, transposed)
    batch = x.batch
    offset = address - SHARED_START
    if offset.min() < 0 or offset.max() + nbytes > batch.shared_bytes:
        x.fail("a wgmma descriptor reaches outside of shared memory", site, leader,
               got=f"addresses {address.min():#x} to {address.max():#x}")
    places = offset + (leader // batch.slots_per_block) * batch.shared_stride
    bits = batch.shared.views[f"u{nbytes}"][places // nbytes]
    batch.pending.operands.append(MatrixOperand(
        leader, int(batch.pending.operand_groups[leader]), places, bits, site))
    x.track_slots(batch.shared, np.unique(places // 16) * 16, 16,
                  np.full(np.unique(places // 16).shape, leader), site, write=False)
    return numbers(bits, kind)


def commit(x: Lanes, guard: Array | None) -> None:
    """``wgmma.commit_group``."""
    active = x.active(guard)
    x.batch.pending.operand_groups[x.slots if active is None else x.slots[active]] += 1


def wait(x: Lanes, allowed: int, guard: Array | None) -> None:
    """``wgmma.wait_group``: operands of the groups that end must be what they were."""
    active = x.active(guard)
    waiting = set((x.slots if active is None else x.slots[active]).tolist())
    pending = x.batch.pending
    left = []
    for item in pending.operands:
        if item.leader in waiting and item.group < pending.operand_groups[item.leader] - allowed:
            nbytes = item.bits.dtype.itemsize
            now = x.batch.shared.views[f"u{nbytes}"][item.places // nbytes]
            if (now != item.bits).any():
                x.fail("shared memory that wgmma reads was overwritten before the wait",
                       item.site, item.leader)
        else:
            left.append(item)
    pending.operands = left
