"""Counter-based random numbers: Threefry, and distributions built on its bits.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as
1, 2, 3", SC 2011) maps a key and a counter, two words of 32 bits each, to two words that look
random. Element ``i`` of a result depends on the key and ``i`` alone, so results are the same on
any number of threads. The second word of the counter says what the bits are for: drawing numbers
or deriving keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.ir.dtype import DType, float32, float64, int64
from weft.tir.expr import PrimExpr, as_prim, const, minimum, select
from weft.tir.row_major import Dims, ravel
from weft.topi.locate import searchsorted
from weft.topi.scan import scan

uint32, uint64 = DType.of("uint32"), DType.of("uint64")
DRAW, DERIVE = 0, 1
# Numbers of derived keys: the two of a split, and the next key after drawing numbers.
LEFT, RIGHT, NEXT = 0, 1, 2
# Rotations of Threefry-2x32, and the parity of its key schedule, from the paper's tables.
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20
WordPair = tuple[PrimExpr, PrimExpr]


def threefry(key: WordPair, counter: WordPair) -> WordPair:
    """The two random words for a key and a counter."""
    schedule = (*key, te.bitwise_xor(te.bitwise_xor(*key), const(PARITY, uint32)))
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for number in range(ROUNDS):
        x = x + y
        y = te.bitwise_xor(_rotated(y, ROTATIONS[number % 8]), x)
        # The key is injected after every four rounds, with the number of the injection.
        if number % 4 == 3:
            n = number // 4 + 1
            x = x + schedule[n % 3]
            y = y + schedule[(n + 1) % 3] + const(n, uint32)
    return x, y


def _rotated(word: PrimExpr, bits: int) -> PrimExpr:
    left = te.shift_left(word, const(bits, uint32))
    return te.bitwise_or(left, te.shift_right(word, const(32 - bits, uint32)))


def derived_key(key: te.Tensor, number: int) -> te.Tensor:
    """Key number ``number`` derived from ``key``."""
    words = threefry(_word_pair(key), (const(number, uint32), const(DERIVE, uint32)))
    return te.compute((2,), lambda i: select(i.equal(0), words[0], words[1]), name="key")


def _word_pair(key: te.Tensor) -> WordPair:
    return key[const(0)], key[const(1)]


def _drawn(key: te.Tensor, position: PrimExpr) -> WordPair:
    """Block ``position`` of the stream of a key."""
    return threefry(_word_pair(key), (position.astype(uint32), const(DRAW, uint32)))


def word(key: te.Tensor, position: PrimExpr) -> PrimExpr:
    """Word ``position`` of the stream: 32 bits."""
    first, second = _drawn(key, position // 2)
    return select((position % 2).equal(0), first, second)


def wide_word(key: te.Tensor, position: PrimExpr) -> PrimExpr:
    """Block ``position`` of the stream as 64 bits, least significant word first."""
    low, high = _drawn(key, position)
    return te.bitwise_or(low.astype(uint64), te.shift_left(high.astype(uint64), const(32, uint64)))


def bits(key: te.Tensor, shape: Dims, dtype: DType) -> te.Tensor:
    """Random bits, uint32 or uint64."""
    draw = word if dtype == uint32 else wide_word
    return te.compute(shape, lambda *i: draw(key, ravel(i, shape)), name="bits")


def _unit(key: te.Tensor, position: PrimExpr, dtype: DType) -> PrimExpr:
    """A number in [0, 1): as many of the highest bits as a float of ``dtype`` holds, scaled."""
    # The bits of a significand: the conversion is exact, so that no number rounds up to 1.
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[str(dtype)]
    kind = float64 if dtype == float64 else float32
    drawn, size = (wide_word, 64) if dtype == float64 else (word, 32)
    number = drawn(key, position)
    kept = te.shift_right(number, const(size - digits, number.dtype))
    return (kept.astype(int64).astype(kind) * const(2.0**-digits, kind)).astype(dtype)


def uniform(key: te.Tensor, low: te.Tensor, high: te.Tensor, shape: Dims) -> te.Tensor:
    """``low + (high - low) * u`` for u in [0, 1)."""
    return te.compute(
        shape,
        lambda *i: low[()] + (high[()] - low[()]) * _unit(key, ravel(i, shape), low.dtype),
        name="uniform",
    )


def normal(key: te.Tensor, mean: te.Tensor, scale: te.Tensor, shape: Dims) -> te.Tensor:
    """Normal numbers by Box and Muller: radius from one 32-bit word, angle from the other.

    Float64 uses 64-bit words. 16-bit floats are rounded from float32.
    """
    dtype = mean.dtype
    kind = float64 if dtype == float64 else float32

    def element(*i: PrimExpr) -> PrimExpr:
        position = ravel(i, shape)
        if kind == float64:
            first, second = wide_word(key, position * 2), wide_word(key, position * 2 + 1)
        else:
            first, second = _drawn(key, position)
        # The middle of the interval of each word: never zero, so that the logarithm is finite.
        radius = te.sqrt(te.log(_fraction(first, kind, 0.5)) * const(-2.0, kind))
        angle = _fraction(second, kind, 0.0) * const(2.0 * math.pi, kind)
        return mean[()] + scale[()] * (radius * te.cos(angle)).astype(dtype)

    return te.compute(shape, element, name="normal")


def _fraction(number: PrimExpr, kind: DType, offset: float) -> PrimExpr:
    """A word as a number in [0, 1], rounded to the float dtype."""
    size = number.dtype.bits
    # Converted as signed integers, which hold a word without its lowest bit.
    half = te.shift_right(number, const(1, number.dtype)).astype(int64).astype(kind)
    last = te.bitwise_and(number, const(1, number.dtype)).astype(int64).astype(kind)
    value = half * const(2.0, kind) + last + const(offset, kind)
    return value * const(2.0**-size, kind)


def randint(key: te.Tensor, shape: Dims, low: int, high: int, dtype: DType) -> te.Tensor:
    """Integers in [low, high): the high half of word times width, biased below width / 2**32."""
    width = const(high - low, uint64)

    def element(*i: PrimExpr) -> PrimExpr:
        # Lemire, "Fast random integer generation in an interval", 2019, without its rejections:
        # each element takes one word.
        product = word(key, ravel(i, shape)).astype(uint64) * width
        offset = te.shift_right(product, const(32, uint64)).astype(int64)
        return (offset + const(low, int64)).astype(dtype)

    return te.compute(shape, element, name="randint")


def bernoulli(key: te.Tensor, p: te.Tensor) -> te.Tensor:
    """True with probability ``p``, element by element."""
    return te.compute(
        p.shape, lambda *i: _unit(key, ravel(i, p.shape), p.dtype) < p[i],
        name="bernoulli",
    )


def dropout(
    key: te.Tensor, x: te.Tensor, rate: float, factor: float
) -> tuple[te.Tensor, te.Tensor]:
    """``x * factor`` where the mask is true, else 0; the mask is true with probability 1 - rate."""
    mask = te.compute(
        x.shape,
        lambda *i: _unit(key, ravel(i, x.shape), float32) >= const(rate, float32),
        name="mask",
    )
    kept = te.compute(
        x.shape,
        lambda *i: select(mask[i], x[i] * const(factor, x.dtype), const(0, x.dtype)),
        name="dropout",
    )
    return kept, mask


def multinomial(key: te.Tensor, weights: te.Tensor, count: PrimExpr | int) -> te.Tensor:
    """Indices along the last axis drawn with replacement, with probabilities by their weights.

    Inverse transform sampling: the index is the number of cumulative sums that do not exceed a
    uniform number below the total.
    """
    batch: Sequence[PrimExpr] = weights.shape[:-1]
    shape = (*batch, as_prim(count))
    last = weights.shape[-1] - 1
    sums = scan(weights, weights.ndim - 1, weights.dtype, combine="add", exclusive=False,
                reverse=False)
    drawn = te.compute(
        shape,
        lambda *i: _unit(key, ravel(i, shape), weights.dtype) * sums[(*i[:-1], last)],
        name="drawn",
    )
    found = searchsorted(sums, drawn, right=True, dtype=int64)
    # The last sum exceeds every number, up to rounding.
    return te.compute(shape, lambda *i: minimum(found[i], last), name="multinomial")
