"""Operators that select by index: one_hot, trilu, sequence_mask, matrix_set_diag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import te
from weft.ir import Call, Dim, Expr, KnownDim, RelationContext, TensorType, linear, normalize_axis
from weft.ir.attrs import Attrs, attr, size_from
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.op.batching import leading, sequences_at, with_attrs
from weft.op.gradients import attrs_of, scalar, tensor_type
from weft.op.indexing_gradients import write_gradient
from weft.op.transform.like import zeros_like
from weft.support.dataclass import dataclass
from weft.topi import mask as topi
from weft.topi.sizes import as_size


@dataclass(frozen=True, kw_only=True)
class OneHotAttrs(Attrs):
    depth: KnownDim = attr(doc="size of the new axis", check=size_from(0), expected="0 or more")
    axis: int = attr(-1, "position of the new axis in the result")


def _one_hot_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    attrs = ctx.attrs_as(OneHotAttrs)
    ctx.expect_int(0, types[0])
    for arg in (1, 2):
        ctx.expect_rank(arg, types[arg], 0)
    dtype = types[1].dtype
    ctx.expect_same_dtype(2, types[2], dtype)
    shape = types[0].shape
    axis = normalize_axis(ctx, attrs.axis, len(shape) + 1)
    ctx.output(TensorType((*shape[:axis], attrs.depth, *shape[axis:]), dtype))
    return True


@define_op("one_hot", attrs=OneHotAttrs, relation=_one_hot_relation, pattern=OpPattern.INJECTIVE,
           level=10, traits=linear())
def one_hot(
    indices: te.Tensor, on_value: te.Tensor, off_value: te.Tensor, attrs: OneHotAttrs
) -> te.Tensor:
    """``on_value`` where the index along the new axis equals the element, else ``off_value``."""
    axis = attrs.axis % (indices.ndim + 1)
    return topi.one_hot(indices, on_value, off_value, as_size(attrs.depth), axis)


def _one_hot_reference(
    indices: np.ndarray, on_value: np.ndarray, off_value: np.ndarray, depth: int, axis: int = -1
) -> np.ndarray:
    hit = np.expand_dims(indices, axis if axis >= 0 else axis + indices.ndim + 1)
    positions = np.moveaxis(np.arange(depth).reshape(*(1,) * indices.ndim, depth), -1, axis)
    return np.where(hit == positions, on_value, off_value)


_NUMBERS = np.array([[0, 2, 1], [3, -1, 7]], np.int32)
one_hot.spec(_one_hot_reference, op_case(_NUMBERS, (), (), depth=4),
             op_case(_NUMBERS, (), (), depth=3, axis=0), op_case(np.int64(1), (), (), depth=2),
             op_case(_NUMBERS, (), (), depth=4, axis=1, dtypes="int8", high=5),
             op_case(_NUMBERS, (), (), depth=0))


@one_hot.gradient
def _one_hot_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value receives the gradients of the elements where it stands."""
    indices, on_value, off_value = call.args
    one, zero = scalar(1, on_value), scalar(0, off_value)
    hit = one_hot(indices, one, zero, **dict(call.attrs.items()))
    return [zeros_like(indices), get_op("sum")(dy * hit), get_op("sum")(dy * (one - hit))]


@dataclass(frozen=True, kw_only=True)
class TriluAttrs(Attrs):
    upper: bool = attr(True, "keep the upper triangle, not the lower one")


def _trilu_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    ctx.expect_min_rank(0, types[0], 2)
    ctx.expect_rank(1, types[1], 0)
    ctx.expect_int(1, types[1])
    ctx.output(types[0])
    return True


@define_op("trilu", attrs=TriluAttrs, relation=_trilu_relation, pattern=OpPattern.INJECTIVE,
           level=3, traits=linear())
def trilu(x: te.Tensor, k: te.Tensor, attrs: TriluAttrs) -> te.Tensor:
    """The triangle of each matrix (last two axes) up to diagonal k; zeros elsewhere."""
    return topi.trilu(x, k, upper=attrs.upper)


def _trilu_reference(x: np.ndarray, k: np.ndarray, upper: bool = True) -> np.ndarray:
    return np.ascontiguousarray((np.triu if upper else np.tril)(x, int(k)))


trilu.spec(_trilu_reference, op_case((3, 4), np.int64(0)), op_case((2, 3, 3), np.int64(1)),
           op_case((4, 2), np.int32(-1), upper=False), op_case((0, 3), np.int64(0)),
           op_case((3, 3), np.int64(9), dtypes="int32", low=1, high=9, upper=False))
trilu.gradient(lambda call, _y, dy: [
    trilu(dy, call.args[1], upper=attrs_of(call, TriluAttrs).upper), zeros_like(call.args[1])])


@dataclass(frozen=True, kw_only=True)
class SequenceMaskAttrs(Attrs):
    mask_value: float = attr(0.0, "value that replaces elements after the valid length")
    axis: int = attr(0, "axis of the sequence: 0 (then the batch is 1) or 1 (the batch is 0)",
                     check=lambda a: a in (0, 1), expected="0 or 1")


def _sequence_mask_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    x, lengths = types
    ctx.expect_min_rank(0, x, 2)
    ctx.expect_rank(1, lengths, 1)
    ctx.expect_int(1, lengths)
    batch = x.shape[1 - ctx.attrs_as(SequenceMaskAttrs).axis]
    ctx.expect_dim(1, 0, lengths.shape[0], batch, "expected one length per sequence")
    ctx.output(x)
    return True


@define_op("sequence_mask", attrs=SequenceMaskAttrs, relation=_sequence_mask_relation,
           pattern=OpPattern.INJECTIVE, level=10)
