"""Weights quantised in blocks, as GGUF stores them: one table of the formats, one formula each.

A block holds ``elements`` neighbours of a row in ``nbytes`` bytes. Runs of ``RUN`` elements share a
scale and an offset, and the bits of their bytes: an element is ``scale * quant + offset``. The
formulas are written over ``Block``, whose bytes are numbers of NumPy or expressions of loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError

RUN = 16
Value = Any  # an array of NumPy, or a PrimExpr


class Block(Protocol):
    """The bytes of a block, as int32 and float32."""

    def byte(self, at: Value) -> Value: ...

    def signed(self, at: Value) -> Value: ...

    def half(self, at: int) -> Value:
        """The float16 of two bytes, as float32."""
        ...

    def number(self, value: Value) -> Value:
        """An int32 as float32."""
        ...

    def shift_right(self, value: Value, bits: Value) -> Value: ...

    def lookup(self, table: tuple[int, ...], index: Value) -> Value: ...


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """``quant(block, run, lane)`` is an int32; ``scale`` and ``offset`` are those of a run."""

    name: str
    elements: int
    nbytes: int
    quant: Callable[[Block, int, Value], Value]
    scale: Callable[[Block, int], Value]
    offset: Callable[[Block, int], Value] | None = None

    @property
    def runs(self) -> int:
        return self.elements // RUN

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row; ``elements`` is a multiple of those of a block."""
        return elements // self.elements * self.nbytes

    def value(self, block: Block, run: int, lane: Value) -> Value:
        """Element ``lane`` of a run, float32."""
        scaled = block.number(self.quant(block, run, lane)) * self.scale(block, run)
        return scaled if self.offset is None else scaled + self.offset(block, run)


def block_format(name: str) -> BlockFormat:
    """The format of that name; ``OptionError`` if there is none."""
    if name not in FORMATS:
        raise OptionError(f"unknown block format {name!r}", expected=", ".join(FORMATS))
    return FORMATS[name]


def _nibble(at: int) -> Callable[[Block, int, Value], Value]:
    """Run 0 is in the low halves of 16 bytes, run 1 in the high ones."""
    return lambda b, run, lane: b.byte(lane + at) // 16 ** run % 16


def _fifth_bit(b: Block, at: int, run: int, lane: Value) -> Value:
    """A bit of 32 in four bytes, as 16 or 0."""
    bits = b.byte(at + 2 * run) + b.byte(at + 2 * run + 1) * 256
    return b.shift_right(bits, lane) % 2 * 16


def _first_scale(b: Block, run: int) -> Value:
    del run
    return b.half(0)


def _second_half(b: Block, run: int) -> Value:
    del run
    return b.half(2)


def _middle(zero: int) -> Callable[[Block, int], Value]:
    return lambda b, _: b.half(0) * -float(zero)


def _k_scale(b: Block, group: int) -> Value:
    """The 6-bit scale of 32 elements of Q4_K and Q5_K, whose 12 bytes begin at 4."""
    if group < 4:
        return b.byte(4 + group) % 64
    return b.byte(8 + group) % 16 + b.byte(group) // 64 * 16


def _k_minimum(b: Block, group: int) -> Value:
    if group < 4:
        return b.byte(8 + group) % 64
    return b.byte(8 + group) // 16 + b.byte(4 + group) // 64 * 16


def _k_nibble(at: int) -> Callable[[Block, int, Value], Value]:
    def quant(b: Block, run: int, lane: Value) -> Value:
        group, half = divmod(run, 2)
        return b.byte(lane + (at + 32 * (group // 2) + 16 * half)) // 16 ** (group % 2) % 16

    return quant


def _q5_k(b: Block, run: int, lane: Value) -> Value:
    group, half = divmod(run, 2)
    return (_k_nibble(48)(b, run, lane)
            + b.byte(lane + (16 + 16 * half)) // 2 ** group % 2 * 16)


def _k_scaled(b: Block, run: int) -> Value:
    return b.half(0) * b.number(_k_scale(b, run // 2))


def _k_offset(b: Block, run: int) -> Value:
    return -b.half(2) * b.number(_k_minimum(b, run // 2))


def _two_bits(at: int) -> Callable[[Block, int, Value], Value]:
    def quant(b: Block, run: int, lane: Value) -> Value:
        half, pair = run // 8, run % 8 // 2
        return b.byte(lane + (at + 32 * half + 16 * (run % 2))) // 4 ** pair % 4

    return quant


def _q3_k(b: Block, run: int, lane: Value) -> Value:
    bit = 4 * (run // 8) + run % 8 // 2
    high = b.byte(lane + 16 * (run % 2)) // 2 ** bit % 2
    return _two_bits(32)(b, run, lane) + high * 4 - 4


def _q3_k_scale(b: Block, run: int) -> Value:
    low = b.byte(96 + run % 8) // 16 ** (run // 8) % 16
    return b.half(108) * b.number(low + b.byte(104 + run % 4) // 4 ** (run // 4) % 4 * 16 - 32)


def _q6_k(b: Block, run: int, lane: Value) -> Value:
    half, quarter, end = run // 8, run % 8 // 2, 16 * (run % 2)
    low = b.byte(lane + (64 * half + 32 * (quarter % 2) + end)) // 16 ** (quarter // 2) % 16
    return low + b.byte(lane + (128 + 32 * half + end)) // 4 ** quarter % 4 * 16 - 32


# The levels of IQ4_NL: those of a normal distribution.
_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

FORMATS: dict[str, BlockFormat] = {made.name: made for made in (
    BlockFormat("q8_0", 32, 34, lambda b, run, lane: b.signed(lane + (2 + 16 * run)),
                _first_scale),
    BlockFormat("q4_0", 32, 18, _nibble(2), _first_scale, _middle(8)),
    BlockFormat("q4_1", 32, 20, _nibble(4), _first_scale, _second_half),
    BlockFormat("q5_0", 32, 22, lambda b, run, lane: _nibble(6)(b, run, lane)
                + _fifth_bit(b, 2, run, lane), _first_scale, _middle(16)),
    BlockFormat("q5_1", 32, 24, lambda b, run, lane: _nibble(8)(b, run, lane)
                + _fifth_bit(b, 4, run, lane), _first_scale, _second_half),
    BlockFormat("q2_k", 256, 84, _two_bits(16),
                lambda b, run: b.half(80) * b.number(b.byte(run) % 16),
                lambda b, run: -b.half(82) * b.number(b.byte(run) // 16)),
    BlockFormat("q3_k", 256, 110, _q3_k, _q3_k_scale),
    BlockFormat("q4_k", 256, 144, _k_nibble(16), _k_scaled, _k_offset),
    BlockFormat("q5_k", 256, 176, _q5_k, _k_scaled, _k_offset),
    BlockFormat("q6_k", 256, 210, _q6_k,
                lambda b, run: b.half(208) * b.number(b.signed(192 + run))),
    BlockFormat("iq4_nl", 32, 18, lambda b, run, lane: b.lookup(_LEVELS, _nibble(2)(b, run, lane)),
                _first_scale),
)}
