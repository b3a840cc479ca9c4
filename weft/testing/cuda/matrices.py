"""Fragments of matrices in the registers of a warp: ``ldmatrix``, ``stmatrix``, ``mma.sync``.

Layouts follow the PTX ISA, "Matrix Fragments". With g = lane // 4, t = lane % 4 and e elements in a
register, register r of A holds row g + 8 * (r % 2) and columns 4e * (r // 2) + e * t on; register r
of B rows 4e * r + e * t on of column g; the sums of row g + 8 * i are at columns 2t and 2t + 1.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from weft.testing.cuda.batch import WARP
from weft.testing.cuda.lanes import Lanes
from weft.testing.cuda.values import narrow_floats

Array = np.ndarray
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8,
         "f64": 64, "s32": 32}
_LANE = np.arange(WARP)
_G, _T = _LANE // 4, _LANE % 4


def whole_warps(x: Lanes, guard: Array | None, site: int) -> Array:
    """The warps that run an instruction of the warp; all their threads must be there."""
    active = x.active(guard)
    slots = x.slots if active is None else x.slots[active]
    counts = np.bincount(slots // WARP, minlength=x.batch.lanes // WARP)
    partial = (counts != 0) & (counts != WARP)
    if partial.any():
        warp = int(np.flatnonzero(partial)[0])
        x.fail("an instruction of the whole warp run by a part of it", site, warp * WARP,
               got=f"{counts[warp]} of 32 threads")
    return np.flatnonzero(counts)


def registers_of(x: Lanes, warps: Array, value: Array) -> Array:
    """The values of whole warps, (warps, 32)."""
    if value.shape[0] == 1 != x.count:
        return np.broadcast_to(value, (warps.shape[0], WARP))
    if x.index is None:
        return value.reshape(-1, WARP)[warps]
    full = np.zeros(x.batch.lanes, dtype=value.dtype)
    full[x.index] = value
    return full.reshape(-1, WARP)[warps]


def to_lanes(x: Lanes, warps: Array, value: Array) -> Array:
    """The inverse: an entry per active lane."""
    if x.index is None and warps.shape[0] * WARP == x.count:
        return np.ascontiguousarray(value).reshape(-1)
    full = np.zeros((x.batch.lanes // WARP, WARP), dtype=value.dtype)
    full[warps] = value
    flat = full.reshape(-1)
    return flat if x.index is None else flat[x.index]


def unpacked(value: Array, kind: str) -> Array:
    """The elements of registers (unsigned), low bits first: another last axis, as float64."""
    bits = _BITS[kind]
    width = value.dtype.itemsize * 8
    parts = [(value >> value.dtype.type(bits * at)).astype(f"u{bits // 8}")
             for at in range(width // bits)]
    return _numbers(np.stack(parts, axis=-1), kind)


def _numbers(bits: Array, kind: str) -> Array:
    match kind:
        case "f16":
            return bits.view(np.float16).astype(np.float64)
        case "bf16":
            return narrow_floats.bf16_to_f32(bits).astype(np.float64)
        case "tf32":
            return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        case "f32":
            return bits.view(np.float32).astype(np.float64)
        case "f64":
            return bits.view(np.float64)
        case "s8" | "s32":
            return bits.view(f"i{bits.dtype.itemsize}").astype(np.float64)
        case "e4m3":
            return bits.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        case "e5m2":
            return bits.view(ml_dtypes.float8_e5m2).astype(np.float64)
        case _:
            return bits.astype(np.float64)


numbers = _numbers


@functools.lru_cache(maxsize=64)
def _a_places(rows: int, elements: int, count: int) -> tuple[Array, Array]:
    """Row and column of element j of register r of each lane: (32, count, elements)."""
    r = np.arange(count)[None, :, None]
    j = np.arange(elements)[None, None, :]
    halves = rows // 8
    row = _G[:, None, None] + 8 * (r % halves) + 0 * j
    column = 4 * elements * (r // halves) + elements * _T[:, None, None] + j
    return row, column


@functools.lru_cache(maxsize=64)
def _b_places(elements: int, count: int) -> tuple[Array, Array]:
    r = np.arange(count)[None, :, None]
    j = np.arange(elements)[None, None, :]
    row = 4 * elements * r + elements * _T[:, None, None] + j
    return row, _G[:, None, None] + 0 * row


@functools.lru_cache(maxsize=8)
def _c_places(rows: int) -> tuple[Array, Array]:
    """(32, rows // 8, 2)."""
    i = np.arange(rows // 8)[None, :, None]
    j = np.arange(2)[None, None, :]
    return _G[:, None, None] + 8 * i + 0 * j, 2 * _T[:, None, None] + j + 0 * i


def multiply(
    x: Lanes, shape: tuple[int, int, int], kinds: tuple[str, str, str, str],
    a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...], guard: Array | None,
    site: int,
) -> tuple[Array, ...]:
    """``mma.sync``: registers of D = A * B + C; ``kinds`` are those of D, A, B and C."""
    m, n, k = shape
    _, a_kind, b_kind, c_kind = kinds
    warps = whole_warps(x, guard, site)
    count = warps.shape[0]
    if n != 8:
        x.fail("shape of mma not supported", site, 0)
    left = np.zeros((count, m, k))
    right = np.zeros((count, k, n))
    values = np.stack([unpacked(registers_of(x, warps, v), a_kind) for v in a], axis=2)
    left[:, *_a_places(m, values.shape[-1], len(a))] = values
    values = np.stack([unpacked(registers_of(x, warps, v), b_kind) for v in b], axis=2)
    right[:, *_b_places(values.shape[-1], len(b))] = values
    total = left @ right
    rows, columns = _c_places(m)
    sums = np.concatenate([unpacked(registers_of(x, warps, v), c_kind) for v in c], axis=-1)
    result = total[:, rows, columns].reshape(count, WARP, -1) + sums
    x.batch.count_mma(2 * m * n * k * count)
    return packed_sums(x, warps, result, kinds[0])


def packed_sums(x: Lanes, warps: Array, result: Array, kind: str) -> tuple[Array, ...]:
    """Accumulators (warps, 32, elements; float64) as registers of ``kind``."""
    if kind == "f16":
        halves = result.astype(np.float16)
        words = [narrow_floats.pack(np.ascontiguousarray(halves[..., at]),
                                    np.ascontiguousarray(halves[..., at + 1]))
                 for at in range(0, result.shape[-1], 2)]
    elif kind == "s32":
        wide = result.astype(np.int64).astype(np.int32)
        words = [np.ascontiguousarray(wide[..., at]).view(np.uint32)
                 for at in range(result.shape[-1])]
    elif kind == "f64":
        words = [np.ascontiguousarray(result[..., at]).view(np.uint64)
                 for at in range(result.shape[-1])]
    else:
        single = result.astype(np.float32)
        words = [np.ascontiguousarray(single[..., at]).view(np.uint32)
                 for at in range(result.shape[-1])]
    return tuple(to_lanes(x, warps, word) for word in words)


# ldmatrix and stmatrix


def _rows(
    x: Lanes, address: Array, count: int, guard: Array | None, site: int, *, write: bool
) -> tuple[Array, Array]:
    """Warps, and the offsets of the rows of their matrices: (warps, count, 8)."""
    warps = whole_warps(x, guard, site)
    lanes = 8 * count
    spread = registers_of(x, warps, np.broadcast_to(address, (x.count,)))[:, :lanes]
    chosen = (warps[:, None] * WARP + np.arange(lanes)[None, :]).reshape(-1)
    region, offset = x.locate("shared", np.ascontiguousarray(spread).reshape(-1), 16, chosen, site)
    x.track_slots(region, offset, 16, chosen, site, write=write)
    x.batch.count_access(site, "shared", region, offset, 16, chosen)
    return warps, offset.reshape(-1, count, 8)


def load_matrices(
    x: Lanes, address: Array, count: int, transposed: bool, guard: Array | None, site: int
) -> tuple[Array, ...]:
    """``ldmatrix``: one register per matrix of 8 rows of 16 bytes."""
    warps, offset = _rows(x, address, count, guard, site, write=False)
    view = x.batch.shared.views["u2"]
    elements = view[offset[..., None] // 2 + np.arange(8)]  # (warps, count, 8, 8)
    if transposed:
        elements = elements.swapaxes(2, 3)
    words = np.ascontiguousarray(elements).view(np.uint32)  # two columns in a word
    return tuple(to_lanes(x, warps, words[:, at][:, _G, _T]) for at in range(count))


def store_matrices(
    x: Lanes, address: Array, values: tuple[Array, ...], transposed: bool,
    guard: Array | None, site: int,
) -> None:
    """``stmatrix``: the inverse of ``ldmatrix``."""
    warps, offset = _rows(x, address, len(values), guard, site, write=True)
    view = x.batch.shared.views["u2"]
    for at, value in enumerate(values):
        words = np.empty((warps.shape[0], 8, 4), dtype=np.uint32)
        words[:, _G, _T] = registers_of(x, warps, value)
        elements = words.view(np.uint16)
        if transposed:
            elements = np.ascontiguousarray(elements.swapaxes(1, 2))
        view[offset[:, at, :, None] // 2 + np.arange(8)] = elements
