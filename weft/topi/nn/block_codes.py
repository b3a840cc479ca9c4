"""Blocks of weights that others have quantised: codes, scales and zero points as they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.support.errors import InvalidInputError
from weft.topi.nn.block_encode import pack_blocks
from weft.topi.nn.block_family import GROUPS

# float16 scales are exact where float32 ones, which may come from a subtraction, are this close.
_CLOSE = 2.0 ** -21


class Blocks(NamedTuple):
    """A matrix in blocks: uint8 [N, bytes of a row], and the name of the format."""

    data: np.ndarray
    format: str


def group_size(elements: int, shared: int) -> int | None:
    """The largest group that divides the ``shared`` neighbours of a row with one scale each.

    ``None`` if no format has such groups, or rows of ``elements`` are no whole number of them.
    """
    return next((size for size in sorted(GROUPS, reverse=True)
                 if not shared % size and not elements % size), None)


def blocks_of_codes(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None, *,
                    bits: int) -> Blocks | None:
    """The matrix ``scales * (codes - zeros)`` in blocks; ``None`` if no format has its groups.

    ``codes`` [N, K] are from 0 to ``2 ** bits - 1``, for 2, 4 or 8 bits; scales and zero points
    are [N, groups]. Zero points are any numbers; the default is the middle, ``2 ** (bits - 1)``.
    Scales that float16 does not hold stay float32. Raises ``InvalidInputError`` for scales and zero
    points that are not finite, and for codes out of range.
    """
    rows, elements = codes.shape
    shared = -(-elements // max(scales.shape[1], 1))
    size = group_size(elements, shared)
    if size is None or scales.shape != (rows, elements // shared):
        return None
    codes, zeros = _in_storage(codes, zeros, bits)
    storage = 4 if bits == 2 else bits
    kept, is_narrow = _scales(scales)
    codes, kept, zeros = _without_zero_scales(codes, kept, zeros, storage)
    if zeros is not None and (zeros == 1 << storage - 1).all():
        zeros = None
    # float16 would round the offset of 8-bit codes by up to an eighth of a scale.
    is_wide = not is_narrow or (zeros is not None and storage == 8)
    name = f"int{storage}_g{size}" + "_f32" * is_wide + "_z" * (zeros is not None)
    offsets = None if zeros is None else np.repeat(-zeros.astype(np.float32) * kept, shared // size,
                                                   axis=1)
    return Blocks(pack_blocks(codes, name, np.repeat(kept, shared // size, axis=1), offsets), name)


def _in_storage(codes: np.ndarray, zeros: np.ndarray | None, bits: int
                ) -> tuple[np.ndarray, np.ndarray | None]:
    """Codes and zero points for 4 bits in place of 2, of which no format is."""
    if bits != 2:
        return codes, zeros
    if zeros is None:
        return codes + np.uint8(6), None  # the middle is 8, not 2
    return codes, zeros


def _scales(scales: np.ndarray) -> tuple[np.ndarray, bool]:
    """Scales as float32, and whether float16 holds them (their own dtype, or nearly)."""
    given = scales.astype(np.float32)
    if not np.isfinite(given).all():
        row, group = np.argwhere(~np.isfinite(given))[0]
        raise InvalidInputError("a scale of a quantised weight is not finite",
                                where=f"row {row}, group {group}", got=given[row, group])
    with np.errstate(over="ignore"):
        narrow = given.astype(np.float16).astype(np.float32)
    if (np.abs(narrow - given) <= _CLOSE * np.abs(given)).all():
        return narrow, True
    return given, False


def _without_zero_scales(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int
                         ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Groups whose scale is 0 (their elements are) as zero points at the scale 1."""
    none = scales == 0
    if not none.any():
        return codes, scales, zeros
    middle = 1 << bits - 1
    grouped = codes.reshape(*scales.shape, -1)
    codes = np.where(none[..., None], np.uint8(middle), grouped).reshape(codes.shape)
    scales = np.where(none, np.float32(1), scales)
    return codes, scales, None if zeros is None else np.where(none, middle, zeros)
