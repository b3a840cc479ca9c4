"""The formats of weights quantised in blocks: GGUF's, one formula each, and those in groups."""

from __future__ import annotations

from collections.abc import Callable

from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean
from weft.topi.nn.block_core import RUN, Block, BlockFormat, Value
from weft.topi.nn.block_family import CODES, GROUPS, grouped_format

__all__ = ["FORMATS", "NAMES", "RUN", "Block", "BlockFormat", "Value", "block_format",
           "find_block_format"]


def find_block_format(name: str) -> BlockFormat | None:
    return FORMATS.get(name) or grouped_format(name)


def block_format(name: str) -> BlockFormat:
    """The format of that name, GGUF's or one in groups; ``OptionError`` if there is none."""
    found = find_block_format(name)
    if found is None:
        known = [*FORMATS, *(f"{codes}_g{size}" for codes in CODES for size in GROUPS)]
        raise OptionError(f"unknown block format {name!r}", expected=NAMES, got=name,
                          help=did_you_mean(name, known))
    return found


def _nibble(at: int) -> Callable[[Block, int, Value], Value]:
    """Run 0 is in the low halves of 16 bytes, run 1 in the high ones."""
    return lambda b, run, lane: b.byte(lane + at) // 16 ** run % 16


def _fifth_bit(b: Block, at: int, run: int, lane: Value) -> Value:
    """A bit of 32 in four bytes, as 16 or 0."""
    return b.bit(at + 2 * run, lane) * 16


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
IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

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
    BlockFormat("iq4_nl", 32, 18,
                lambda b, run, lane: b.lookup(IQ4_LEVELS, _nibble(2)(b, run, lane)), _first_scale),
)}

NAMES = (f"{', '.join(FORMATS)}, or in groups {{int4|int8|nf4|fp8_e4m3|fp8_e5m2}}_g"
         f"{{{'|'.join(map(str, GROUPS))}}}[_f32], with [_z] after int4 and int8")
