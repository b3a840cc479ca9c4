"""Sampling at given positions: grid_sample, affine_grid, crop_and_resize."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Constant, Expr, KnownDim, TensorType, attr, const, int64, one_of
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.traits import CONTINUOUS, Family, in_family, linear
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import attrs_of, clamped, size_value, tensor_type, to_order
from weft.op.image.sampling_expansion import (
    Tap,
    as_dtype,
    channels_first,
    channels_last,
    grid_taps,
    image_numbers,
    linear_taps,
    nearest_tap,
    sampled,
    size_of,
    typed,
)
from weft.op.nn.pool import layout_of_images
from weft.support.dataclass import dataclass
from weft.topi.image import sample as topi_sample
from weft.topi.image.taps import NUMBERS
from weft.topi.layout import Layout


def _positive_sizes(sizes: tuple[int, ...]) -> bool:
    return all(n > 0 for n in sizes)


@dataclass(frozen=True, kw_only=True)
class GridSampleAttrs(Attrs):
    method: str = attr("bilinear", "interpolation between elements",
                       check=one_of("nearest", "bilinear", "bicubic"),
                       expected='"nearest", "bilinear" or "bicubic"')
    layout: str = attr("NCHW", "layout of the data and the result",
                       check=one_of("NCHW", "NCDHW"), expected='"NCHW" or "NCDHW"')
    padding_mode: str = attr("zeros", "values outside the data",
                             check=one_of("zeros", "border", "reflection"),
                             expected='"zeros", "border" or "reflection"')
    align_corners: bool = attr(True, "-1 and 1 are the centres of the outermost elements")


def _grid_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, grid = types
    rank = len(ctx.attrs_as(GridSampleAttrs).layout)
    for arg, type_ in enumerate((data, grid)):
        ctx.expect_rank(arg, type_, rank)
        ctx.expect_float(arg, type_)
    ctx.expect_same_dtype(1, grid, data.dtype)
    ctx.expect_dim(1, 0, grid.shape[0], data.shape[0], "the batches differ")
    ctx.expect_dim(1, 1, grid.shape[1], rank - 2, "the grid does not fit the data",
                   why=" (one coordinate per axis)")
    for axis in range(2, rank):
        if data.shape[axis] == 0:
            ctx.fail("cannot sample an empty axis", arg=0, axis=axis,
                     expected="a size of 1 or more", got=0)
    ctx.output(TensorType((*data.shape[:2], *grid.shape[2:]), data.dtype))
    return True


@define_op("image.grid_sample", attrs=GridSampleAttrs, relation=_grid_relation,
           pattern=OpPattern.OUT_FUSABLE, level=5, traits=in_family(Family.RESAMPLING, CONTINUOUS))
def grid_sample(data: te.Tensor, grid: te.Tensor, attrs: GridSampleAttrs) -> te.Tensor:
    """The data sampled at the positions of a grid (N, coordinates, height, width), from -1 to 1.

    The first coordinate is along the width, the last along the first spatial axis.
    """
    return topi_sample.grid_sample(data, grid, method=attrs.method, padding=attrs.padding_mode,
                                   align_corners=attrs.align_corners)


@grid_sample.expansion
def _grid_expansion(call: Call) -> Expr:
    attrs = attrs_of(call, GridSampleAttrs)
    data, grid = call.args
    spatial = tensor_type(data).ndim - 2
    taps = []
    for axis in range(spatial):
        which = spatial - 1 - axis
        along = op.squeeze(op.strided_slice(grid, begin=(which,), end=(which + 1,), axes=(1,)),
                           axis=(1,))
        taps.append(grid_taps(along, size_of(data, 2 + axis, call), attrs.method,
                              attrs.padding_mode, align_corners=attrs.align_corners))
    numbers = image_numbers(size_of(data, 0, call), 1 + spatial)
    return channels_first(sampled(channels_last(data), numbers, taps, call))


def _reflected(p: np.ndarray, size: int, align_corners: bool) -> np.ndarray:
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    if high <= low:
        return np.zeros_like(p)
    away = np.mod(np.abs(p - low), 2 * (high - low))
    return np.clip(low + np.minimum(away, 2 * (high - low) - away), 0, size - 1)


def _axis_taps(p: np.ndarray, size: int, attrs: GridSampleAttrs) -> list[Any]:
    """(index, weight, whether it is in range) of every tap along an axis."""
    p = ((p + 1) / 2 * (size - 1) if attrs.align_corners else ((p + 1) * size - 1) / 2)
    fold = {"zeros": lambda q: q, "border": lambda q: np.clip(q, 0, size - 1),
            "reflection": lambda q: _reflected(q, size, attrs.align_corners)}[attrs.padding_mode]
    if attrs.method == "nearest":
        pairs = [(fold(np.rint(fold(p))), np.ones_like(p))]
    else:
        p = fold(p) if attrs.method == "bilinear" else p
        kernel = topi_sample.KERNELS[attrs.method]
        first = np.floor(p - kernel.reach) + 1
        pairs = []
        for k in range(kernel.count(1.0)):
            weigh = np.vectorize(lambda d: kernel.weigh(d, NUMBERS), otypes=[float])
            at = first + k
            pairs.append((fold(at) if attrs.method == "bicubic" else at, weigh(np.abs(p - at))))
    return [(np.clip(at, 0, size - 1).astype(int), weight, (at >= 0) & (at <= size - 1))
            for at, weight in pairs]


def _grid_reference(data: np.ndarray, grid: np.ndarray, **values: Any) -> np.ndarray:
    attrs = GridSampleAttrs(**values)
    spatial = data.ndim - 2
    result = np.zeros((*data.shape[:2], *grid.shape[2:]))
    for n in range(len(data)):
        taps = [_axis_taps(grid[n, spatial - 1 - a].astype(np.float64), data.shape[2 + a], attrs)
                for a in range(spatial)]
        for corner in itertools.product(*taps):
            value = data[n][(slice(None), *(at for at, _, _ in corner))].astype(np.float64)
            for _, weight, inside in corner:
                value = np.where(inside, value, 0.0) * weight
            result[n] += value
    return result.astype(data.dtype)


grid_sample.spec(
    _grid_reference,
    op_case((1, 2, 4, 5), (1, 2, 3, 4), low=-1.2, high=1.2),
    op_case((2, 1, 3, 3), (2, 2, 2, 2), padding_mode="border", align_corners=False, low=-1.9,
            high=1.9),
    op_case((1, 2, 4, 3), (1, 2, 3, 3), method="bicubic", padding_mode="reflection", low=-1.9,
            high=1.9),
    op_case((1, 1, 4, 4), (1, 2, 3, 3), method="nearest", align_corners=False),
    op_case((1, 1, 3, 4), (1, 2, 5, 2), padding_mode="reflection", align_corners=False, low=-3.0,
            high=3.0),
    op_case((1, 2, 2, 3, 4), (1, 3, 2, 2, 3), layout="NCDHW"),
    op_case((1, 1, 1, 1), (1, 2, 2, 2), padding_mode="reflection"),
)


@dataclass(frozen=True, kw_only=True)
class AffineGridAttrs(Attrs):
    target_shape: tuple[int, int] = attr(doc="height and width of the grid",
                                         check=_positive_sizes, expected="two numbers >= 1")


def _affine_relation(ctx: RelationContext) -> bool:
    theta = ctx.tensor(0)
    if theta is None:
        return False
    ctx.expect_rank(0, theta, 3)
    ctx.expect_float(0, theta)
    for axis, size in ((1, 2), (2, 3)):
        ctx.expect_dim(0, axis, theta.shape[axis], size, "not a 2 x 3 affine map")
    size = ctx.attrs_as(AffineGridAttrs).target_shape
    ctx.output(TensorType((theta.shape[0], 2, *size), theta.dtype))
    return True


@define_op("image.affine_grid", attrs=AffineGridAttrs, relation=_affine_relation,
           pattern=OpPattern.INJECTIVE, level=5, traits=linear())
def affine_grid(data: te.Tensor, attrs: AffineGridAttrs) -> te.Tensor:
    """A regular grid of positions in -1 to 1, transformed by the affine map ``data`` (N, 2, 3)."""
    return topi_sample.affine_grid(data, attrs.target_shape)


def _base_grid(size: tuple[int, int]) -> np.ndarray:
    """(x, y, 1) of every grid point, as a matrix."""
    rows, columns = (np.linspace(-1, 1, n) if n > 1 else np.array([-1.0]) for n in size)
    x, y = np.meshgrid(columns, rows)
    return np.stack([x.ravel(), y.ravel(), np.ones(x.size)])


@affine_grid.gradient
def _affine_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    type_, attrs = tensor_type(call.args[0]), call.attrs
    size = attrs.target_shape  # type: ignore[attr-defined]
    positions = const(_base_grid(size).astype(type_.dtype.numpy))
    rows = get_op("reshape")(dy, newshape=(0, 2, size[0] * size[1]))
    return [get_op("nn.dense")(rows, positions)]


affine_grid.spec(
    lambda data, target_shape: (data.astype(np.float64) @ _base_grid(target_shape)).reshape(
        len(data), 2, *target_shape).astype(data.dtype),
    op_case((2, 2, 3), target_shape=(3, 4)), op_case((1, 2, 3), target_shape=(1, 2)),
)


@dataclass(frozen=True, kw_only=True)
class CropAndResizeAttrs(Attrs):
    crop_size: tuple[int, int] = attr(doc="height and width of the results",
                                      check=_positive_sizes, expected="two numbers >= 1")
    layout: str = attr("NCHW", "layout of the data and the result")
    method: str = attr("bilinear", "interpolation between elements",
                       check=one_of("bilinear", "nearest_neighbor"),
                       expected='"bilinear" or "nearest_neighbor"')
    extrapolation_value: float = attr(0.0, "value outside the data")


def _crop_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    data, boxes, numbers = types
    attrs = ctx.attrs_as(CropAndResizeAttrs)
    ctx.expect_number(0, data)
    layout = layout_of_images(ctx, data, "HW")
    if not layout.is_primal or layout.index_of("N") != 0:
        ctx.fail("the layout must begin with the batch", expected="NCHW or NHWC", got=layout)
    ctx.expect_rank(1, boxes, 2)
    ctx.expect_float(1, boxes)
    ctx.expect_dim(1, 1, boxes.shape[1], 4, "a box has four numbers", why=" (y1, x1, y2, x2)")
    ctx.expect_rank(2, numbers, 1)
    ctx.expect_int(2, numbers)
    ctx.expect_dim(2, 0, numbers.shape[0], boxes.shape[0], "expected one image index per box")
    shape = list(data.shape)
    if 0 in shape and boxes.shape[0] != 0:
        ctx.fail("cannot crop an empty image", arg=0, expected="sizes of 1 or more", got=data)
    shape[0] = boxes.shape[0]
    for letter, size in zip("HW", attrs.crop_size, strict=True):
        shape[layout.index_of(letter)] = size
    ctx.output(TensorType(tuple(shape), boxes.dtype))
    return True


@define_op("image.crop_and_resize", attrs=CropAndResizeAttrs, relation=_crop_relation,
           pattern=OpPattern.OUT_FUSABLE, level=5, traits=in_family(Family.RESAMPLING))
def crop_and_resize(
    data: te.Tensor, boxes: te.Tensor, box_indices: te.Tensor, attrs: CropAndResizeAttrs
) -> te.Tensor:
    """Each box (y1, x1, y2, x2 as fractions of its image), resized to one size.

    ``box_indices`` holds the image of each box. The result has the dtype of the boxes.
    """
    layout = Layout.parse(attrs.layout)
    return topi_sample.crop_and_resize(
        data, boxes, box_indices, size=attrs.crop_size, method=attrs.method,
        extrapolation_value=attrs.extrapolation_value, channels=layout.index_of("C"),
        rows=layout.index_of("H"), columns=layout.index_of("W"),
    )


@crop_and_resize.expansion
def _crop_expansion(call: Call) -> Expr:
    attrs = attrs_of(call, CropAndResizeAttrs)
    data, boxes, numbers = call.args
    dtype = tensor_type(boxes).dtype
    images = to_order(data, attrs.layout, "NHWC")
    taps, inside = [], None
    for i, count in enumerate(attrs.crop_size):
        size = size_of(images, 1 + i, call)
        at = _crop_position(boxes, i, size, count)
        last = op.subtract(size_value(size, dtype), const(1.0, dtype))
        within = op.logical_and(op.greater_equal(at, const(0.0, dtype)), op.less_equal(at, last))
        along = linear_taps(at, size, is_padded=False) if attrs.method == "bilinear" else \
            nearest_tap(op.floor(op.add(at, const(0.5, dtype))), size, is_padded=False)
        axis = 2 - i  # rows and columns broadcast to (boxes, rows, columns)
        taps.append([_along(tap, axis) for tap in along])
        within = op.expand_dims(within, axis=axis)
        inside = within if inside is None else op.logical_and(inside, within)
    which = clamped(op.cast(numbers, dtype="int64"), size_of(images, 0, call), int64)
    found = sampled(as_dtype(images, dtype), op.expand_dims(which, axis=1, num_newaxis=2), taps,
                    call)
    result = op.where(op.expand_dims(inside, axis=3), found,
                      const(attrs.extrapolation_value, dtype))
    return to_order(typed(result), "NHWC", attrs.layout)


def _crop_position(boxes: Expr, row: int, size: KnownDim, count: int) -> Expr:
    """The positions (boxes, count) along an axis of ``size``."""
    dtype = tensor_type(boxes).dtype
    span = op.subtract(size_value(size, dtype), const(1.0, dtype))
    first, last = (op.strided_slice(boxes, begin=(i,), end=(i + 1,), axes=(1,))
                   for i in (row, row + 2))
    if count == 1:
        return typed(op.multiply(op.multiply(op.add(first, last), const(0.5, dtype)), span))
    steps = Constant(np.arange(count, dtype=dtype.numpy)[None])
    length = op.divide(op.multiply(op.subtract(last, first), span), const(count - 1.0, dtype))
    return typed(op.add(op.multiply(first, span), op.multiply(steps, length)))


def _along(tap: Tap, axis: int) -> Tap:
    """The tap with a new axis."""
    weight = None if tap.weight is None else op.expand_dims(tap.weight, axis=axis)
    return Tap(op.expand_dims(tap.index, axis=axis), weight, None)


def _crop_reference(
    data: np.ndarray, boxes: np.ndarray, numbers: np.ndarray, **values: Any
) -> np.ndarray:
    attrs = CropAndResizeAttrs(**values)
    layout = Layout.parse(attrs.layout)
    order = [layout.index_of(a) for a in "NCHW"]
    images = data.transpose(order).astype(np.float64)
    result = np.full((len(boxes), images.shape[1], *attrs.crop_size), attrs.extrapolation_value)
    for b, y, x in np.ndindex(len(boxes), *attrs.crop_size):
        at = []
        for i, (j, size) in enumerate(zip((y, x), attrs.crop_size, strict=True)):
            span, (first, last) = images.shape[2 + i] - 1, boxes[b, [i, i + 2]].astype(np.float64)
            at.append(0.5 * (first + last) * span if size == 1
                      else first * span + j * (last - first) * span / (size - 1))
        if not all(0 <= p <= n - 1 for p, n in zip(at, images.shape[2:], strict=True)):
            continue
        image = images[min(max(int(numbers[b]), 0), len(images) - 1)]
        if attrs.method == "nearest_neighbor":
            result[b, :, y, x] = image[:, int(at[0] + 0.5), int(at[1] + 0.5)]
            continue
        (top, down), (left, right) = ((int(p), p - int(p)) for p in at)
        below, beside = min(top + 1, image.shape[1] - 1), min(left + 1, image.shape[2] - 1)
        result[b, :, y, x] = (
            (image[:, top, left] * (1 - right) + image[:, top, beside] * right) * (1 - down)
            + (image[:, below, left] * (1 - right) + image[:, below, beside] * right) * down)
    back = np.argsort(order)
    return np.ascontiguousarray(result.transpose(back).astype(boxes.dtype))


_BOXES = np.array([[0.1, 0.2, 0.8, 0.9], [-0.2, 0.0, 0.6, 1.2], [0.9, 0.7, 0.2, 0.1]], np.float32)
_IMAGES = np.array([1, 0, 1], np.int32)
crop_and_resize.spec(
    _crop_reference,
    op_case((2, 3, 5, 6), _BOXES, _IMAGES, crop_size=(3, 4)),
    op_case((2, 4, 5, 2), _BOXES, _IMAGES, crop_size=(1, 3), layout="NHWC",
            extrapolation_value=0.5),
    op_case((2, 1, 4, 4), _BOXES, _IMAGES, crop_size=(2, 2), method="nearest_neighbor"),
)

affine_grid.batching(merging())
grid_sample.batching(merging(0, 1, layout="layout"))
