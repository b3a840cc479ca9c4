"""Keys and random bits: threefry_generate, threefry_split.

A key consists of two 32-bit words, ``Tensor[(2,), uint32]``. Use each key once: every random
operator returns the next key, and ``threefry_split`` makes two keys from one, for independent
parts of a program.
"""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Constant, DType, KnownDim, OpPattern, RelationContext, const, define_op, op_case
from weft.ir.attrs import Attrs, attr, one_of, sizes_from
from weft.ir.types import TensorType, TupleType
from weft.op.random.batched import generate_each, split_each
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError
from weft.topi import random as topi
from weft.topi.random import uint32, uint64
from weft.topi.sizes import as_sizes

__all__ = ["threefry_key"]

KEY_TYPE = TensorType((2,), uint32)
LEFT, RIGHT, NEXT = topi.LEFT, topi.RIGHT, topi.NEXT
CASE_KEY = np.array([0x13198A2E, 0x03707344], np.uint32)


def threefry_key(seed: int) -> Constant:
    """The key for a seed from 0 to 2**64 - 1."""
    if not 0 <= seed < 2**64:
        raise AttrsError("seed out of range", expected="0 to 2**64 - 1", got=str(seed))
    return const(np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32))


def expect_key(ctx: RelationContext) -> None:
    """Check that the first argument is a key."""
    source = ctx.tensor(0)
    if source is not None and source != KEY_TYPE:
        ctx.fail("the first argument is not a key", arg=0, expected=KEY_TYPE, got=source,
                 help="op.random.threefry_key(seed) makes one")


def blocks(key: np.ndarray, counters: np.ndarray, purpose: int) -> np.ndarray:
    """Threefry-2x32 of counters, with NumPy: two words per counter along a last axis."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(topi.PARITY))
    x = counters.astype(np.uint32) + schedule[0]
    y = np.full_like(x, purpose) + schedule[1]
    for number in range(topi.ROUNDS):
        rotation = np.uint32(topi.ROTATIONS[number % 8])
        x = x + y
        y = ((y << rotation) | (y >> (np.uint32(32) - rotation))) ^ x
        if number % 4 == 3:
            n = number // 4 + 1
            x = x + schedule[n % 3]
            y = y + schedule[(n + 1) % 3] + np.uint32(n)
    return np.stack([x, y], -1)


def derived(key: np.ndarray, number: int) -> np.ndarray:
    return blocks(key, np.array([number]), topi.DERIVE)[0]


def words(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The first 32-bit words of a key's stream."""
    count = int(np.prod(shape, dtype=np.int64))
    found = blocks(key, np.arange(-(-count // 2)), topi.DRAW)
    return found.reshape(-1)[:count].reshape(shape)


def wide_words(key: np.ndarray, count: int) -> np.ndarray:
    """The first blocks of a key's stream as 64-bit numbers."""
    found = blocks(key, np.arange(count), topi.DRAW).astype(np.uint64)
    return found[:, 0] | found[:, 1] << np.uint64(32)


@dataclass(frozen=True, kw_only=True)
class ThreefryGenerateAttrs(Attrs):
    out_shape: tuple[KnownDim, ...] = attr(doc="sizes of the result", expected="sizes >= 0",
                                      check=sizes_from(0))
    dtype: DType = attr(uint32, "dtype of the bits", check=one_of(uint32, uint64),
                        expected="uint32 or uint64")


def _generate_relation(ctx: RelationContext) -> bool:
    expect_key(ctx)
    attrs = ctx.attrs_as(ThreefryGenerateAttrs)
    ctx.output(TupleType((KEY_TYPE, TensorType(attrs.out_shape, attrs.dtype))))
    return True


@define_op("random.threefry_generate", attrs=ThreefryGenerateAttrs, relation=_generate_relation,
           pattern=OpPattern.OPAQUE, level=10, results=2)
def threefry_generate(key: te.Tensor, attrs: ThreefryGenerateAttrs) -> tuple[te.Tensor, ...]:
    """The next key, and random bits."""
    return topi.derived_key(key, NEXT), topi.bits(key, as_sizes(attrs.out_shape), attrs.dtype)


def _generate_reference(
    key: np.ndarray, out_shape: tuple[int, ...], dtype: DType = uint32
) -> tuple[np.ndarray, ...]:
    count = int(np.prod(out_shape, dtype=np.int64))
    drawn = (words(key, tuple(out_shape)) if DType.of(dtype) == uint32
             else wide_words(key, count).reshape(out_shape))
    return derived(key, NEXT), drawn


threefry_generate.spec(
    _generate_reference, op_case(CASE_KEY, out_shape=(7,)), op_case(CASE_KEY, out_shape=(2, 3)),
    op_case(CASE_KEY, out_shape=(5,), dtype="uint64"), op_case(CASE_KEY, out_shape=()),
    op_case(np.zeros(2, np.uint32), out_shape=(0, 2)),
)


def _split_relation(ctx: RelationContext) -> bool:
    expect_key(ctx)
    ctx.output(TupleType((KEY_TYPE, KEY_TYPE)))
    return True


@define_op("random.threefry_split", relation=_split_relation, pattern=OpPattern.OPAQUE, level=10,
           inputs=("key",), results=2)
def threefry_split(key: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """Two keys derived from one; their streams and its own are independent."""
    return topi.derived_key(key, LEFT), topi.derived_key(key, RIGHT)


threefry_split.spec(lambda key: (derived(key, LEFT), derived(key, RIGHT)), op_case(CASE_KEY),
                    op_case(np.zeros(2, np.uint32)))
threefry_generate.batching(generate_each)
threefry_split.batching(split_each)
