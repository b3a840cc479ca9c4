"""Regions of interest: aligned and quantized pooling, and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import (
    Attrs,
    Call,
    Case,
    Expr,
    Op,
    OpPattern,
    RelationContext,
    Shape,
    TensorType,
    attr,
    define_op,
    one_of,
    op_case,
)
from weft.op.gradients import typed_zeros
from weft.op.nn.conv import positive
from weft.support.dataclass import dataclass
from weft.topi.vision import roi as topi

_AXES = "NCHW"


def _layout_attr() -> Any:
    return attr("NCHW", "layout of the data and the result", check=one_of("NCHW", "NHWC"),
                expected='"NCHW" or "NHWC"')


def _size_attr() -> Any:
    return attr(doc="height and width of the results", check=positive,
                expected="two numbers >= 1")


@dataclass(frozen=True, kw_only=True)
class RoiPoolAttrs(Attrs):
    pooled_size: tuple[int, int] = _size_attr()
    spatial_scale: float = attr(1.0, "pixels of the data per unit of the regions",
                                check=lambda s: s > 0, expected="a number > 0")
    layout: str = _layout_attr()


@dataclass(frozen=True, kw_only=True)
class RoiAlignAttrs(RoiPoolAttrs):
    sample_ratio: int = attr(-1, "samples along each side of a bin; its length in pixels if not "
                             "positive")
    mode: str = attr("avg", "reduction of the samples of a bin", check=one_of("avg", "max"),
                     expected='"avg" or "max"')
    aligned: bool = attr(False, "pixel centres are at half coordinates")


def expect_regions(
    ctx: RelationContext, data: TensorType, rois: TensorType, *, first: int = 0
) -> Shape:
    """The shape of the result for data at argument ``first`` and regions after it, checked."""
    attrs = ctx.attrs_as(RoiPoolAttrs)
    for arg, (type_, rank) in enumerate(((data, 4), (rois, 2)), start=first):
        ctx.expect_rank(arg, type_, rank)
        ctx.expect_float(arg, type_)
    ctx.expect_dim(first + 1, 1, rois.shape[1], 5, "expected five numbers per region",
                   why=" (image, x0, y0, x1, y1)")
    sizes = dict(zip(attrs.layout, data.shape, strict=True))
    for letter in "NHW":
        if sizes[letter] == 0:
            ctx.fail("cannot pool an empty axis", arg=first,
                     axis=attrs.layout.index(letter),
                     expected="a size of 1 or more", got=0)
    sizes |= {"N": rois.shape[0], "H": attrs.pooled_size[0], "W": attrs.pooled_size[1]}
    return tuple(sizes[a] for a in attrs.layout)


def to_images(layout: str) -> tuple[int, ...]:
    """The order of axes that makes images of ``layout`` NCHW."""
    return tuple(layout.index(a) for a in _AXES)


def from_images(layout: str) -> tuple[int, ...]:
    """The order of axes that makes NCHW images ones of ``layout``."""
    return tuple(_AXES.index(a) for a in layout)


# (moving, data, rois, attributes, whether the adjoint is wanted), images in NCHW.
Linear = Callable[[te.Tensor, te.Tensor, te.Tensor, Any, bool], te.Tensor]
Body = Callable[..., None]


@dataclass(frozen=True, slots=True)
class RoiDerivatives:
    """``vision.<name>_grad`` and ``vision.<name>_tangent``: adjoints of each other."""

    grad: Op
    tangent: Op

    def gradient(self, call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        """The gradient rule of the pool itself."""
        data, rois = call.args
        return [self.grad(dy, data, rois, **dict(call.attrs.items())), typed_zeros(rois)]

    def jvp(self, call: Call, _y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
        """The rule of forward mode of the pool itself."""
        if tangents[0] is None:
            return None
        found: Expr = self.tangent(tangents[0], *call.args, **dict(call.attrs.items()))
        return found


def define_derivatives(
    name: str, attrs_type: type[RoiPoolAttrs], linear: Linear,
    body: Callable[[Any, bool], tuple[Body, Sequence[Any]]], cases: Sequence[Case],
) -> RoiDerivatives:
    """The derivatives of ``vision.<name>``.

    ``body(attrs, is_adjoint)`` gives the function on arrays and its scalars; ``cases`` are those of
    the pool.
    """
    made = [_define(name, attrs_type, linear, body, cases, is_adjoint=is_adjoint)
            for is_adjoint in (True, False)]
    for operator, adjoint in (made, reversed(made)):
        operator.gradient(_rule(adjoint))
    return RoiDerivatives(*made)


def _rule(adjoint: Op) -> Callable[[Call, Expr, Expr], list[Expr]]:
    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        _, data, rois = call.args
        return [adjoint(dy, data, rois, **dict(call.attrs.items())), typed_zeros(data),
                typed_zeros(rois)]

    return rule


def _define(
    name: str, attrs_type: type[RoiPoolAttrs], linear: Linear,
    body: Callable[[Any, bool], tuple[Body, Sequence[Any]]], cases: Sequence[Case], *,
    is_adjoint: bool,
) -> Op:
    first = "grad" if is_adjoint else "tangent"

    def run(moving: te.Tensor, data: te.Tensor, rois: te.Tensor, attrs: Any) -> te.Tensor:
        order = to_images(attrs.layout)
        found = linear(topi.in_order(moving, order), topi.in_order(data, order), rois, attrs,
                       is_adjoint)
        return topi.in_order(found, from_images(attrs.layout))

    def reference(moving: np.ndarray, data: np.ndarray, rois: np.ndarray, **values: Any
                  ) -> np.ndarray:
        attrs = attrs_type(**values)
        order = to_images(attrs.layout)
        images = data.transpose(order).astype(np.float64)
        pooled = (len(rois), images.shape[1], *attrs.pooled_size)
        out = np.zeros(images.shape if is_adjoint else pooled)
        function, scalars = body(attrs, is_adjoint)
        function(moving.transpose(order).astype(np.float64), images, rois.astype(np.float64), out,
                 *scalars)
        return np.ascontiguousarray(out.transpose(from_images(attrs.layout))).astype(data.dtype)

    what = ("The gradient of the data of ``vision.{0}``, given that of its result."
            if is_adjoint else
            "The tangent of ``vision.{0}``, given that of its data.")
    run.__doc__ = (what.format(name) + "\n\nOf samples that are equal, the first is the maximum. "
                   "The regions are constants.")
    made = define_op(f"vision.{name}_{first}", attrs=attrs_type,
                     relation=_relation_of(is_adjoint=is_adjoint), pattern=OpPattern.OPAQUE,
                     level=5, inputs=(first, "data", "rois"))(run)
    made.spec(reference, *(_case(one, attrs_type, is_adjoint=is_adjoint) for one in cases))
    return made


def _case(one: Case, attrs_type: type[RoiPoolAttrs], *, is_adjoint: bool) -> Case:
    """A case of the pool, with a gradient of its result or a tangent of its data."""
    data, rois = one.inputs
    pooled = _pooled_shape(attrs_type(**one.attrs), data, len(rois))
    return Case((pooled if is_adjoint else data, data, rois), one.attrs)


def _pooled_shape(attrs: RoiPoolAttrs, data: Shape, regions: Any) -> Shape:
    sizes = dict(zip(attrs.layout, data, strict=True))
    sizes |= {"N": regions, "H": attrs.pooled_size[0], "W": attrs.pooled_size[1]}
    return tuple(sizes[a] for a in attrs.layout)


def _relation_of(*, is_adjoint: bool) -> Callable[[RelationContext], bool]:
    def relation(ctx: RelationContext) -> bool:
        types = ctx.tensors_known(3)
        if types is None:
            return False
        moving, data, rois = types
        pooled = expect_regions(ctx, data, rois, first=1)
        taken, given = (pooled, data.shape) if is_adjoint else (data.shape, pooled)
        ctx.expect_rank(0, moving, 4)
        ctx.expect_same_dtype(0, moving, data.dtype)
        for axis, (got, size) in enumerate(zip(moving.shape, taken, strict=True)):
            ctx.expect_dim(0, axis, got, size, "does not fit the data and the regions")
        ctx.output(TensorType(given, data.dtype))
        return True

    return relation


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, rois = types
    ctx.output(TensorType(expect_regions(ctx, data, rois), data.dtype))
    return True


@define_op("vision.roi_align", attrs=RoiAlignAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=5)
def roi_align(data: te.Tensor, rois: te.Tensor, attrs: RoiAlignAttrs) -> te.Tensor:
    """The mean (or maximum) of bilinear samples in each bin of each region of interest.

    ``rois`` is (regions, 5): the index of the image and two opposite corners x0, y0, x1, y1.
    """
    images = topi.in_order(data, to_images(attrs.layout))
    pooled = topi.roi_align(images, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
                            ratio=attrs.sample_ratio, mode=attrs.mode, aligned=attrs.aligned)
    return topi.in_order(pooled, from_images(attrs.layout))


@define_op("vision.roi_pool", attrs=RoiPoolAttrs, relation=_relation, pattern=OpPattern.OPAQUE,
           level=5)
def roi_pool(data: te.Tensor, rois: te.Tensor, attrs: RoiPoolAttrs) -> te.Tensor:
    """The maximum in each bin of each region of interest, whose corners are rounded.

    ``rois`` is (regions, 5): the index of the image and two opposite corners x0, y0, x1, y1.
    """
    images = topi.in_order(data, to_images(attrs.layout))
    pooled = topi.roi_pool(images, rois, size=attrs.pooled_size, scale=attrs.spatial_scale)
    return topi.in_order(pooled, from_images(attrs.layout))


def _bilinear(image: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Samples (channels, len(y), len(x)) of an image; 0 beyond one pixel around it."""
    _, height, width = image.shape

    def matrix(p: np.ndarray, size: int) -> np.ndarray:
        at = np.clip(p, 0, size - 1)
        low = at.astype(int)
        share = at - low
        rows = np.zeros((len(p), size))
        rows[np.arange(len(p)), low] += 1 - share
        rows[np.arange(len(p)), np.minimum(low + 1, size - 1)] += share
        return rows * ((p >= -1) & (p <= size))[:, None]

    return matrix(y, height) @ image @ matrix(x, width).T


