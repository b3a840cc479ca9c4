"""Bit casts and fixed-point arithmetic: reinterpret, fixed_point_multiply(_per_axis)."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, DType, OpPattern, RelationContext, TensorType, attr, define_op, op_case
from weft.ir.typing.relations import identity_relation, normalize_axes
from weft.op.layout_inference import keep_layout
from weft.op.relations import checked
from weft.support.dataclass import dataclass
from weft.topi import integers as topi


@dataclass(frozen=True, kw_only=True)
class ReinterpretAttrs(Attrs):
    dtype: DType = attr(doc="dtype that the bits are read as", expected="a dtype")


def _reinterpret_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    dtype = ctx.attrs_as(ReinterpretAttrs).dtype
    if dtype.bits != source.dtype.bits or dtype.bits < 8 or dtype.is_bool or source.dtype.is_bool:
        ctx.fail("the dtypes have different sizes", arg=0,
                 expected=f"a dtype of {source.dtype.bits} bits", got=dtype)
    ctx.output(TensorType(source.shape, dtype))
    return True


@define_op("reinterpret", attrs=ReinterpretAttrs, relation=_reinterpret_relation,
           pattern=OpPattern.ELEMWISE, level=3)
def reinterpret(x: te.Tensor, attrs: ReinterpretAttrs) -> te.Tensor:
    """The bits of each element, read as another dtype of the same size (a bit cast)."""
    return topi.reinterpret(x, attrs.dtype)


reinterpret.layout(keep_layout)
reinterpret.no_gradient("the bits of a number are integers")
reinterpret.spec(
    lambda x, dtype: np.asarray(x).view(DType.of(dtype).numpy).copy(),
    op_case(np.array([[1.5, -0.0], [np.inf, 3e-45]], np.float32), dtype="int32"),
    op_case((), dtypes="int32", dtype="uint32", low=-9),
    op_case((2, 3), dtypes="int64", dtype="float64", low=0, high=99),
    op_case((0,), dtypes="uint8", dtype="int8"),
)


@dataclass(frozen=True, kw_only=True)
class FixedPointMultiplyAttrs(Attrs):
    multiplier: int = attr(doc="the factor as a fraction of 2**31", expected="an int32",
                           check=lambda m: -(2**31) <= m < 2**31)
    shift: int = attr(0, "power of two by which the product is scaled in addition",
                      check=lambda s: -31 <= s <= 31, expected="-31 to 31")


def _expect_int32(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if type_.dtype != DType.of("int32"):
        ctx.fail("defined for int32 only", arg=arg, expected="int32", got=type_.dtype)


@define_op("fixed_point_multiply", attrs=FixedPointMultiplyAttrs,
           relation=checked(_expect_int32, identity_relation), pattern=OpPattern.ELEMWISE, level=10)
def fixed_point_multiply(x: te.Tensor, attrs: FixedPointMultiplyAttrs) -> te.Tensor:
    """``x * multiplier / 2**31 * 2**shift``, in 64 bits, rounded once, halves upwards."""
    return topi.fixed_point_multiply(x, attrs.multiplier, attrs.shift)


def _scaled(
    x: np.ndarray, multiplier: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """As TFLite's reference: shift left first, and round the product once, when shifting right."""
    product = (x.astype(np.int64) << left) * multiplier.astype(np.int64)
    total = right + 31
    return ((product + (np.int64(1) << (total - 1))) >> total).astype(np.int32)


def _multiply_reference(x: np.ndarray, multiplier: int, shift: int = 0) -> np.ndarray:
    return _scaled(x, *map(np.asarray, (multiplier, max(shift, 0), max(-shift, 0))))


_WIDE = np.array([[7, -7, 0, 123456], [-99999, 2**20, 1, -1]], np.int32)
fixed_point_multiply.layout(keep_layout)
fixed_point_multiply.spec(
    _multiply_reference, op_case(_WIDE, multiplier=2**30),
    op_case(_WIDE, multiplier=1395864371, shift=-3),
    op_case(_WIDE, multiplier=-1518500250, shift=2),
    op_case((), dtypes="int32", low=-9, high=9, multiplier=2**30, shift=1),
)


@dataclass(frozen=True, kw_only=True)
class FixedPointMultiplyPerAxisAttrs(Attrs):
    axes: tuple[int, ...] = attr(doc="axes along which the factors vary",
                                 expected="a tuple of ints")
    is_lshift_required: bool = attr(True, "whether the left shifts are used")
    is_rshift_required: bool = attr(True, "whether the right shifts are used")


def _per_axis_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    source = types[0]
    axes = normalize_axes(ctx, ctx.attrs_as(FixedPointMultiplyPerAxisAttrs).axes, source.ndim,
                          name="axes")
    for arg, type_ in enumerate(types):
        _expect_int32(ctx, arg, type_)
        if arg:
            ctx.expect_rank(arg, type_, len(axes))
            for position, axis in enumerate(axes):
                ctx.expect_dim(arg, position, type_.shape[position], source.shape[axis],
                               "the factors do not fit the data")
    ctx.output(source)
    return True


@define_op("fixed_point_multiply_per_axis", attrs=FixedPointMultiplyPerAxisAttrs,
           relation=_per_axis_relation, pattern=OpPattern.BROADCAST, level=10)
def fixed_point_multiply_per_axis(
    x: te.Tensor, multiplier: te.Tensor, lshift: te.Tensor, rshift: te.Tensor,
    attrs: FixedPointMultiplyPerAxisAttrs,
) -> te.Tensor:
    """``fixed_point_multiply`` with a separate factor and shifts per index of some axes."""
    axes = [a % x.ndim for a in attrs.axes]
    left = lshift if attrs.is_lshift_required else None
    right = rshift if attrs.is_rshift_required else None
    return topi.fixed_point_multiply_per_axis(x, multiplier, left, right, axes)


def _per_axis_reference(
    x: np.ndarray, multiplier: np.ndarray, lshift: np.ndarray, rshift: np.ndarray,
    axes: tuple[int, ...], is_lshift_required: bool = True, is_rshift_required: bool = True,
) -> np.ndarray:
    own = [a % x.ndim for a in axes]
    order = sorted(range(len(own)), key=own.__getitem__)
    shape = [x.shape[a] if a in own else 1 for a in range(x.ndim)]
    factor, left, right = (v.transpose(order).reshape(shape).astype(np.int64)
                           for v in (multiplier, lshift, rshift))
    return _scaled(x, factor, left * is_lshift_required, right * is_rshift_required)


_FACTORS = np.array([2**30, 1395864371, -1518500250, 2**31 - 1], np.int32)
_SHIFTS = np.array([0, 2, 1, 3], np.int32)
fixed_point_multiply_per_axis.spec(
    _per_axis_reference, op_case(_WIDE, _FACTORS, _SHIFTS, _SHIFTS, axes=(1,)),
    op_case(_WIDE, _FACTORS[:2], _SHIFTS[:2], _SHIFTS[2:], axes=(-2,), is_lshift_required=False),
    op_case(_WIDE, _FACTORS, _SHIFTS, _SHIFTS, axes=(1,), is_rshift_required=False),
)
