"""Matrix multiplication by groups of rows: the experts of a mixture, each with its own matrix."""

from __future__ import annotations

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, OpPattern, TensorType, attr, define_op, infer_expr, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import (
    attrs_of,
    known_shape,
    numbered,
    scalar,
    tensor_type,
    to_order,
    typed_zeros,
)
from weft.op.nn.dense import WeightPanels
from weft.op.nn.matmul import accumulate_in
from weft.op.relations import (
    layout_attr,
    to_layout,
)
from weft.support.dataclass import dataclass
from weft.tir.expr import const
from weft.topi.layout import Layout, convert_shape, transform_array
from weft.topi.nn import dense as topi

GNK = Layout.parse("GNK")


@dataclass(frozen=True, kw_only=True)
class GroupedMatmulAttrs(Attrs):
    units: int | None = attr(None, "size of the result's last axis; None to read it off the "
                             "weight")
    weight_layout: str = attr("GNK", "layout of the weight: GNK, GKN, or in panels such as GNK64n")

    @property
    def panels(self) -> WeightPanels | None:
        """The panels in which each matrix is packed; ``None`` if they are not."""
        layout = Layout.parse(self.weight_layout)
        width = layout.factor_of("N")
        return WeightPanels(width) if width > 1 and layout.name == f"GNK{width}n" else None


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    data, weight, sizes = types
    attrs = ctx.attrs_as(GroupedMatmulAttrs)
    layout = layout_attr(ctx, "weight_layout")
    ctx.expect_rank(0, data, 2)
    ctx.expect_float(0, data)
    ctx.expect_rank(1, weight, layout.ndim)
    ctx.expect_same_dtype(1, weight, data.dtype)
    ctx.expect_rank(2, sizes, 1)
    ctx.expect_int(2, sizes)
    groups, units, depth = to_layout(ctx, layout, GNK, weight.shape, arg=1)
    ctx.expect_dim(1, layout.index_of("K"), depth, data.shape[1],
                   "the inner sizes do not match", why=" (the last axis of the data)")
    ctx.expect_dim(2, 0, sizes.shape[0], groups, "the numbers of groups differ",
                   why=" (those of the weight)")
    if attrs.units is not None:
        spare = units - attrs.units if isinstance(units, int) else 0
        if not 0 <= spare < layout.factor_of("N"):
            ctx.expect_dim(1, layout.index_of("N"), units, attrs.units,
                           "the number of units does not match", why=" (the attribute units)")
        units = attrs.units
    ctx.output(TensorType((data.shape[0], units), data.dtype))
    return True


@define_op("nn.grouped_matmul", attrs=GroupedMatmulAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10)
def grouped_matmul(data: te.Tensor, weight: te.Tensor, group_sizes: te.Tensor,
                   attrs: GroupedMatmulAttrs) -> te.Tensor:
    """out[m, n] = sum over k of data[m, k] * weight[group of m, n, k]

    ``data``: (M, K); ``weight``: (groups, N, K), a matrix per group; ``group_sizes``: (groups,)
    integers >= 0, the numbers of rows of the groups, which follow one another. Rows beyond the last
    group are zero. The time grows with the rows, and only matrices of groups with rows are read.
    It is JAX's ``ragged_dot`` and torch's ``grouped_mm``.
    """
    layout = Layout.parse(attrs.weight_layout)
    units = (convert_shape(layout, GNK, weight.shape)[1] if attrs.units is None
             else const(attrs.units))
    return topi.grouped_matmul(data, weight, group_sizes, weight_layout=layout, units=units)


def _reference(data: np.ndarray, weight: np.ndarray, group_sizes: np.ndarray,
               weight_layout: str = "GNK", units: int | None = None) -> np.ndarray:
    dtype = accumulate_in(data.dtype)
    matrices = transform_array(weight, Layout.parse(weight_layout), GNK)[:, :units].astype(dtype)
    result = np.zeros((len(data), matrices.shape[1]), dtype)
    ends = np.minimum(np.cumsum(np.maximum(group_sizes, 0)), len(data))
    for matrix, begin, end in zip(matrices, (0, *ends[:-1]), ends, strict=True):
        result[begin:end] = data[begin:end].astype(dtype) @ matrix.T
    return result.astype(data.dtype)


_SIZES = np.array([2, 0, 3])
grouped_matmul.spec(
    _reference, op_case((5, 4), (3, 6, 4), _SIZES), op_case((7, 4), (3, 6, 4), _SIZES),
    op_case((5, 4), (3, 4, 6), _SIZES, weight_layout="GKN"),
    op_case((5, 4), (3, 2, 4, 3), _SIZES, weight_layout="GNK3n", units=5),
    op_case((9, 3), (2, 5, 3), np.array([8, 1], np.int32)),
    op_case((0, 3), (2, 5, 3), np.array([0, 0])),
    op_case((5, 4), (3, 6, 4), _SIZES, dtypes=("float16", "float16", "int64")),
)


@grouped_matmul.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, GroupedMatmulAttrs)
    data, weight, sizes = call.args
    is_gnk, is_packed = attrs.weight_layout != "GKN", not attrs.weight_layout.isalpha()
    matrices = to_order(weight, attrs.weight_layout, "GNK") if is_packed else weight
    spare = tensor_type(matrices).shape[1] - known_shape(call, call)[1] if is_packed else 0
    wide = dy if spare == 0 else op.nn.pad(dy, scalar(0.0, dy), pad_width=((0, 0), (0, spare)))
    dx = op.nn.grouped_matmul(wide, matrices, sizes, weight_layout="GKN" if is_gnk else "GNK")
    # The matrix of a group sees zeros for the rows of the others.
    count = op.cast(sizes, dtype="int64")
    ends = op.expand_dims(op.cumsum(count, axis=0), axis=1)
    number = numbered(known_shape(data, call)[:1])
    own = op.logical_and(op.less_equal(ends - op.expand_dims(count, axis=1), number),
                         op.less(number, ends))
    own = op.expand_dims(op.cast(own, dtype=tensor_type(data).dtype), axis=2)
    left, right = (wide, data) if is_gnk else (data, wide)
    dw = infer_expr(op.nn.batch_matmul(own * left, op.expand_dims(right, axis=0),
                                       transpose_a=True, transpose_b=False), trust=True)
    return [dx, to_order(dw, "GNK", attrs.weight_layout) if is_packed else dw,
            typed_zeros(sizes)]
