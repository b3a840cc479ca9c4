"""Random numbers by distribution: uniform, normal, randint, bernoulli, multinomial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Call, DType, Expr, KnownDim, TensorType, TupleGetItem, TupleType, bool_, int64
from weft.ir.attrs import Attrs, attr, size_from, sizes_from
from weft.ir.op import Case, Op, OpPattern, define_op, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import typed_zeros
from weft.op.random.batched import bernoulli_each, normal_each, randint_each, uniform_each
from weft.op.random.threefry import (
    CASE_KEY,
    KEY_TYPE,
    NEXT,
    blocks,
    derived,
    expect_key,
    wide_words,
    words,
)
from weft.support.dataclass import dataclass
from weft.topi import random as topi
from weft.topi.sizes import as_size, as_sizes

_SHAPE_CHECK = "sizes >= 0"


@dataclass(frozen=True, kw_only=True)
class NormalAttrs(Attrs):
    """For distributions with two parameters, whose dtype is also that of the result."""

    out_shape: tuple[KnownDim, ...] = attr(doc="sizes of the result", expected=_SHAPE_CHECK,
                                      check=sizes_from(0))


def unit(key: np.ndarray, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers in [0, 1), computed with NumPy."""
    digits = {8: 53, 4: 24, 2: 11 if dtype == np.float16 else 8}[dtype.itemsize]
    count = math.prod(shape)
    drawn, size = (wide_words(key, count), 64) if digits == 53 else (words(key, (count,)), 32)
    kept = drawn >> drawn.dtype.type(size - digits)
    return (kept.astype(np.float64) * 2.0**-digits).astype(dtype).reshape(shape)


def _two_parameters(
    name: str, draw: Callable[..., te.Tensor], reference: Callable[..., np.ndarray],
    inputs: tuple[str, str], *, doc: str, cases: Sequence[Case],
) -> Op:
    """``(key, scalar, scalar) -> (next key, numbers)``, in the dtype of the scalars."""

    def relation(ctx: RelationContext) -> bool:
        expect_key(ctx)
        types = ctx.tensors_known(3)
        if types is None:
            return False
        for arg in (1, 2):
            ctx.expect_rank(arg, types[arg], 0)
            ctx.expect_float(arg, types[arg])
            ctx.expect_same_dtype(arg, types[arg], types[1].dtype)
        shape = ctx.attrs_as(NormalAttrs).out_shape
        ctx.output(TupleType((KEY_TYPE, TensorType(shape, types[1].dtype))))
        return True

    def run(key: te.Tensor, first: te.Tensor, second: te.Tensor, attrs: NormalAttrs) -> Any:
        return topi.derived_key(key, NEXT), draw(key, first, second, as_sizes(attrs.out_shape))

    def whole(key: np.ndarray, first: Any, second: Any, out_shape: Sequence[int]) -> Any:
        return derived(key, NEXT), reference(key, first, second, tuple(out_shape))

    run.__doc__ = doc
    op = define_op(name, attrs=NormalAttrs, relation=relation, pattern=OpPattern.OPAQUE, level=10,
                   inputs=("key", *inputs), results=2)(run)
    op.spec(whole, *cases)
    return op


