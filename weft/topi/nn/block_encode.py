"""Floats as weights in blocks: codes nearest to them, with given scales or scales of the extremes.

GGUF's plain formats and those in groups are encoded; the formats whose scales are quantised too
(``q2_k`` to ``q6_k``) are read only. The stored scale (rounded to float16, say) is what codes are
chosen by, so blocks that are decoded and encoded with their own scales stay as they were.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError
from weft.topi.nn.block_family import NF4_LEVELS, grouped
from weft.topi.nn.block_formats import IQ4_LEVELS, block_format

Fit = Literal["absmax", "least_squares"]
_CHUNK = 1 << 20  # elements that are encoded at a time: temporary arrays stay small
_ROUNDS = 4  # of least squares


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a format stores a group: a scale, an offset if it has one, and packed codes.

    ``levels`` are the values of the codes, times the scale. Those that are evenly spaced have the
    level 0 at the code ``zero``; those of a float are rounded as its ``dtype`` is.
    """

    name: str
    elements: int
    scale_dtype: type[np.floating]
    has_offset: bool
    levels: np.ndarray
    pack: Callable[[np.ndarray], np.ndarray]
    extreme: float  # the level that the extreme of a group has
    zero: int | None = None
    dtype: DType | None = None

    def codes(self, values: np.ndarray) -> np.ndarray:
        """The codes of the nearest levels, uint8."""
        if self.dtype is not None:
            inside = np.clip(values, -self.extreme, self.extreme)
            return inside.astype(self.dtype.numpy).view(np.uint8)
        if self.zero is not None:
            return np.clip(np.rint(values) + self.zero, 0, len(self.levels) - 1).astype(np.uint8)
        return np.searchsorted((self.levels[1:] + self.levels[:-1]) / 2, values).astype(np.uint8)


def encodes(format: str) -> bool:
    """Whether ``quantize_blocks`` makes blocks of the format."""
    return _encoding(format) is not None


def quantize_blocks(matrix: np.ndarray, format: str, scales: np.ndarray | None = None,
                    offsets: np.ndarray | None = None, *, fit: Fit = "absmax") -> np.ndarray:
    """The rows of ``matrix``, floats [N, K], in blocks: uint8 [N, bytes of a row].

    ``scales`` and ``offsets`` are [N, groups]; without them, scales reach the extremes of a group,
    and ``fit="least_squares"`` then moves them to the least squared error.
    """
    encoding = _checked(format, matrix)
    groups = matrix.shape[1] // encoding.elements
    if scales is not None:
        scales = _checked_scales(encoding, scales, matrix.shape[0], groups)
        offsets = _checked_offsets(encoding, offsets, matrix.shape[0], groups)
    elif offsets is not None:
        raise InvalidInputError("offsets of blocks need their scales")

    def chunk(rows: slice) -> np.ndarray:
        values = matrix[rows].astype(np.float32).reshape(-1, groups, encoding.elements)
        if not np.isfinite(values).all():
            raise InvalidInputError("a weight in blocks is not finite", expected="finite numbers",
                                    got="NaN or infinity")
        if scales is None:
            scale, offset = _extremes(encoding, values)
            if fit == "least_squares":
                scale, offset = _least_squares(encoding, values, scale, offset)
        else:
            scale, offset = scales[rows], None if offsets is None else offsets[rows]
        return _stored(encoding, _codes(encoding, values, scale, offset), scale, offset)

    return _by_rows(matrix.shape, chunk, block_format(format).row_bytes(matrix.shape[1]))


def pack_blocks(codes: np.ndarray, format: str, scales: np.ndarray,
                offsets: np.ndarray | None = None, zeros: np.ndarray | None = None) -> np.ndarray:
    """Blocks of codes [N, K] that are known, from 0 (the lowest level): uint8 [N, row bytes].

    ``zeros`` are zero points in the unit of the codes, whole or not, from 0 to the largest code
    (one more is taken, as GPTQ stores it): the offset is ``-zero * scale``.
    """
    encoding = _checked(format, codes)
    groups, top = codes.shape[1] // encoding.elements, len(encoding.levels) - 1
    if codes.min(initial=0) < 0 or codes.max(initial=0) > top:
        raise InvalidInputError(f"a code of {format} is out of range", expected=f"0 to {top}",
                                got=f"{codes.min()} to {codes.max()}")
    scales = _checked_scales(encoding, scales, codes.shape[0], groups)
    if zeros is not None:
        offsets = _offsets_of(encoding, zeros, scales, top)
    offsets = _checked_offsets(encoding, offsets, codes.shape[0], groups)

    def chunk(rows: slice) -> np.ndarray:
        grouped_codes = codes[rows].astype(np.uint8).reshape(-1, groups, encoding.elements)
        return _stored(encoding, grouped_codes, scales[rows],
                       None if offsets is None else offsets[rows])

    return _by_rows(codes.shape, chunk, block_format(format).row_bytes(codes.shape[1]))


