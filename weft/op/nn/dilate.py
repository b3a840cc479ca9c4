"""Dilation and mirror padding: dilate, mirror_pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, linear, one_of
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, dim_add, dim_mul, may_be_at_least
from weft.op.batching import with_attrs
from weft.op.gradients import attrs_of, tensor_type
from weft.op.nn.conv import positive
from weft.op.nn.pad import join_mirrored
from weft.op.relations import range_help
from weft.op.transform.slice import TO_THE_END
from weft.support.dataclass import dataclass
from weft.topi.nn import space as topi_space


@dataclass(frozen=True, kw_only=True)
class DilateAttrs(Attrs):
    strides: tuple[int, ...] = attr(doc="distance of neighbours along each axis", check=positive,
                                    expected="numbers >= 1")
    dilation_value: float = attr(0.0, "value between the elements")


def _dilate_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    strides = ctx.attrs_as(DilateAttrs).strides
    if len(strides) != source.ndim:
        ctx.fail("wrong number of strides", arg=0, expected=f"{source.ndim} numbers",
                 got=f"{len(strides)} numbers")
    shape = list(source.shape)
    for axis, (size, stride) in enumerate(zip(source.shape, strides, strict=True)):
        if size == 0 and stride > 1:
            ctx.fail("cannot dilate an empty axis", arg=0, axis=axis,
                     expected="a size of 1 or more", got=0)
        if stride > 1:
            shape[axis] = dim_add(dim_mul(dim_add(size, -1), stride), 1)
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


@define_op("nn.dilate", attrs=DilateAttrs, relation=_dilate_relation, pattern=OpPattern.INJECTIVE,
           level=10)
def dilate(x: te.Tensor, attrs: DilateAttrs) -> te.Tensor:
    """``x`` with its elements ``strides`` apart."""
    return topi_space.dilate(x, attrs.strides, attrs.dilation_value)


def _dilate_reference(
    x: np.ndarray, strides: Sequence[int], dilation_value: float = 0.0
) -> np.ndarray:
    shape = [(n - 1) * s + 1 if s > 1 else n for n, s in zip(x.shape, strides, strict=True)]
    result = np.full(shape, dilation_value, x.dtype)
    result[tuple(slice(None, None, s) for s in strides)] = x
    return result


@dilate.gradient
def _dilate_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    strides = attrs_of(call, DilateAttrs).strides
    # The last element may be missing from an empty tensor, so symbolic sizes are not bounds.
    ends = tuple(d if isinstance(d, int) else TO_THE_END for d in tensor_type(call).shape)
    return [get_op("strided_slice")(dy, begin=(0,) * len(ends), end=ends, strides=strides)]


dilate.spec(_dilate_reference, op_case((3, 4), strides=(2, 3)),
            op_case((2, 3, 2), strides=(1, 1, 4),
            dilation_value=0.5), op_case((4,), strides=(1,)), op_case((0, 2), strides=(1, 2)))


@dataclass(frozen=True, kw_only=True)
class MirrorPadAttrs(Attrs):
    pad_width: tuple[tuple[int, int], ...] = attr(
        doc="elements before and after, for each axis",
        check=lambda w: all(n >= 0 for pair in w for n in pair), expected="pairs of numbers >= 0",
    )
    mode: str = attr("SYMMETRIC", "whether the outermost elements are repeated (SYMMETRIC)",
                     check=one_of("SYMMETRIC", "REFLECT"), expected='"SYMMETRIC" or "REFLECT"')


def _mirror_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(MirrorPadAttrs)
    if len(attrs.pad_width) != source.ndim:
        ctx.fail("wrong length of pad_width", arg=0, expected=f"{source.ndim} pairs",
                 got=f"{len(attrs.pad_width)} pairs")
    shape = list(source.shape)
    for axis, (size, (before, after)) in enumerate(zip(source.shape, attrs.pad_width,
                                                       strict=True)):
        most = max(before, after)
        needed = most + (attrs.mode == "REFLECT") if most else 0
        if needed and not may_be_at_least(size, needed):
            ctx.fail(f"too few elements for mode {attrs.mode}", arg=0, axis=axis,
                     expected=f"a size of {needed} or more", got=size,
                     help=range_help(size, needed))
        shape[axis] = dim_add(size, before + after)
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


@define_op("nn.mirror_pad", attrs=MirrorPadAttrs, relation=_mirror_relation,
           pattern=OpPattern.INJECTIVE, level=2, traits=linear())
def mirror_pad(x: te.Tensor, attrs: MirrorPadAttrs) -> te.Tensor:
    """``x`` padded with its mirror images."""
    return topi_space.mirror_pad(x, attrs.pad_width, repeats_edge=attrs.mode == "SYMMETRIC")


def _mirror_reference(
    x: np.ndarray, pad_width: Sequence[tuple[int, int]], mode: str = "SYMMETRIC"
) -> np.ndarray:
    return np.pad(x, pad_width, mode=mode.lower())  # pyrefly: ignore


@mirror_pad.expansion
def _mirror_by_slices(call: Call) -> Expr | None:
    """Reversed slices concatenated to the ends, axis by axis."""
    attrs: Any = call.attrs
    x, shape = call.args[0], tensor_type(call.args[0]).shape
    for axis, (size, pair) in enumerate(zip(shape, attrs.pad_width, strict=True)):
        if not isinstance(size, int):
            return None
        if any(pair):
            x = join_mirrored(x, axis, size, pair, repeats_edge=attrs.mode == "SYMMETRIC")
    return x


mirror_pad.spec(
    _mirror_reference,
    op_case((3, 4), pad_width=((1, 2), (4, 0))),
    op_case((3, 4), pad_width=((2, 1), (0, 3)), mode="REFLECT"),
    op_case((2, 3), pad_width=((0, 0), (0, 0))),
    op_case((5,), pad_width=((5, 5),), dtypes="int32", low=-9, high=9),
)


@dilate.batching
def _dilate_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    return with_attrs(call, args, strides=(1, *attrs_of(call, DilateAttrs).strides))