def _align_reference(data: np.ndarray, rois: np.ndarray, **values: Any) -> np.ndarray:
    attrs = RoiAlignAttrs(**values)
    images = data.transpose(to_images(attrs.layout)).astype(np.float64)
    rows, columns = attrs.pooled_size
    result = np.zeros((len(rois), images.shape[1], rows, columns))
    offset = 0.5 if attrs.aligned else 0.0
    for r, (number, *corners) in enumerate(rois.astype(np.float64)):
        x0, y0, x1, y1 = np.array(corners) * attrs.spatial_scale - offset
        long, high = (x1 - x0, y1 - y0) if attrs.aligned else (max(x1 - x0, 1), max(y1 - y0, 1))
        down, across = ((attrs.sample_ratio,) * 2 if attrs.sample_ratio > 0
                        else (math.ceil(high / rows), math.ceil(long / columns)))
        y = y0 + (np.arange(rows * down) + 0.5) * high / (rows * down)
        x = x0 + (np.arange(columns * across) + 0.5) * long / (columns * across)
        samples = _bilinear(images[int(number)], y, x).reshape(-1, rows, down, columns, across)
        reduce = np.mean if attrs.mode == "avg" else np.max
        result[r] = reduce(samples, axis=(2, 4))
    back = result.transpose(from_images(attrs.layout)).astype(data.dtype)
    return np.ascontiguousarray(back)


