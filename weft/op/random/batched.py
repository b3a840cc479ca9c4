"""Batching rules of random operators: keys of many examples, by elementwise operators.

Each example draws what it would draw alone: the formulas are those of ``topi.random``, on tensors
with one row per key. A key that all examples share is one row, so that they all draw the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.ir import BatchingRule, Call, Constant, DType, Expr, Tuple, const, float32, float64, int64
from weft.ir.shape import Dim, dim_floordiv, dim_product
from weft.op.batching import aligned
from weft.op.gradients import known_shape, tensor_type
from weft.topi.random import (
    DERIVE,
    DRAW,
    LEFT,
    NEXT,
    PARITY,
    RIGHT,
    ROTATIONS,
    ROUNDS,
    uint32,
    uint64,
)


def _number(value: float, dtype: DType) -> Constant:
    return const(np.asarray(value, dtype.numpy))


def _rotated(word: Expr, bits: int) -> Expr:
    return op.bitwise_or(op.left_shift(word, _number(bits, uint32)),
                         op.right_shift(word, _number(32 - bits, uint32)))


def blocks(keys: Expr, counters: Expr, purpose: int) -> tuple[Expr, Expr]:
    """Threefry-2x32 of the counters (n,) for each of the keys (batch, 2): two words (batch, n)."""
    first, second = (op.strided_slice(keys, begin=(i,), end=(i + 1,), axes=(1,)) for i in (0, 1))
    parity = op.bitwise_xor(op.bitwise_xor(first, second), _number(PARITY, uint32))
    schedule = (first, second, parity)
    x, y = op.add(counters, first), op.add(_number(purpose, uint32), second)
    for number in range(ROUNDS):
        x = op.add(x, y)
        y = op.bitwise_xor(_rotated(y, ROTATIONS[number % 8]), x)
        if number % 4 == 3:
            n = number // 4 + 1
            x = op.add(x, schedule[n % 3])
            y = op.add(op.add(y, schedule[(n + 1) % 3]), _number(n, uint32))
    return x, y


def _derived(keys: Expr, number: int, size: Dim) -> Expr:
    """Key ``number`` derived from each key, for ``size`` examples."""
    counter = const(np.array([number], np.uint32))
    pair = op.concatenate(Tuple(blocks(keys, counter, DERIVE)), axis=1)
    return op.broadcast_to(pair, shape=(size, 2))


def _counters(count: Dim) -> Expr:
    return op.arange(start=0, stop=count, dtype=uint32)


def _words(keys: Expr, count: Dim) -> Expr:
    """The first words of each stream: (batch, count)."""
    pairs = dim_floordiv(count + 1, 2)
    both = op.stack(Tuple(blocks(keys, _counters(pairs), DRAW)), axis=2)
    line = op.reshape(both, newshape=(-1, pairs * 2) if count != 0 else (1, 0), allowzero=False)
    return op.strided_slice(line, begin=(0,), end=(count,), axes=(1,))


def _wide_words(keys: Expr, count: Dim) -> Expr:
    low, high = (op.cast(w, dtype=uint64) for w in blocks(keys, _counters(count), DRAW))
    return op.bitwise_or(low, op.left_shift(high, _number(32, uint64)))


def _unit(keys: Expr, count: Dim, dtype: DType) -> Expr:
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[str(dtype)]
    kind = float64 if dtype == float64 else float32
    drawn, size = (_wide_words(keys, count), 64) if dtype == float64 else (_words(keys, count), 32)
    kept = op.right_shift(drawn, _number(size - digits, uint64 if size == 64 else uint32))
    number = op.cast(op.cast(kept, dtype=int64), dtype=kind)
    return op.cast(op.multiply(number, _number(2.0**-digits, kind)), dtype=dtype)


def _fraction(word: Expr, kind: DType, offset: float) -> Expr:
    wide = uint64 if kind == float64 else uint32
    one = _number(1, wide)
    half = op.cast(op.cast(op.right_shift(word, one), dtype=int64), dtype=kind)
    last = op.cast(op.cast(op.bitwise_and(word, one), dtype=int64), dtype=kind)
    value = op.add(op.add(op.multiply(half, _number(2.0, kind)), last), _number(offset, kind))
    return op.multiply(value, _number(2.0 ** -(wide.bits), kind))


def _standard_normal(keys: Expr, count: Dim, dtype: DType) -> Expr:
    kind = float64 if dtype == float64 else float32
    if kind == float64:
        words = op.reshape(_wide_words(keys, count * 2), newshape=(-1, count, 2))
        first, second = (op.squeeze(op.strided_slice(words, begin=(i,), end=(i + 1,), axes=(2,)),
                                    axis=2) for i in (0, 1))
    else:
        first, second = blocks(keys, _counters(count), DRAW)
    radius = op.sqrt(op.multiply(op.log(_fraction(first, kind, 0.5)), _number(-2.0, kind)))
    angle = op.multiply(_fraction(second, kind, 0.0), _number(2.0 * math.pi, kind))
    return op.cast(op.multiply(radius, op.cos(angle)), dtype=dtype)


def _rows(call: Call, args: Sequence[Expr], is_batched: Sequence[bool], result: int
          ) -> tuple[Expr, Dim] | None:
    """The keys as rows and the count of numbers per key; ``None`` for none to draw."""
    type_ = call.checked_type
    shape = known_shape(op_field(call, result), call) if type_ is not None else ()
    count = dim_product(shape)
    keys = args[0] if is_batched[0] else op.expand_dims(args[0], axis=0)
    return None if count == 0 else (keys, count)


def op_field(call: Call, index: int) -> Expr:
    """Field ``index`` of the results of a typed call."""
    return call[index].with_type(call.checked_type.fields[index])  # type: ignore[union-attr]


def _shaped(x: Expr, call: Call, result: int, size: Dim) -> Expr:
    """Rows of numbers in the shape of the result, for all examples."""
    shape = known_shape(op_field(call, result), call)
    rows = op.reshape(x, newshape=(-1, *shape))
    return op.broadcast_to(rows, shape=(size, *shape))


def _parameter(x: Expr, example: Expr, rank: int, *, is_batched: bool) -> Expr:
    return aligned(x, example, rank) if is_batched else x


def _located(draw: Any, combine: Any) -> BatchingRule:
    """The rule of a distribution with two parameters: ``combine(first, second, numbers)``."""

    def rule(
        call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
    ) -> Expr | None:
        rows = _rows(call, args, is_batched, 1)
        if rows is None:
            return None
        dtype, rank = tensor_type(call.args[1]).dtype, tensor_type(op_field(call, 1)).ndim
        numbers = _shaped(draw(*rows, dtype), call, 1, size)
        parameters = [_parameter(args[i], call.args[i], rank, is_batched=is_batched[i])
                      for i in (1, 2)]
        return Tuple((_derived(rows[0], NEXT, size), combine(*parameters, numbers)))

    return rule


uniform_each = _located(_unit, lambda low, high, u: op.add(
    low, op.multiply(op.subtract(high, low), u)))
normal_each = _located(_standard_normal, lambda mean, scale, z: op.add(
    mean, op.multiply(scale, z)))


def split_each(
    _call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The two keys of each example."""
    return Tuple((_derived(args[0], LEFT, size), _derived(args[0], RIGHT, size)))