def _by_rows(shape: tuple[int, ...], chunk: Callable[[slice], np.ndarray], row_bytes: int
             ) -> np.ndarray:
    """The rows that ``chunk`` encodes, a bounded number of elements at a time."""
    out = np.empty((shape[0], row_bytes), np.uint8)
    step = max(_CHUNK // max(shape[1], 1), 1)
    for first in range(0, shape[0], step):
        rows = slice(first, first + step)
        out[rows] = chunk(rows)
    return out


def encoding_of(format: str) -> Encoding:
    """How a format stores groups; ``InvalidInputError`` for formats that are read only."""
    block_format(format)
    encoding = _encoding(format)
    if encoding is None:
        raise InvalidInputError(f"blocks of {format} are read, not made",
                                expected="q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl or a format in "
                                "groups, such as int4_g32")
    return encoding


def _checked(format: str, matrix: np.ndarray) -> Encoding:
    """The encoding of ``format``, for a matrix whose rows are whole groups."""
    encoding = encoding_of(format)
    if matrix.ndim != 2:
        raise InvalidInputError("a weight in blocks is a matrix", expected="2 axes",
                                got=f"shape {matrix.shape}")
    if matrix.shape[1] % encoding.elements:
        raise InvalidInputError(f"the blocks of {format} do not divide axis 1 of the weight",
                                expected=f"a multiple of {encoding.elements}",
                                got=f"{matrix.shape[1]} of shape {matrix.shape}")
    return encoding


def _checked_scales(encoding: Encoding, scales: np.ndarray, rows: int, groups: int) -> np.ndarray:
    stored = _as_stored(encoding, "scales", scales, rows, groups)
    if (stored == 0).any():
        row, group = np.argwhere(stored == 0)[0]
        raise InvalidInputError(
            f"a scale of blocks of {encoding.name} is zero", where=f"row {row}, group {group}",
            expected=f"a number that is not zero as {stored.dtype}", got=scales[row, group])
    return stored


def _checked_offsets(encoding: Encoding, offsets: np.ndarray | None, rows: int, groups: int
                     ) -> np.ndarray | None:
    if encoding.has_offset != (offsets is not None):
        raise InvalidInputError(
            f"blocks of {encoding.name} have {'' if encoding.has_offset else 'no '}offsets",
            help="formats with an offset end in _z" if not encoding.has_offset else None)
    return None if offsets is None else _as_stored(encoding, "offsets", offsets, rows, groups)


def _as_stored(encoding: Encoding, what: str, given: np.ndarray, rows: int, groups: int
               ) -> np.ndarray:
    """Scales or offsets as float32, rounded to the type that stores them."""
    if given.shape != (rows, groups):
        raise InvalidInputError(f"the {what} of blocks do not fit the weight",
                                expected=f"shape {(rows, groups)}", got=f"shape {given.shape}")
    stored = _rounded(encoding, given)
    if not np.isfinite(stored).all():
        row, group = np.argwhere(~np.isfinite(stored))[0]
        dtype = np.dtype(encoding.scale_dtype)
        raise InvalidInputError(
            f"the {what} of blocks of {encoding.name} are not finite numbers of {dtype}",
            where=f"row {row}, group {group}", expected=f"at most {np.finfo(dtype).max:.6g}",
            got=given[row, group],
            help="formats that end in _f32 keep float32" if dtype == np.float16 else None)
    return stored


def _offsets_of(encoding: Encoding, zeros: np.ndarray, scales: np.ndarray, top: int) -> np.ndarray:
    bad = ~((zeros >= 0) & (zeros <= top + 1))
    if zeros.shape != scales.shape or bad.any():
        got = f"shape {zeros.shape}" if zeros.shape != scales.shape else zeros[bad][0]
        raise InvalidInputError(f"a zero point of {encoding.name} is out of range", got=got,
                                expected=f"0 to {top}, of shape {scales.shape}")
    return -zeros.astype(np.float32) * scales


def _rounded(encoding: Encoding, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(encoding.scale_dtype).astype(np.float32)


def _extremes(e: Encoding, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Scales that put the extreme of each group onto the extreme level."""
    high, low = values.max(-1), values.min(-1)
    offset = None
    if e.has_offset:
        scale, offset = (high - low) / e.extreme, _rounded(e, low)
    elif e.extreme > 0:
        scale = np.maximum(high, -low) / e.extreme
    else:
        scale = np.where(-low > high, low, high) / e.extreme
    shape = scale.shape
    stored = _as_stored(e, "scales", scale, *shape)
    return stored, None if offset is None else _as_stored(e, "offsets", offset, *shape)


def _codes(e: Encoding, values: np.ndarray, scale: np.ndarray, offset: np.ndarray | None
           ) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.where(scale == 0, 0, 1 / scale)[..., None]
        centred = values if offset is None else values - offset[..., None]
        return e.codes(np.nan_to_num(centred * inverse))


def _least_squares(e: Encoding, values: np.ndarray, scale: np.ndarray, offset: np.ndarray | None
                   ) -> tuple[np.ndarray, np.ndarray | None]:
    """Codes by scales, then scales by codes, some rounds; the best of each group is kept."""
    best, best_error = (scale, offset), np.full(scale.shape, np.inf, np.float32)
    for _ in range(_ROUNDS):
        quants = e.levels[_codes(e, values, scale, offset)]
        at = 0 if offset is None else offset[..., None]
        error = ((quants * scale[..., None] + at - values) ** 2).sum(-1)
        better = error < best_error
        best = (np.where(better, scale, best[0]),
                None if offset is None or best[1] is None else np.where(better, offset, best[1]))
        best_error = np.minimum(error, best_error)
        scale, offset = _solved(e, quants, values, scale, offset)
    return best


def _solved(e: Encoding, quants: np.ndarray, values: np.ndarray, scale: np.ndarray,
            offset: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The scales (and offsets) with the least squared error for given codes."""
    mean_q = quants.mean(-1, keepdims=True) if offset is not None else 0
    mean_v = values.mean(-1, keepdims=True) if offset is not None else 0
    centred = quants - mean_q
    norm = (centred * centred).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        solved = _rounded(e, (centred * (values - mean_v)).sum(-1) / norm)
    solved = np.where(np.isfinite(solved) & (solved != 0), solved, scale)
    if offset is None:
        return solved, None
    return solved, _rounded(e, (mean_v - mean_q * solved[..., None])[..., 0])


def _stored(e: Encoding, codes: np.ndarray, scale: np.ndarray, offset: np.ndarray | None
            ) -> np.ndarray:
    """Rows of bytes of codes [rows, groups, elements]."""
    heads = [scale] if offset is None else [scale, offset]
    parts = [_bytes(e, head) for head in heads]
    blocks = np.concatenate([*parts, e.pack(codes)], axis=-1)
    return blocks.reshape(len(codes), -1)


def _bytes(e: Encoding, values: np.ndarray) -> np.ndarray:
    stored = np.ascontiguousarray(values[..., None].astype(e.scale_dtype))
    return stored.view(np.uint8)


def _pairs(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits: those of 16 in the low halves of 16 bytes, those of the next 16 above."""
    half = min(16, codes.shape[-1] // 2)
    split = codes.reshape(*codes.shape[:-1], -1, 2, half)
    packed = split[..., 0, :] % 16 | split[..., 1, :] % 16 << 4
    return packed.reshape(*codes.shape[:-1], -1)


def _with_fifth_bits(codes: np.ndarray) -> np.ndarray:
    high = np.packbits(codes >> 4, axis=-1, bitorder="little")
    return np.concatenate([high, _pairs(codes)], axis=-1)


def _plain(codes: np.ndarray) -> np.ndarray:
    return codes


def _signed(codes: np.ndarray) -> np.ndarray:
    return codes - np.uint8(128)


# Numbers of codes, the code of zero, the extreme level, and how codes are packed.
_EVEN = {
    "int8": (256, 128, 127.0, _signed), "int4": (16, 8, -8.0, _pairs),
    "q5_0": (32, 16, -16.0, _with_fifth_bits), "int8_z": (256, 0, 255.0, _plain),
    "int4_z": (16, 0, 15.0, _pairs), "q5_1": (32, 0, 31.0, _with_fifth_bits),
}
_TABLES = {"nf4": (NF4_LEVELS, 1.0), "iq4_nl": (IQ4_LEVELS, -127.0)}
_FLOATS = {"fp8_e4m3": ("float8_e4m3fn", 448.0), "fp8_e5m2": ("float8_e5m2", 57344.0)}
_GGUF = {"q8_0": "int8", "q4_0": "int4", "q4_1": "int4_z", "q5_0": "q5_0", "q5_1": "q5_1",
         "iq4_nl": "iq4_nl"}


@functools.cache
def _encoding(name: str) -> Encoding | None:
    group = grouped(name)
    if group is None and name not in _GGUF:
        return None
    if group is None:
        kind, storage = _GGUF[name], (32, np.float16, name.endswith("_1"))
    else:
        kind = group.codes + "_z" * group.has_offset
        storage = (group.elements, group.scale_dtype, group.has_offset)
    if kind in _TABLES:
        levels, extreme = _TABLES[kind]
        return Encoding(name, *storage, np.array(levels, np.float32), _pairs, extreme)
    if kind in _FLOATS:
        dtype, extreme = DType.of(_FLOATS[kind][0]), _FLOATS[kind][1]
        values = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
        return Encoding(name, *storage, values, _plain, extreme, dtype=dtype)
    count, zero, extreme, pack = _EVEN[kind]
    return Encoding(name, *storage, np.arange(count, dtype=np.float32) - zero, pack, extreme, zero)