def _uniform_reference(
    key: np.ndarray, low: np.ndarray, high: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    return np.asarray(low + (high - low) * unit(key, shape, low.dtype))


def _normal_reference(
    key: np.ndarray, mean: np.ndarray, scale: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    count = math.prod(shape)
    if mean.dtype == np.float64:
        first, second = wide_words(key, 2 * count).reshape(count, 2).T
    else:
        first, second = blocks(key, np.arange(count), topi.DRAW).T
    size = first.dtype.itemsize * 8
    radius = np.sqrt(-2.0 * np.log((first.astype(np.float64) + 0.5) * 2.0**-size))
    angle = second.astype(np.float64) * 2.0**-size * 2.0 * np.pi
    drawn = (radius * np.cos(angle)).astype(mean.dtype).reshape(shape)
    return np.asarray(mean + scale * drawn)


_SCALARS = (np.float32(-1.0), np.float32(3.0))
_PARAMETER_CASES = (
    op_case(CASE_KEY, *_SCALARS, out_shape=(7,)), op_case(CASE_KEY, *_SCALARS, out_shape=(2, 3)),
    op_case(CASE_KEY, np.float64(0), np.float64(2), out_shape=(3,)),
    op_case(CASE_KEY, *_SCALARS, out_shape=()), op_case(CASE_KEY, *_SCALARS, out_shape=(0,)),
)
uniform = _two_parameters(
    "random.uniform", topi.uniform, _uniform_reference, ("low", "high"),
    doc="The next key, and numbers uniformly distributed between low and high.",
    cases=(*_PARAMETER_CASES, op_case(CASE_KEY, np.float16(0), np.float16(1), out_shape=(5,))))


@uniform.gradient
def _uniform_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The derivatives of ``low + share * (high - low)``."""
    key, low, high = call.args
    numbers, arriving = TupleGetItem(y, 1), TupleGetItem(dy, 1)
    share = op.divide(op.subtract(numbers, low), op.subtract(high, low))
    to_high = op.multiply(arriving, share)
    return [typed_zeros(key), op.sum(op.subtract(arriving, to_high)), op.sum(to_high)]


normal = _two_parameters(
    "random.normal", topi.normal, _normal_reference, ("mean", "scale"),
    doc="The next key, and normally distributed numbers; scale is the standard deviation.",
    cases=_PARAMETER_CASES)


@normal.gradient
def _normal_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The derivatives of ``mean + scale * standard normal`` (reparametrization trick)."""
    key, mean, scale = call.args
    numbers, arriving = TupleGetItem(y, 1), TupleGetItem(dy, 1)
    standard = op.divide(op.subtract(numbers, mean), scale)
    return [typed_zeros(key), op.sum(arriving), op.sum(op.multiply(arriving, standard))]


@dataclass(frozen=True, kw_only=True)
class RandintAttrs(NormalAttrs):
    start: int = attr(0, "smallest number")
    stop: int = attr(doc="exclusive bound, at most 2**32 above start",
                     expected="an int")
    dtype: DType = attr(int64, "dtype of the numbers",
                        check=lambda d: DType.of(d).is_int, expected="an integer dtype")


def _randint_relation(ctx: RelationContext) -> bool:
    expect_key(ctx)
    attrs = ctx.attrs_as(RandintAttrs)
    if not 0 < attrs.stop - attrs.start <= 2**32:
        ctx.fail("invalid range",
                 expected="1 to 2**32 numbers from start on", got=f"{attrs.start} to {attrs.stop}")
    ctx.output(TupleType((KEY_TYPE, TensorType(attrs.out_shape, attrs.dtype))))
    return True


@define_op("random.randint", attrs=RandintAttrs, relation=_randint_relation,
           pattern=OpPattern.OPAQUE, level=10, results=2)
def randint(key: te.Tensor, attrs: RandintAttrs) -> tuple[te.Tensor, ...]:
    """The next key, and integers from start (inclusive) to stop (exclusive)."""
    drawn = topi.randint(key, as_sizes(attrs.out_shape), attrs.start, attrs.stop, attrs.dtype)
    return topi.derived_key(key, NEXT), drawn


def _randint_reference(
    key: np.ndarray, out_shape: Sequence[int], stop: int, start: int = 0, dtype: DType = int64
) -> tuple[np.ndarray, ...]:
    product = words(key, tuple(out_shape)).astype(np.uint64) * np.uint64(stop - start)
    drawn = (product >> np.uint64(32)).astype(np.int64) + start
    return derived(key, NEXT), np.asarray(drawn).astype(DType.of(dtype).numpy)


randint.spec(_randint_reference, op_case(CASE_KEY, out_shape=(9,), start=-3, stop=4),
             op_case(CASE_KEY, out_shape=(2, 2), stop=2**32),
             op_case(CASE_KEY, out_shape=(), stop=1),
             op_case(CASE_KEY, out_shape=(3,), stop=100, dtype="int8"))


def _bernoulli_relation(ctx: RelationContext) -> bool:
    expect_key(ctx)
    p = ctx.tensor(1)
    if p is None:
        return False
    ctx.expect_float(1, p)
    ctx.output(TupleType((KEY_TYPE, TensorType(p.shape, bool_))))
    return True


@define_op("random.bernoulli", relation=_bernoulli_relation, pattern=OpPattern.OPAQUE, level=10,
           inputs=("key", "p"), results=2)
def bernoulli(key: te.Tensor, p: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """The next key, and booleans that are true with the probabilities p, elementwise."""
    return topi.derived_key(key, NEXT), topi.bernoulli(key, p)


bernoulli.spec(lambda key, p: (derived(key, NEXT), np.asarray(unit(key, p.shape, p.dtype) < p)),
               op_case(CASE_KEY, np.linspace(0, 1, 9, dtype=np.float32).reshape(3, 3)),
               op_case(CASE_KEY, np.float32(0.5)), op_case(CASE_KEY, np.zeros((0, 2), np.float32)))


@dataclass(frozen=True, kw_only=True)
class MultinomialAttrs(Attrs):
    num_samples: KnownDim = attr(doc="how many indices are drawn for each line",
                                 expected="0 or more", check=size_from(0))


def _multinomial_relation(ctx: RelationContext) -> bool:
    expect_key(ctx)
    weights = ctx.tensor(1)
    if weights is None:
        return False
    ctx.expect_float(1, weights)
    ctx.expect_min_rank(1, weights, 1)
    if weights.shape[-1] == 0:
        ctx.fail("no weights to choose from", arg=1, axis=weights.ndim - 1,
                 expected="a size of 1 or more", got=0)
    shape = (*weights.shape[:-1], ctx.attrs_as(MultinomialAttrs).num_samples)
    ctx.output(TupleType((KEY_TYPE, TensorType(shape, int64))))
    return True


@define_op("random.multinomial", attrs=MultinomialAttrs, relation=_multinomial_relation,
           pattern=OpPattern.OPAQUE, level=10, results=2)
def multinomial(
    key: te.Tensor, weights: te.Tensor, attrs: MultinomialAttrs
) -> tuple[te.Tensor, ...]:
    """The next key, and indices of the last axis drawn with probabilities given by weights.

    Drawn with replacement; the weights are nonnegative and need not add up to 1.
    """
    drawn = topi.multinomial(key, weights, as_size(attrs.num_samples))
    return topi.derived_key(key, NEXT), drawn


def _multinomial_reference(
    key: np.ndarray, weights: np.ndarray, num_samples: int
) -> tuple[np.ndarray, ...]:
    sums = np.cumsum(weights, -1, dtype=weights.dtype)
    shape = (*weights.shape[:-1], num_samples)
    drawn = unit(key, shape, weights.dtype) * sums[..., -1:]
    found = (sums[..., None, :-1] <= drawn[..., None]).sum(-1)
    return derived(key, NEXT), np.asarray(found).astype(np.int64).reshape(shape)


_WEIGHTS = np.array([[1, 0, 2, 1], [0, 0, 0, 3]], np.float32)
multinomial.spec(_multinomial_reference, op_case(CASE_KEY, _WEIGHTS, num_samples=6),
                 op_case(CASE_KEY, _WEIGHTS[0], num_samples=3),
                 op_case(CASE_KEY, _WEIGHTS, num_samples=0),
                 op_case(CASE_KEY, np.ones((2, 3, 1), np.float64), num_samples=2))
uniform.batching(uniform_each)
normal.batching(normal_each)
randint.batching(randint_each)
bernoulli.batching(bernoulli_each)