def generate_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """``random.threefry_generate`` for each example."""
    rows = _rows(call, args, is_batched, 1)
    if rows is None:
        return None
    draw = _words if tensor_type(op_field(call, 1)).dtype == uint32 else _wide_words
    return Tuple((_derived(rows[0], NEXT, size), _shaped(draw(*rows), call, 1, size)))


def randint_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """``random.randint`` for each example."""
    rows = _rows(call, args, is_batched, 1)
    if rows is None:
        return None
    attrs: Any = call.attrs
    width = _number(attrs.stop - attrs.start, uint64)
    product = op.multiply(op.cast(_words(*rows), dtype=uint64), width)
    offset = op.cast(op.right_shift(product, _number(32, uint64)), dtype=int64)
    drawn = op.cast(op.add(offset, _number(attrs.start, int64)), dtype=attrs.dtype)
    return Tuple((_derived(rows[0], NEXT, size), _shaped(drawn, call, 1, size)))


def bernoulli_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """``random.bernoulli`` for each example."""
    rows = _rows(call, args, is_batched, 1)
    if rows is None:
        return None
    numbers = _shaped(_unit(*rows, tensor_type(call.args[1]).dtype), call, 1, size)
    return Tuple((_derived(rows[0], NEXT, size), op.less(numbers, args[1])))


def dropout_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """``random.dropout`` for each example."""
    rows = _rows(call, args, is_batched, 1)
    if rows is None:
        return None
    attrs: Any = call.attrs
    dtype = tensor_type(call.args[1]).dtype
    numbers = _shaped(_unit(*rows, float32), call, 1, size)
    mask = op.greater_equal(numbers, _number(attrs.rate, float32))
    scaled = op.multiply(args[1], _number(attrs.factor, dtype))
    return Tuple((_derived(rows[0], NEXT, size), op.where(mask, scaled, _number(0, dtype)), mask))
