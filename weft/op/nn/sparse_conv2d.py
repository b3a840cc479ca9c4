"""Two-dimensional convolution with a sparse kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, TensorType, Tuple, attr, infer_expr, multilinear, one_of
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import dim_add, dim_mul, dim_product
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import attrs_of, known_shape, scalar, to_order
from weft.op.nn.conv_reference import conv_reference, images_in, unblocked_images
from weft.op.nn.sparse import dense_of, expect_rows
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.topi.nn import sparse as topi


@dataclass(frozen=True, kw_only=True)
class SparseConv2DAttrs(Attrs):
    layout: str = attr("NHWC", "layout of the data and the result",
                       check=one_of("NHWC", "NCHW"), expected='"NHWC" or "NCHW"')
    kernel_size: int = attr(1, "side of the windows; zero padding keeps the size",
                            check=one_of(1, 3), expected="1 or 3")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    data, weights, indices, indptr = types
    attrs = ctx.attrs_as(SparseConv2DAttrs)
    ctx.expect_rank(0, data, 4)
    ctx.expect_float(0, data)
    ctx.expect_rank(1, weights, 1, 3)
    ctx.expect_same_dtype(1, weights, data.dtype)
    expect_rows(ctx, 1, weights, indices, indptr)
    axis = attrs.layout.index("C")
    depth = dim_mul(data.shape[axis], attrs.kernel_size**2)
    outputs = dim_add(indptr.shape[0], -1)
    if weights.ndim == 3:
        columns = weights.shape[2]
        outputs = dim_mul(outputs, weights.shape[1])
        if columns == 0 or (isinstance(depth, int) and isinstance(columns, int)
                            and depth % columns):
            ctx.fail("the channels are not divisible into blocks", arg=1, axis=2,
                     expected=f"a divisor of {depth}", got=columns)
    shape = list(data.shape)
    shape[axis] = outputs
    ctx.output(TensorType(tuple(shape), data.dtype))
    return True


@define_op("nn.sparse_conv2d", attrs=SparseConv2DAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=1, traits=multilinear())
def sparse_conv2d(
    data: te.Tensor, weight_data: te.Tensor, weight_indices: te.Tensor, weight_indptr: te.Tensor,
    attrs: SparseConv2DAttrs,
) -> te.Tensor:
    """A convolution whose kernel is a sparse matrix (O, height * width * C), in CSR or BSR."""
    return topi.sparse_conv2d(data, weight_data, weight_indices, weight_indptr,
                              layout=Layout.parse(attrs.layout), kernel_size=attrs.kernel_size)


@sparse_conv2d.expansion
def _expansion(call: Call) -> Expr:
    """The windows of the data as rows of a matrix, times the sparse matrix."""
    attrs = attrs_of(call, SparseConv2DAttrs)
    data, *matrix = call.args
    images = to_order(data, attrs.layout, "NHWC")
    count, height, width, channels = known_shape(images, call)
    size, around = attrs.kernel_size, attrs.kernel_size // 2
    pads = ((0, 0), (around, around), (around, around), (0, 0))
    padded = op.nn.pad(images, scalar(0.0, images), pad_width=pads) if around else images
    taps = tuple(op.strided_slice(padded, begin=(i, j), end=(height + i, width + j), axes=(1, 2))
                 for i in range(size) for j in range(size))
    depth = dim_mul(channels, size * size)
    rows = op.reshape(op.concatenate(Tuple(taps), axis=3) if size > 1 else images,
                      newshape=(dim_product((count, height, width)), depth), allowzero=True)
    outputs = known_shape(call, call)[attrs.layout.index("C")]
    result = op.reshape(op.nn.sparse_dense(rows, *matrix),
                        newshape=(count, height, width, outputs), allowzero=True)
    return to_order(infer_expr(result, trust=True), "NHWC", attrs.layout)


def _reference(
    data: np.ndarray, weights: np.ndarray, indices: np.ndarray, indptr: np.ndarray, **values: Any
) -> np.ndarray:
    attrs = SparseConv2DAttrs(**values)
    layout, size = Layout.parse(attrs.layout), attrs.kernel_size
    images = unblocked_images(data, layout, "HW")
    channels = images.shape[1]
    matrix = dense_of(weights, indices, indptr, channels * size * size)
    kernel = matrix.reshape(len(matrix), size, size, channels).transpose(0, 3, 1, 2)
    around = size // 2
    result = conv_reference(images, kernel, (1, 1), (around,) * 4, (1, 1), 1)
    return images_in(result.astype(data.dtype), layout, "HW")


_COLUMNS, _ENDS = np.array([1, 0, 2], np.int32), np.array([0, 1, 3], np.int32)
sparse_conv2d.spec(
    _reference,
    op_case((1, 3, 2, 6), (3, 4, 2), _COLUMNS, _ENDS),
    op_case((2, 1, 3, 4), (3,), _COLUMNS, _ENDS, kernel_size=3, layout="NCHW"),
)