def sequence_mask(x: te.Tensor, valid_length: te.Tensor, attrs: SequenceMaskAttrs) -> te.Tensor:
    """Sequences in which ``mask_value`` replaces the elements after their valid length."""
    return topi.sequence_mask(x, valid_length, attrs.mask_value, attrs.axis)


def _sequence_mask_reference(
    x: np.ndarray, valid_length: np.ndarray, mask_value: float = 0.0, axis: int = 0
) -> np.ndarray:
    step = np.arange(x.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
    length = valid_length.reshape((1, -1) if axis == 0 else (-1, 1))
    valid = (step < length).reshape(x.shape[:2] + (1,) * (x.ndim - 2))
    return np.where(valid, x, np.asarray(mask_value).astype(x.dtype))


sequence_mask.spec(
    _sequence_mask_reference, op_case((4, 3), np.array([2, 0, 9])),
    op_case((2, 5, 3), np.array([4, 1], np.int32), axis=1, mask_value=-1.5),
    op_case((3, 0, 2), np.zeros(0, np.int64)),
    op_case((3, 2), np.array([1, 2]), dtypes="int32", high=9),
)
sequence_mask.gradient(lambda call, _y, dy: [
    sequence_mask(dy, call.args[1], axis=attrs_of(call, SequenceMaskAttrs).axis),
    zeros_like(call.args[1])])


@dataclass(frozen=True, kw_only=True)
class MatrixSetDiagAttrs(Attrs):
    k1: int = attr(0, "lowest diagonal that is set; negative ones are below the main diagonal")
    k2: int = attr(0, "highest diagonal that is set")
    super_diag_right_align: bool = attr(True, "upper diagonals end at the right of their rows")
    sub_diag_right_align: bool = attr(False, "lower diagonals end at the right of their rows")


def _matrix_set_diag_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    x, diagonal = types
    attrs = ctx.attrs_as(MatrixSetDiagAttrs)
    ctx.expect_min_rank(0, x, 2)
    ctx.expect_same_dtype(1, diagonal, x.dtype)
    if attrs.k1 > attrs.k2:
        ctx.fail("k1 is above k2", expected=f"k1 of {attrs.k2} or less", got=attrs.k1)
    rows, columns = x.shape[-2:]
    length = None
    if isinstance(rows, int) and isinstance(columns, int):
        if not (-rows < attrs.k1 and attrs.k2 < columns):
            ctx.fail("a diagonal is outside the matrix", arg=0,
                     expected=f"{1 - rows} to {columns - 1}", got=f"{attrs.k1} to {attrs.k2}")
        length = min(rows + min(attrs.k2, 0), columns - max(attrs.k1, 0))
    count = () if attrs.k1 == attrs.k2 else (attrs.k2 - attrs.k1 + 1,)
    wanted = (*x.shape[:-2], *count, diagonal.shape[-1] if length is None else length)
    if diagonal.ndim != len(wanted):
        ctx.fail("wrong shape of the diagonals", arg=1, expected=TensorType(wanted, x.dtype),
                 got=diagonal)
    for axis, size in enumerate(wanted):
        ctx.expect_dim(1, axis, diagonal.shape[axis], size, "wrong shape of the diagonals")
    ctx.output(x)
    return True


@define_op("matrix_set_diag", attrs=MatrixSetDiagAttrs, relation=_matrix_set_diag_relation,
           pattern=OpPattern.INJECTIVE, level=10, traits=linear())
def matrix_set_diag(x: te.Tensor, diagonal: te.Tensor, attrs: MatrixSetDiagAttrs) -> te.Tensor:
    """Matrices (last two axes) with the diagonals k1 to k2 replaced; the highest comes first.

    Shorter diagonals are aligned to one end of their row, as the attributes say.
    """
    return topi.matrix_set_diag(x, diagonal, attrs.k1, attrs.k2, attrs.super_diag_right_align,
                                attrs.sub_diag_right_align)


def _matrix_set_diag_reference(
    x: np.ndarray, diagonal: np.ndarray, k1: int = 0, k2: int = 0,
    super_diag_right_align: bool = True, sub_diag_right_align: bool = False,
) -> np.ndarray:
    result = x.copy()
    rows, columns = x.shape[-2:]
    lines = diagonal if k1 != k2 else diagonal[..., None, :]
    for k in range(k1, k2 + 1):
        length = min(rows + min(k, 0), columns - max(k, 0))
        right = super_diag_right_align if k >= 0 else sub_diag_right_align
        first = lines.shape[-1] - length if right else 0
        i = np.arange(length)
        result[..., i - min(k, 0), i + max(k, 0)] = lines[..., k2 - k, first:first + length]
    return result


matrix_set_diag.spec(
    _matrix_set_diag_reference, op_case((3, 4), (3,)), op_case((2, 3, 4), (2, 2), k1=2, k2=2),
    op_case((4, 3), (3, 3), k1=-1, k2=1), op_case((2, 3, 3), (2, 3, 3), k1=-2, k2=0),
    op_case((3, 5), (4, 3), k1=-1, k2=2, super_diag_right_align=False, sub_diag_right_align=True),
)


matrix_set_diag.gradient(write_gradient(1))


@one_hot.batching
def _one_hot_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
) -> Expr | None:
    axis = attrs_of(call, OneHotAttrs).axis % tensor_type(call).ndim
    return None if any(is_batched[1:]) else with_attrs(call, args, axis=axis + 1)


@trilu.batching
def _trilu_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
) -> Expr | None:
    return None if is_batched[1] else with_attrs(call, args)


matrix_set_diag.batching(leading)
sequence_mask.batching(sequences_at(lambda attrs: 1 - attrs.axis))
