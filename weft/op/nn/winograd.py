"""Winograd convolution as two operators: the filter transform, and the rest.

Models do not use them: legalization of ``nn.conv2d`` does where it is faster, with constant kernels
that are transformed when the model is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, Tuple, attr, const, infer_expr
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import dim_add, dim_product
from weft.ir.traits import OpTraits, linear, multilinear
from weft.op.gradients import attrs_of, fixed_sizes, known_shape, scalar, tensor_type, to_order
from weft.op.nn.conv import padding_attr
from weft.op.nn.conv_reference import images_in, unblocked_images, windows
from weft.op.nn.conv_reference import pad_spatial as pad_array
from weft.op.relations import (
    layout_attr,
    to_layout,
)
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, transform_array
from weft.topi.nn import winograd as topi_winograd
from weft.topi.nn.conv import full_padding
from weft.topi.nn.winograd import NCHW, OIHW, TAPS, TILES, transforms


def is_tile(tile: int) -> bool:
    return tile in TILES


@dataclass(frozen=True, kw_only=True)
class WinogradWeightAttrs(Attrs):
    tile: int = attr(4, "output positions of a tile in each direction", check=is_tile,
                     expected="2 or 4")


@dataclass(frozen=True, kw_only=True)
class WinogradConv2DAttrs(Attrs):
    tile: int = attr(4, "output positions of a tile in each direction", check=is_tile,
                     expected="2 or 4")
    padding: tuple[int, ...] = padding_attr(2, "zeros around the data")
    data_layout: str = attr("NCHW", "layout of the data")
    kernel_layout: str = attr("HWOI", "layout of the transformed kernel; H and W count the "
                              "points of the transform domain")
    out_layout: str = attr("", "layout of the result; empty for that of the data")


def _weight_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(1)
    if types is None:
        return False
    (weight,) = types
    ctx.expect_rank(0, weight, 4)
    ctx.expect_float(0, weight)
    for axis in (2, 3):
        ctx.expect_dim(0, axis, weight.shape[axis], TAPS, "the kernel's size does not match")
    points = ctx.attrs_as(WinogradWeightAttrs).tile + TAPS - 1
    ctx.output(TensorType((points, points, *weight.shape[:2]), weight.dtype))
    return True


@define_op("nn.winograd_weight", attrs=WinogradWeightAttrs, relation=_weight_relation,
           pattern=OpPattern.OPAQUE, level=10, traits=linear())
def winograd_weight(weight: te.Tensor, attrs: WinogradWeightAttrs) -> te.Tensor:
    """Winograd's filter transform of 3 x 3 kernels (O, I, 3, 3): (tile + 2, tile + 2, O, I).

    out[:, :, o, i] = G @ weight[o, i] @ G.T, where G is the filter transform of F(tile, 3).
    """
    return topi_winograd.winograd_weight(weight, attrs.tile)


# Kernels that are transformed at once. In float64 these stay in the L2 cache, and in memory that
# the allocator keeps: larger arrays are mapped anew each time, which takes eight times as long.
_FLOAT64_KERNELS = 1024


def _matrix(rows: Any) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


def _weight_reference(weight: np.ndarray, *, tile: int = 4) -> np.ndarray:
    matrix = _matrix(transforms(tile).filter)
    # One GEMM for both dimensions: the taps of a kernel are contiguous.
    both = np.kron(matrix, matrix)
    outputs, inputs = weight.shape[:2]
    points = np.empty((len(both), outputs, inputs), weight.dtype)
    step = max(1, _FLOAT64_KERNELS // max(inputs, 1))
    for first in range(0, outputs, step):
        some = weight[first : first + step]
        # Contiguous columns: the BLAS would copy a transposed view, which takes longer.
        taps = some.reshape(-1, TAPS * TAPS).T.astype(np.float64, order="C")
        points[:, first : first + step] = (both @ taps).reshape(len(both), len(some), inputs)
    return points.reshape(len(matrix), len(matrix), outputs, inputs)


winograd_weight.spec(
    _weight_reference,
    op_case((4, 3, 3, 3)),
    op_case((2, 5, 3, 3), tile=2),
    op_case((0, 2, 3, 3)),
)


def _conv2d_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, weight = types
    attrs = ctx.attrs_as(WinogradConv2DAttrs)
    data_layout, kernel_layout = layout_attr(ctx, "data_layout"), layout_attr(ctx, "kernel_layout")
    ctx.expect_rank(0, data, data_layout.ndim)
    ctx.expect_rank(1, weight, kernel_layout.ndim)
    ctx.expect_float(0, data)
    ctx.expect_same_dtype(1, weight, data.dtype)
    images = to_layout(ctx, data_layout, NCHW, data.shape, arg=0)
    taps = to_layout(ctx, kernel_layout, OIHW, weight.shape, arg=1)
    ctx.expect_dim(1, kernel_layout.index_of("I"), taps[1], images[1],
                   "input channels do not match")
    for axis, letter in enumerate("HW"):
        ctx.expect_dim(1, kernel_layout.index_of(letter), taps[2 + axis], attrs.tile + TAPS - 1,
                   "the kernel is not transformed for this tile", why=f" (a tile of {attrs.tile})")
    top, left, bottom, right = full_padding(attrs.padding, 2)
    sizes = [dim_add(images[2], top + bottom), dim_add(images[3], left + right)]
    for axis, size in enumerate(sizes):
        if isinstance(size, int) and size < TAPS:
            ctx.fail("the kernel is larger than the padded data", arg=0,
                     axis=data_layout.index_of("HW"[axis]), expected=f"a size of {TAPS} or more",
                     got=f"{size} (padding included)")
    out = (images[0], taps[0], *(dim_add(size, 1 - TAPS) for size in sizes))
    wanted = layout_attr(ctx, "out_layout") if attrs.out_layout else data_layout
    ctx.output(TensorType(to_layout(ctx, NCHW, wanted, out, arg=1), data.dtype))
    return True


@define_op("nn.winograd_conv2d", attrs=WinogradConv2DAttrs, relation=_conv2d_relation,
           pattern=OpPattern.OUT_FUSABLE, level=10,
           traits=multilinear(OpTraits(is_contraction=True)))
def winograd_conv2d(data: te.Tensor, kernel: te.Tensor, attrs: WinogradConv2DAttrs) -> te.Tensor:
    """Winograd's F(tile x tile, 3 x 3): ``nn.conv2d`` with stride 1 and a transformed kernel.

    Each tile of the data, tile + 2 positions in each direction, goes through the input transform,
    is multiplied with the kernel (the result of ``nn.winograd_weight``), summed over channels, and
    goes through the output transform.
    """
    return topi_winograd.winograd_conv2d(
        data, kernel, tile=attrs.tile, padding=attrs.padding,
        data_layout=Layout.parse(attrs.data_layout),
        kernel_layout=Layout.parse(attrs.kernel_layout),
        out_layout=Layout.parse(attrs.out_layout or attrs.data_layout),
    )


def _conv2d_reference(data: np.ndarray, kernel: np.ndarray, **values: Any) -> np.ndarray:
    """The definition, tile by tile, in float64."""
    attrs = WinogradConv2DAttrs(**values)
    matrices, m = transforms(attrs.tile), attrs.tile
    images = unblocked_images(data, Layout.parse(attrs.data_layout), "HW").astype(np.float64)
    weights = transform_array(kernel, Layout.parse(attrs.kernel_layout), OIHW).astype(np.float64)
    padded = pad_array(images, full_padding(attrs.padding, 2))
    rows, columns = padded.shape[2] - 2, padded.shape[3] - 2
    more = pad_array(padded, (0, 0, -rows % m, -columns % m))
    tiles = windows(more, (m + 2, m + 2), (m, m), (1, 1))
    transform = _matrix(matrices.input)
    inputs = np.einsum("ei,ncyxij,fj->ncyxef", transform, tiles, transform, optimize=True)
    sums = np.einsum("ncyxef,ocef->noyxef", inputs, weights, optimize=True)
    output = _matrix(matrices.output)
    result = np.einsum("ae,noyxef,bf->noyaxb", output, sums, output, optimize=True)
    n, o, y, _, x, _ = result.shape
    result = result.reshape(n, o, y * m, x * m)[:, :, :rows, :columns]
    layout = Layout.parse(attrs.out_layout or attrs.data_layout)
    return images_in(result, layout, "HW").astype(data.dtype)


@winograd_weight.expansion
def _weight_expansion(call: Call) -> Expr:
    """The transform as a product with the Kronecker square of its matrix."""
    outputs, inputs, *_ = known_shape(call.args[0], call)
    matrix = _matrix(transforms(attrs_of(call, WinogradWeightAttrs).tile).filter)
    rows = op.reshape(call.args[0], newshape=(outputs, inputs, TAPS * TAPS), allowzero=True)
    points = op.nn.dense(rows, _kronecker_square(matrix, call))
    split = op.reshape(points, newshape=(outputs, inputs, len(matrix), len(matrix)),
                       allowzero=True)
    return op.transpose(split, axes=(2, 3, 0, 1))


@winograd_conv2d.expansion
def _conv2d_expansion(call: Call) -> Expr:
    """Tiles as strided slices, and the three steps as matrix products."""
    attrs = attrs_of(call, WinogradConv2DAttrs)
    matrices, m, wanted = transforms(attrs.tile), attrs.tile, attrs.out_layout or attrs.data_layout
    images = to_order(call.args[0], attrs.data_layout, "NCHW")
    weights = to_order(call.args[1], attrs.kernel_layout, "HWOI")
    (count, channels, *_), points = known_shape(images, call), m + TAPS - 1
    outputs = known_shape(weights, call)[2]
    top, left, bottom, right = full_padding(attrs.padding, 2)
    sizes = fixed_sizes(known_shape(images, call)[2:], call)
    rows, columns = sizes[0] + top + bottom - 2, sizes[1] + left + right - 2
    down, across = -(-rows // m), -(-columns // m)
    padded = op.nn.pad(images, scalar(0.0, images), pad_width=(
        (0, 0), (0, 0), (top, bottom + down * m - rows), (left, right + across * m - columns)))
    taps = tuple(op.strided_slice(padded, begin=(i, j), end=(i + (down - 1) * m + 1,
                                                             j + (across - 1) * m + 1),
                                  strides=(m, m), axes=(2, 3))
                 for i in range(points) for j in range(points))
    tiles = dim_product((count, down, across))
    stacked = op.reshape(op.transpose(op.stack(Tuple(taps), axis=0), axes=(0, 2, 1, 3, 4)),
                         newshape=(points * points, channels, tiles), allowzero=True)
    inputs = op.nn.dense(op.transpose(stacked, axes=(1, 2, 0)),
                         _kronecker_square(_matrix(matrices.input), call))
    kernel = op.reshape(weights, newshape=(points * points, outputs, channels), allowzero=True)
    sums = op.nn.batch_matmul(kernel, op.transpose(inputs, axes=(2, 1, 0)))
    results = op.nn.dense(op.transpose(sums, axes=(1, 2, 0)),
                          _kronecker_square(_matrix(matrices.output), call))
    split = op.reshape(results, newshape=(outputs, count, down, across, m, m), allowzero=True)
    merged = op.reshape(op.transpose(split, axes=(1, 0, 2, 4, 3, 5)),
                        newshape=(count, outputs, down * m, across * m), allowzero=True)
    cut = op.strided_slice(merged, begin=(0, 0), end=(rows, columns), axes=(2, 3))
    return to_order(infer_expr(cut, trust=True), "NCHW", wanted)


def _kronecker_square(matrix: np.ndarray, call: Call) -> Expr:
    return const(np.kron(matrix, matrix), tensor_type(call).dtype)


winograd_conv2d.spec(
    _conv2d_reference,
    # Results of some hundreds, of which float32 rounds away 1e-5.
    op_case((1, 3, 8, 8), (6, 6, 4, 3), tile=4, padding=(1, 1), rtol=1e-4, atol=1e-3),
    op_case((2, 2, 5, 7), (4, 4, 3, 2), tile=2, padding=(0, 1, 2, 0)),
    op_case((1, 2, 6, 5, 4), (6, 6, 2, 8, 3), tile=4, padding=(1,), data_layout="NCHW4c",
            kernel_layout="HWOI3o", out_layout="NCHW3c"),
)
