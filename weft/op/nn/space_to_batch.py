"""Space-to-batch and batch-to-space, over any number of spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, OpPattern, TensorType, attr, define_op, linear, op_case
from weft.ir.shape import dim_add, dim_floordiv, dim_mul, may_be_multiple
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import attrs_of
from weft.op.nn.conv import positive
from weft.op.relations import multiples_help
from weft.support.dataclass import dataclass
from weft.topi.nn import space as topi_space

Pairs = Sequence[tuple[int, int]]


def _pairs_attr(doc: str) -> Any:
    return attr(doc=doc, check=lambda pairs: all(n >= 0 for pair in pairs for n in pair),
                expected="pairs of numbers >= 0")


def _block_attr() -> Any:
    return attr(doc="sizes of a block along axes 1, 2, ..", check=positive,
                expected="numbers >= 1")


@dataclass(frozen=True, kw_only=True)
class SpaceToBatchNDAttrs(Attrs):
    block_shape: tuple[int, ...] = _block_attr()
    paddings: tuple[tuple[int, int], ...] = _pairs_attr("padding before and after each axis of "
                                                        "the block")
    pad_value: float = attr(0.0, "value of the padding")


@dataclass(frozen=True, kw_only=True)
class BatchToSpaceNDAttrs(Attrs):
    block_shape: tuple[int, ...] = _block_attr()
    crops: tuple[tuple[int, int], ...] = _pairs_attr("elements cropped from each axis of the block")


def _expect_block(
    ctx: RelationContext, source: TensorType, block: Sequence[int], pairs: Pairs, name: str
) -> None:
    ctx.expect_min_rank(0, source, 1 + len(block))
    if len(pairs) != len(block):
        ctx.fail(f"{name} and block_shape differ in length", expected=f"{len(block)} pairs",
                 got=f"{len(pairs)} pairs")


def _to_batch_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(SpaceToBatchNDAttrs)
    _expect_block(ctx, source, attrs.block_shape, attrs.paddings, "paddings")
    shape = list(source.shape)
    shape[0] = dim_mul(shape[0], math.prod(attrs.block_shape))
    for i, (block, (before, after)) in enumerate(zip(attrs.block_shape, attrs.paddings,
                                                     strict=True)):
        padded = dim_add(shape[1 + i], before + after)
        if not may_be_multiple(padded, block):
            ctx.fail("the padded size is not divisible into blocks", arg=0, axis=1 + i,
                     expected=f"a size divisible by {block}", got=padded,
                     help=multiples_help(padded, block))
        shape[1 + i] = dim_floordiv(padded, block)
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def _to_space_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(BatchToSpaceNDAttrs)
    _expect_block(ctx, source, attrs.block_shape, attrs.crops, "crops")
    shape = list(source.shape)
    blocks = math.prod(attrs.block_shape)
    if isinstance(shape[0], int) and shape[0] % blocks:
        ctx.fail("the batch is not divisible into blocks", arg=0, axis=0,
                 expected=f"a number divisible by {blocks}", got=shape[0])
    shape[0] = dim_floordiv(shape[0], blocks)
    for i, (block, (first, last)) in enumerate(zip(attrs.block_shape, attrs.crops, strict=True)):
        size = dim_add(dim_mul(shape[1 + i], block), -first - last)
        if isinstance(size, int) and size < 0:
            ctx.fail("the crops exceed the axis", arg=0, axis=1 + i,
                     expected=f"at most {size + first + last}", got=first + last)
        shape[1 + i] = size
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


@define_op("nn.space_to_batch_nd", attrs=SpaceToBatchNDAttrs, relation=_to_batch_relation,
           pattern=OpPattern.INJECTIVE, level=5)
def space_to_batch_nd(x: te.Tensor, attrs: SpaceToBatchNDAttrs) -> te.Tensor:
    """The padded data with the elements of every block of axes 1, 2, .. moved to the batch.

    The batch index of the result is (position in the block, original batch index).
    """
    return topi_space.space_to_batch(x, attrs.block_shape, attrs.paddings, attrs.pad_value)


@define_op("nn.batch_to_space_nd", attrs=BatchToSpaceNDAttrs, relation=_to_space_relation,
           pattern=OpPattern.INJECTIVE, level=5, traits=linear())
def batch_to_space_nd(x: te.Tensor, attrs: BatchToSpaceNDAttrs) -> te.Tensor:
    """The batch moved back to blocks of axes 1, 2, .. and cropped: undoes space_to_batch_nd."""
    return topi_space.batch_to_space(x, attrs.block_shape, attrs.crops)


def _to_batch_reference(
    x: np.ndarray, block_shape: Sequence[int], paddings: Pairs, pad_value: float = 0.0
) -> np.ndarray:
    rank = len(block_shape)
    rest = x.shape[1 + rank:]
    x = np.pad(x, ((0, 0), *paddings, *((0, 0),) * len(rest)), constant_values=pad_value)
    sizes = [s // b for s, b in zip(x.shape[1:], block_shape, strict=False)]
    split = x.reshape(len(x), *(n for pair in zip(sizes, block_shape, strict=True) for n in pair),
                      *rest)
    positions = [2 + 2 * i for i in range(rank)]
    order = [*positions, 0, *(p - 1 for p in positions), *range(1 + 2 * rank, split.ndim)]
    return np.ascontiguousarray(split.transpose(order)).reshape(
        len(x) * math.prod(block_shape), *sizes, *rest)


def _to_space_reference(x: np.ndarray, block_shape: Sequence[int], crops: Pairs) -> np.ndarray:
    rank = len(block_shape)
    batch = len(x) // math.prod(block_shape)
    split = x.reshape(*block_shape, batch, *x.shape[1:])
    order = [rank, *(axis for i in range(rank) for axis in (rank + 1 + i, i)),
             *range(1 + 2 * rank, split.ndim)]
    sizes = [s * b for s, b in zip(x.shape[1:], block_shape, strict=False)]
    whole = split.transpose(order).reshape(batch, *sizes, *x.shape[1 + rank:])
    cut = tuple(slice(first, size - last) for size, (first, last) in zip(sizes, crops, strict=True))
    return np.ascontiguousarray(whole[(slice(None), *cut)])


@space_to_batch_nd.gradient
def _to_batch_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, SpaceToBatchNDAttrs)
    return [batch_to_space_nd(dy, block_shape=attrs.block_shape, crops=attrs.paddings)]


@batch_to_space_nd.gradient
def _to_space_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, BatchToSpaceNDAttrs)
    return [space_to_batch_nd(dy, block_shape=attrs.block_shape, paddings=attrs.crops)]


space_to_batch_nd.spec(
    _to_batch_reference,
    op_case((2, 4, 6, 3), block_shape=(2, 3), paddings=((0, 0), (0, 0))),
    op_case((1, 3, 5), block_shape=(2,), paddings=((1, 2),), pad_value=0.5),
    op_case((2, 2, 3, 2, 2), block_shape=(1, 2, 2), paddings=((0, 0), (1, 0), (2, 0))),
)
batch_to_space_nd.spec(
    _to_space_reference,
    op_case((12, 2, 2, 3), block_shape=(2, 3), crops=((0, 0), (0, 0))),
    op_case((2, 3, 5), block_shape=(2,), crops=((1, 2),)),
    op_case((4, 2, 2), block_shape=(2, 2), crops=((0, 1), (1, 0)), dtypes="int32", low=-9, high=9),
)
