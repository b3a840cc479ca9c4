"""Resampling of signals, images and volumes on a regular grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import AnyDim, Attrs, Call, DType, Expr, KnownDim, attr, const, one_of, sizes_from
from weft.ir.op import Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.substitution import has_symbols
from weft.ir.traits import CONTINUOUS, Family, in_family
from weft.ir.types import TensorType, is_static
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import numbered, tensor_type
from weft.op.layout_inference import image_layout
from weft.op.nn.pool import layout_of_images
from weft.op.relations import output_dtype
from weft.support.dataclass import dataclass
from weft.topi.image import resize as topi_resize
from weft.topi.image.reference import beyond, resized, taps_matrix
from weft.topi.image.taps import METHODS, ROUNDINGS, TRANSFORMS, Resampling
from weft.topi.layout import Layout
from weft.topi.nn.conv import SPATIAL_AXES
from weft.topi.sizes import as_size

_SIZE_DOC = "sizes of the result along the spatial axes"
_LAYOUT_DOC = "layout of the data and the result"


def _choice_attr(default: str, choices: Sequence[str], doc: str) -> Any:
    return attr(default, doc, check=one_of(*choices), expected=", ".join(choices))


@dataclass(frozen=True, kw_only=True)
class ResizeAttrs(Attrs):
    """Attributes of resizing; the members of the family fix the number of axes."""

    size: tuple[KnownDim, ...] = attr(doc=_SIZE_DOC)
    roi: tuple[float, ...] = attr((), "region that tf_crop_and_resize reads, as fractions of the "
                                  "axes: all starts, then all ends; empty for the whole")
    layout: str = attr(doc=_LAYOUT_DOC)
    method: str = _choice_attr("linear", METHODS, "interpolation between elements")
    coordinate_transformation_mode: str = _choice_attr(
        "half_pixel", TRANSFORMS, "coordinate of an output element on the input"
    )
    rounding_method: str = _choice_attr("round_prefer_floor", ROUNDINGS,
                                        "which element is nearest to a position")
    cubic_alpha: float = attr(-0.75, "parameter of the cubic kernel")
    cubic_exclude: bool = attr(False, "exclude elements outside the data from the sums")
    antialias: bool = attr(False, "widen the kernel where an axis shrinks")
    extrapolation_value: float = attr(0.0, "value outside the data for tf_crop_and_resize")
    scales: tuple[float, ...] = attr((), "scale factors, if they are not the ratio of the "
                                     "sizes; empty otherwise",
                                     check=lambda s: all(v > 0 for v in s),
                                     expected="numbers > 0")
    out_dtype: DType | None = attr(None, "dtype of the result; None for the data's")

    @property
    def spatial(self) -> str:
        return SPATIAL_AXES[len(self.size)]

    def axes(self) -> dict[str, Resampling]:
        """The resampling of each spatial axis, by its letter."""
        rank = len(self.size)
        starts = self.roi[:rank] or (0.0,) * rank
        ends = self.roi[rank:] or (1.0,) * rank
        scales: tuple[float | None, ...] = self.scales or (None,) * rank
        return {
            letter: Resampling(as_size(size), self.method, self.coordinate_transformation_mode,
                               self.rounding_method, self.cubic_alpha, self.cubic_exclude,
                               self.antialias, scale, start, end)
            for letter, size, scale, start, end
            in zip(self.spatial, self.size, scales, starts, ends, strict=True)
        }


def _size_attr(axes: int) -> Any:
    return attr(doc=_SIZE_DOC, check=sizes_from(1),
                expected=f"{axes} numbers >= 1")


@dataclass(frozen=True, kw_only=True)
class Resize1DAttrs(ResizeAttrs):
    size: tuple[KnownDim] = _size_attr(1)
    layout: str = attr("NCW", _LAYOUT_DOC)


@dataclass(frozen=True, kw_only=True)
class Resize2DAttrs(ResizeAttrs):
    size: tuple[KnownDim, KnownDim] = _size_attr(2)
    layout: str = attr("NCHW", _LAYOUT_DOC)


@dataclass(frozen=True, kw_only=True)
class Resize3DAttrs(ResizeAttrs):
    size: tuple[KnownDim, KnownDim, KnownDim] = _size_attr(3)
    layout: str = attr("NCDHW", _LAYOUT_DOC)


def _relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_number(0, source)
    attrs = ctx.attrs_as(ResizeAttrs)
    rank = len(attrs.size)
    for name, values, counts in (("roi", attrs.roi, (0, 2 * rank)),
                                 ("scales", attrs.scales, (0, rank))):
        if len(values) not in counts:
            ctx.fail(f"{name} does not fit the axes", expected=f"{counts[1]} numbers",
                     got=f"{len(values)} numbers")
    layout = layout_of_images(ctx, source, attrs.spatial)
    shape = list(source.shape)
    for letter, size in zip(attrs.spatial, attrs.size, strict=True):
        axis = layout.index_of(letter)
        if shape[axis] == 0:
            ctx.fail("cannot resize an empty axis", arg=0, axis=axis,
                     expected="a size of 1 or more", got=0)
        for given in (shape[axis], size):
            if attrs.antialias and not isinstance(given, int):
                ctx.fail("antialias needs a static size", arg=0, axis=axis, got=given)
        shape[axis] = size
    ctx.output(TensorType(tuple(shape), output_dtype(attrs, source.dtype)))
    return True


def _by_position(attrs: ResizeAttrs) -> dict[int, Resampling]:
    layout = Layout.parse(attrs.layout)
    return {layout.index_of(letter): axis for letter, axis in attrs.axes().items()}


def _as_products(call: Call) -> Expr | None:
    """Each axis as a matrix multiplication with its weights, which has a gradient."""
    attrs: Any = call.attrs
    x, type_ = call.args[0], tensor_type(call.args[0])
    # Axes of symbolic size are not looked at.
    axes = _by_position(attrs.replace(size=tuple(d if isinstance(d, int) else 1
                                                 for d in attrs.size)))
    if not type_.dtype.is_float or any(isinstance(d, AnyDim) for d in type_.shape):
        return None
    is_fixed = is_static(type_) and not has_symbols(attrs)
    if not is_fixed and attrs.coordinate_transformation_mode == "tf_crop_and_resize":
        return None  # what lies outside the data depends on the sizes
    for position, (a, axis) in enumerate(axes.items()):
        size = type_.shape[a]
        if isinstance(size, int) and isinstance(attrs.size[position], int):
            weights = const(taps_matrix(axis, size).astype(type_.dtype.numpy))
        else:
            weights = _weights(attrs, position, size, type_.dtype)
        order = (*(i for i in range(type_.ndim) if i != a), a)
        back = tuple(order.index(i) for i in range(type_.ndim))
        transposed = get_op("transpose")(x, axes=order)
        x = get_op("transpose")(get_op("nn.dense")(transposed, weights), axes=back)
    if is_fixed and (outside := beyond(axes, type_.concrete_shape)).any():
        fill = const(attrs.extrapolation_value, type_.dtype)
        x = get_op("where")(const(outside), fill, x)
    return get_op("cast")(x, dtype=attrs.out_dtype) if attrs.out_dtype else x


def _weights(attrs: Any, position: int, size: Any, dtype: DType) -> Expr:
    """The weights of a spatial axis (size of the result, ``size``): the unit vectors, resampled."""
    rank = len(attrs.size)
    kept = {name: value for name, value in attrs.items() if name not in (
        "size", "layout", "roi", "scales", "out_dtype")}
    numbers = numbered((size,))
    equal = get_op("equal")(get_op("expand_dims")(numbers, axis=1), numbers)
    unit = get_op("expand_dims")(get_op("cast")(equal, dtype=dtype), axis=0)
    resampled = get_op("image.resize1d")(
        unit, size=(attrs.size[position],), layout="NCW",
        roi=tuple(attrs.roi[position::rank]), scales=tuple(attrs.scales[position:position + 1]),
        **kept)
    return get_op("transpose")(get_op("squeeze")(resampled, axis=0), axes=(1, 0))


def _define(name: str, attrs_type: type[ResizeAttrs], cases: Sequence[Case]) -> Op:
    def run(x: te.Tensor, attrs: ResizeAttrs) -> te.Tensor:
        return topi_resize.resize(x, _by_position(attrs), attrs.out_dtype or x.dtype,
                                  attrs.extrapolation_value)

    def reference(x: np.ndarray, **values: Any) -> np.ndarray:
        attrs = attrs_type(**values)
        dtype = x.dtype if attrs.out_dtype is None else attrs.out_dtype.numpy
        return resized(x, _by_position(attrs), dtype, attrs.extrapolation_value)

    run.__doc__ = (
        "The data resampled to ``size`` along its spatial axes.\n\n"
        "The coordinate transformation maps every output element to a position on the input. The\n"
        "result is the nearest element or an interpolation, axis by axis, with the formulas of\n"
        "ONNX's Resize. Interpolated integers are rounded."
    )
    op = define_op(name, attrs=attrs_type, relation=_relation, pattern=OpPattern.OUT_FUSABLE,
                   level=5, inputs=("x",), traits=in_family(Family.RESAMPLING, CONTINUOUS))(run)
    op.layout(image_layout)
    op.expansion(_as_products)
    op.batching(merging(layout="layout"))
    op.spec(reference, *cases)
    return op


resize1d = _define("image.resize1d", Resize1DAttrs, (
    op_case((2, 3, 5), size=(8,)),
    op_case((1, 2, 7), size=(3,), method="cubic", antialias=True),
    op_case((1, 4, 2), size=(6,), method="nearest_neighbor", layout="NWC",
            coordinate_transformation_mode="asymmetric", rounding_method="floor"),
    op_case((0, 2, 4), size=(3,)),
))
resize2d = _define("image.resize2d", Resize2DAttrs, (
    op_case((1, 2, 4, 5), size=(8, 10)),
    op_case((1, 2, 5, 4), size=(3, 7), method="cubic"),
    op_case((2, 1, 3, 4), size=(7, 5), coordinate_transformation_mode="align_corners"),
    op_case((1, 1, 6, 6), size=(4, 9), method="cubic", cubic_alpha=-0.5, cubic_exclude=True),
    op_case((1, 2, 7, 9), size=(3, 4), antialias=True),
    op_case((1, 1, 24, 3), size=(2, 2), antialias=True),
    op_case((1, 3, 3, 2), size=(6, 4), method="nearest_neighbor", layout="NHWC"),
    op_case((1, 2, 4, 4), size=(7, 3), method="nearest_neighbor", rounding_method="ceil"),
    op_case((1, 2, 4, 4), size=(6, 2), method="nearest_neighbor",
            rounding_method="round_prefer_ceil", coordinate_transformation_mode="align_corners"),
    op_case((1, 1, 4, 4), size=(1, 3), coordinate_transformation_mode="pytorch_half_pixel"),
    op_case((1, 1, 4, 6), size=(3, 4), method="nearest_neighbor",
            coordinate_transformation_mode="tf_half_pixel_for_nn", rounding_method="floor"),
    op_case((1, 1, 5, 5), size=(3, 4), coordinate_transformation_mode="tf_crop_and_resize",
            roi=(0.2, -0.3, 0.8, 1.1), extrapolation_value=0.5),
    op_case((1, 1, 4, 4), size=(6, 6), coordinate_transformation_mode="half_pixel_symmetric",
            scales=(1.6, 1.7)),
    op_case((1, 1, 3, 4, 4), size=(6, 2), layout="NCHW4c"),
    op_case((1, 2, 3, 3), size=(5, 6), dtypes="int32", low=-90, high=90, atol=1.0),
    op_case((1, 2, 3, 3), size=(3, 3), out_dtype="float64",
            rtol=1e-5, atol=1e-5),  # the interpolation is in float32
))
resize3d = _define("image.resize3d", Resize3DAttrs, (
    op_case((1, 2, 2, 3, 4), size=(4, 5, 3)),
    op_case((1, 1, 3, 2, 2), size=(5, 4, 4), method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric", rounding_method="floor"),
    op_case((1, 3, 2, 3, 2), size=(2, 5, 4), method="cubic", layout="NDHWC"),
))
