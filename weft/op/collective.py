"""Collectives: what the devices of a mesh do together in a program that each of them runs.

Such a program (``transform.sharding``) computes on the parts of tensors that one device holds. A
collective names the mesh axes along which a group of devices differs, and ``size``, how many they
are. MPI's terms apply, as do JAX's. Gradients take the view that a tensor which all devices hold
has a cotangent that all hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, normalize_axis, one_of
from weft.ir.op import Op, OpPattern, define_op, op_case
from weft.ir.shape import dim_floordiv, dim_mul, may_be_multiple
from weft.ir.traits import OpTraits, linear
from weft.op.batching import along, leading
from weft.op.broadcast import add, maximum, minimum, multiply
from weft.op.gradients import attrs_of
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir.expr import Add, Max, Min, Mul, PrimExpr
from weft.topi import elementwise

# How partial results are combined: by what operator, and what a reduction of loops does.
COMBINED_BY = {"sum": add, "max": maximum, "min": minimum, "prod": multiply}
REDUCTION_OF: dict[type[PrimExpr], str] = {Add: "sum", Max: "max", Min: "min", Mul: "prod"}
_TRAITS = OpTraits(is_annotation=True)
_SIZE = "number of devices in the group"


def _is_positive(value: int) -> bool:
    return value >= 1


@dataclass(frozen=True, kw_only=True)
class CollectiveAttrs(Attrs):
    axes: tuple[str, ...] = attr(doc="mesh axes along which the devices of a group differ")
    size: int = attr(doc=_SIZE, check=_is_positive, expected="at least 1")


@dataclass(frozen=True, kw_only=True)
class AllReduceAttrs(CollectiveAttrs):
    reduction: str = attr("sum", "how parts are combined", check=one_of(*COMBINED_BY),
                          expected=", ".join(COMBINED_BY))


@dataclass(frozen=True, kw_only=True)
class AlongAttrs(CollectiveAttrs):
    dim: int = attr(0, "dimension that is cut or joined")


@dataclass(frozen=True, kw_only=True)
class AllToAllAttrs(CollectiveAttrs):
    split: int = attr(0, "dimension of the operand that is cut")
    join: int = attr(0, "dimension along which the received parts are joined")


@dataclass(frozen=True, kw_only=True)
class PermuteAttrs(CollectiveAttrs):
    shift: int = attr(1, "device i of the group receives from device i - shift")
    wraps: bool = attr(True, "whether the group is a ring")
    fill: float = attr(0.0, "what comes from beyond the ends of a group that is no ring")


def _relation(change: Any) -> Any:
    """The relation of a collective that changes the shape by ``change(ctx, shape, attrs)``."""

    def relation(ctx: RelationContext) -> bool:
        types = ctx.tensors_known(1)
        if types is None:
            return False
        ctx.output(TensorType(change(ctx, types[0]), types[0].dtype))
        return True

    return relation


def _same(_: RelationContext, x: TensorType) -> Any:
    return x.shape


def _cut(ctx: RelationContext, x: TensorType, dim: int, size: int) -> Any:
    axis = normalize_axis(ctx, dim, x.ndim)
    length = x.shape[axis]
    if not may_be_multiple(length, size):
        ctx.fail("the devices of the group do not divide the dimension", arg=0, axis=axis,
                 expected=f"a multiple of {size}", got=length)
    return tuple(dim_floordiv(s, size) if i == axis else s for i, s in enumerate(x.shape))


def _joined(ctx: RelationContext, x: TensorType, dim: int, size: int) -> Any:
    axis = normalize_axis(ctx, dim, x.ndim)
    return tuple(dim_mul(s, size) if i == axis else s for i, s in enumerate(x.shape))


def _gathered(ctx: RelationContext, x: TensorType) -> Any:
    attrs = ctx.attrs_as(AlongAttrs)
    return _joined(ctx, x, attrs.dim, attrs.size)


def _scattered(ctx: RelationContext, x: TensorType) -> Any:
    attrs = ctx.attrs_as(AlongAttrs)
    return _cut(ctx, x, attrs.dim, attrs.size)


def _exchanged(ctx: RelationContext, x: TensorType) -> Any:
    attrs = ctx.attrs_as(AllToAllAttrs)
    cut = TensorType(_cut(ctx, x, attrs.split, attrs.size), x.dtype)
    return _joined(ctx, cut, attrs.join, attrs.size)


def _define(name: str, attrs: type[CollectiveAttrs], change: Any, doc: str,
            traits: OpTraits = linear(_TRAITS), **example: Any) -> Op:
    full = f"collective.{name}"

    def compute(x: te.Tensor, attrs: CollectiveAttrs) -> te.Tensor:
        if attrs.size > 1:
            raise LoweringError(f"{full} needs a group of {attrs.size} devices", got="one program",
                                help="compile the program with weft.shard, which brings the mesh")
        return elementwise.identity(x)

    compute.__doc__ = doc
    made = define_op(full, attrs=attrs, relation=_relation(change), pattern=OpPattern.OPAQUE,
                     level=10, inputs=("x",), traits=traits)(compute)
    made.refer(on_devices=f"weft.transform.sharding.unroll:{name}")
    made.spec(lambda x, **_: np.copy(x), op_case((4, 6), axes=("i",), size=1, **example),
              op_case((2, 0), axes=(), size=1, **example))
    return made


all_reduce = _define("all_reduce", AllReduceAttrs, _same,
                     "The sum (or maximum, minimum, product) of the operands of all devices.",
                     _TRAITS)
all_gather = _define("all_gather", AlongAttrs, _gathered,
                     "The operands of all devices of the group, joined along ``dim``.")
reduce_scatter = _define("reduce_scatter", AlongAttrs, _scattered,
                         "The device's part along ``dim`` of the sum of all operands.")
all_to_all = _define("all_to_all", AllToAllAttrs, _exchanged,
                     "Part i along ``split`` goes to device i; parts that arrive are joined "
                     "along ``join``.", join=1)
permute = _define("permute", PermuteAttrs, _same, "The operand of a neighbour in the group.")
broadcast = _define("broadcast", CollectiveAttrs, _same, "The operand of the first device.")
local_part = _define("local_part", AlongAttrs, _scattered,
                     "The device's part along ``dim`` of an operand that all devices hold.")

for _op in (all_reduce, permute, broadcast):
    _op.batching(leading)
for _op in (all_gather, reduce_scatter, local_part):
    _op.batching(along("dim"))
all_to_all.batching(along("split", "join"))


@all_reduce.gradient
def _all_reduce_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Each device's operand counts once in a sum; in a maximum where it is the result."""
    reduction = attrs_of(call, AllReduceAttrs).reduction
    if reduction == "sum":
        return [dy]
    if reduction == "prod":
        return [op.divide(op.multiply(dy, y), call.args[0])]
    return [op.where(op.equal(call.args[0], y), dy, op.zeros_like(dy))]


@all_gather.gradient
def _all_gather_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [local_part(dy, **dict(call.attrs.items()))]


@local_part.gradient
def _local_part_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [all_gather(dy, **dict(call.attrs.items()))]


@reduce_scatter.gradient
def _reduce_scatter_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [all_gather(dy, **dict(call.attrs.items()))]


@all_to_all.gradient
def _all_to_all_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, AllToAllAttrs)
    return [all_to_all(dy, axes=attrs.axes, size=attrs.size, split=attrs.join, join=attrs.split)]


@permute.gradient
def _permute_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, PermuteAttrs)
    return [permute(dy, axes=attrs.axes, size=attrs.size, shift=-attrs.shift, wraps=attrs.wraps)]


@broadcast.gradient
def _broadcast_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The first device's operand is the one that all hold."""
    del call
    return [dy]
