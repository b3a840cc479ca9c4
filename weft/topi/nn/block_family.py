"""Formats of weights in groups: a code per element, and a scale (and an offset) per group.

A name says all of it: ``int4_g64_f32_z`` has codes of 4 bits in groups of 64 neighbours, with a
float32 scale (float16 without ``_f32``) and an offset of the same type beside it. A group is a
block: its scale, its offset, then its codes.

- ``int4``: two codes a byte. Code ``i`` of the even 16 of 32 is in the low half of the byte that
  code ``i`` of the odd 16 has the high half of; groups of 16 hold code ``i`` and ``i + 8``. Codes
  are 0 to 15; without an offset an element is ``scale * (code - 8)``.
- ``int8``: a byte, signed; or 0 to 255 beside an offset.
- ``nf4``: the levels of QLoRA (Dettmers et al., 2023), packed as ``int4`` is.
- ``fp8_e4m3``, ``fp8_e5m2``: the floats of 8 bits of the Open Compute Project, without NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from weft.ir.block_dtype import CODES, GROUPED_NAME, GROUPS, block_size
from weft.support.dataclass import dataclass
from weft.topi.nn.block_core import RUN, Block, BlockFormat, Value

__all__ = ["CODES", "GROUPS", "NF4_LEVELS", "Grouped", "grouped", "grouped_format"]

# Levels of NF4, from -1 to 1. Each is a whole number of 2**-27.
NF4_LEVELS: tuple[float, ...] = tuple(float(np.float32(level)) for level in (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0))
_NF4_UNIT = 2.0 ** -27
_NF4_TABLE = tuple(int(level / _NF4_UNIT) for level in NF4_LEVELS)


@dataclass(frozen=True, slots=True)
class Grouped:
    """What the name of a format in groups says."""

    codes: str
    elements: int
    wide: bool
    has_offset: bool

    @property
    def bits(self) -> int:
        return 4 if self.codes.endswith("4") else 8

    @property
    def scale_dtype(self) -> type[np.floating]:
        return np.float32 if self.wide else np.float16

    @property
    def first(self) -> int:
        """The byte of the first code."""
        return (4 if self.wide else 2) * (1 + self.has_offset)

    @property
    def nbytes(self) -> int:
        return self.first + self.elements * self.bits // 8

    def number(self, b: Block, index: int) -> Value:
        """The scale (0) or the offset (1)."""
        return b.single(4 * index) if self.wide else b.half(2 * index)


def grouped(name: str) -> Grouped | None:
    """What the name of a format in groups says; ``None`` for other names."""
    match = GROUPED_NAME.fullmatch(name)
    if match is None or block_size(name) is None:
        return None
    return Grouped(match[1], int(match[2]), bool(match[3]), bool(match[4]))


@functools.cache
def grouped_format(name: str) -> BlockFormat | None:
    """The format in groups of that name; ``None`` if there is none."""
    g = grouped(name)
    if g is None:
        return None
    unit = {"nf4": _NF4_UNIT, "fp8_e4m3": 256.0}.get(g.codes, 1.0)
    offset: Callable[[Block, int], Value] | None = None
    if g.has_offset:
        offset = lambda b, _: g.number(b, 1)  # noqa: E731
    elif g.codes == "int4":
        offset = lambda b, _: g.number(b, 0) * -8.0  # noqa: E731
    return BlockFormat(name, g.elements, g.nbytes, _quant(g), lambda b, _: g.number(b, 0) * unit,
                       offset)


def _quant(g: Grouped) -> Callable[[Block, int, Value], Value]:
    at = g.first
    if g.codes == "nf4":
        return lambda b, run, lane: b.lookup(_NF4_TABLE, _nibble(g)(b, run, lane))
    if g.codes == "int4":
        return _nibble(g)
    if g.codes == "int8":
        read = "byte" if g.has_offset else "signed"
        return lambda b, run, lane: getattr(b, read)(lane + (at + RUN * run))
    # The bits of a float16 of the same mantissa: E4M3 has an exponent bias of 7, float16 of 15.
    to_half = _e5m2_bits if g.codes == "fp8_e5m2" else _e4m3_bits
    return lambda b, run, lane: b.half_of(to_half(b.byte(lane + (at + RUN * run))))


def _nibble(g: Grouped) -> Callable[[Block, int, Value], Value]:
    at = g.first
    if g.elements == RUN:
        return lambda b, _, lane: b.shift_right(b.byte(lane % 8 + at), lane // 8 * 4) % 16
    return lambda b, run, lane: b.byte(lane + (at + RUN * (run // 2))) // 16 ** (run % 2) % 16


def _e5m2_bits(byte: Value) -> Value:
    return byte * 256


def _e4m3_bits(byte: Value) -> Value:
    return byte // 128 * 32768 + byte % 128 * 128