def _pool_reference(data: np.ndarray, rois: np.ndarray, **values: Any) -> np.ndarray:
    attrs = RoiPoolAttrs(**values)
    images = data.transpose(to_images(attrs.layout))
    rows, columns = attrs.pooled_size
    result = np.zeros((len(rois), images.shape[1], rows, columns), data.dtype)
    for r, (number, *corners) in enumerate(rois.astype(np.float64)):
        x0, y0, x1, y1 = (math.floor(c * attrs.spatial_scale + 0.5) for c in corners)
        high, long = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for i, j in np.ndindex(rows, columns):
            top, below = y0 + i * high // rows, y0 - (-(i + 1) * high // rows)
            left, right = x0 + j * long // columns, x0 - (-(j + 1) * long // columns)
            bin_ = images[int(number), :, max(top, 0):max(below, 0), max(left, 0):max(right, 0)]
            if bin_.size:
                result[r, :, i, j] = bin_.max(axis=(1, 2))
    return np.ascontiguousarray(result.transpose(from_images(attrs.layout)))


_ROIS = np.array([[0, 1.2, 0.7, 6.3, 5.1], [1, -2.0, 3.0, 4.5, 9.0], [0, 2.0, 2.0, 2.2, 2.1]],
                 np.float32)
_ALIGN_CASES = (
    op_case((2, 3, 7, 8), _ROIS, pooled_size=(2, 3)),
    op_case((2, 2, 7, 8), _ROIS, pooled_size=(2, 2), sample_ratio=2, spatial_scale=0.5,
            aligned=True),
    op_case((2, 6, 5, 2), _ROIS, pooled_size=(2, 1), layout="NHWC", mode="max"),
)
_POOL_CASES = (
    op_case((2, 3, 7, 8), _ROIS, pooled_size=(2, 3)),
    op_case((2, 6, 5, 2), _ROIS, pooled_size=(3, 2), layout="NHWC", spatial_scale=0.5),
)
roi_align.spec(_align_reference, *_ALIGN_CASES)
roi_pool.spec(_pool_reference, *_POOL_CASES)

_align_derivatives = define_derivatives(
    "roi_align", RoiAlignAttrs,
    lambda moving, data, rois, attrs, is_adjoint: topi.roi_align_linear(
        moving, data, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
        ratio=attrs.sample_ratio, mode=attrs.mode, aligned=attrs.aligned, is_adjoint=is_adjoint),
    lambda attrs, is_adjoint: (topi.align_linear, (
        attrs.spatial_scale, attrs.sample_ratio, attrs.mode == "max",
        0.5 if attrs.aligned else 0.0, is_adjoint)),
    _ALIGN_CASES,
)
_pool_derivatives = define_derivatives(
    "roi_pool", RoiPoolAttrs,
    lambda moving, data, rois, attrs, is_adjoint: topi.roi_pool_linear(
        moving, data, rois, size=attrs.pooled_size, scale=attrs.spatial_scale,
        is_adjoint=is_adjoint),
    lambda attrs, is_adjoint: (topi.pool_linear, (attrs.spatial_scale, is_adjoint)),
    _POOL_CASES,
)
roi_align_grad, roi_align_tangent = _align_derivatives.grad, _align_derivatives.tangent
roi_pool_grad, roi_pool_tangent = _pool_derivatives.grad, _pool_derivatives.tangent
for _pool, _derivatives in ((roi_align, _align_derivatives), (roi_pool, _pool_derivatives)):
    _pool.gradient(_derivatives.gradient)
    _pool.jvp(_derivatives.jvp)
