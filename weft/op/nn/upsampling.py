"""Upsampling of images and volumes by scale factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import AnyDim, Attrs, Call, Dim, Expr, TensorType, attr, dim_mul, one_of
from weft.ir.op import Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.traits import CONTINUOUS, Family, in_family, linear
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import tensor_type
from weft.op.layout_inference import image_layout
from weft.op.nn.pool import layout_of_images
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, int_value
from weft.topi.image.reference import resized
from weft.topi.image.resize import repeat_nearest, resize
from weft.topi.image.taps import Resampling
from weft.topi.layout import Layout

_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "trilinear": "linear",
            "bicubic": "cubic"}


def _scale_attr(axis: str) -> Any:
    return attr(1.0, f"factor along the {axis}", check=lambda s: s > 0, expected="a number > 0")


def _method_attr(default: str, *choices: str) -> Any:
    return attr(default, "interpolation of new elements", check=one_of(*choices),
                expected=", ".join(choices))


@dataclass(frozen=True, kw_only=True)
class UpSamplingAttrs(Attrs):
    scale_h: float = _scale_attr("height")
    scale_w: float = _scale_attr("width")
    layout: str = attr("NCHW", "layout of the data and the result")
    method: str = _method_attr("nearest_neighbor", "nearest_neighbor", "bilinear", "bicubic")
    align_corners: bool = attr(False, "align the centres of the outermost elements")

    @property
    def scales(self) -> dict[str, float]:
        """The factors by the letters of their axes."""
        return {"H": self.scale_h, "W": self.scale_w}


@dataclass(frozen=True, kw_only=True)
class UpSampling3DAttrs(Attrs):
    scale_d: float = _scale_attr("depth")
    scale_h: float = _scale_attr("height")
    scale_w: float = _scale_attr("width")
    layout: str = attr("NCDHW", "layout of the data and the result")
    method: str = _method_attr("nearest_neighbor", "nearest_neighbor", "trilinear")
    align_corners: bool = attr(False, "align the centres of the outermost elements")

    @property
    def scales(self) -> dict[str, float]:
        """The factors by the letters of their axes."""
        return {"D": self.scale_d, "H": self.scale_h, "W": self.scale_w}


def _is_repetition(attrs: Any) -> bool:
    """Whether every element is repeated an integral number of times."""
    return (attrs.method == "nearest_neighbor" and not attrs.align_corners
            and all(s.is_integer() for s in attrs.scales.values()))


def _enlarged(attrs: Any, size: Dim, letter: str) -> Dim | None:
    """The size along an axis; ``None`` if it depends on a symbolic size."""
    scale = attrs.scales[letter]
    if isinstance(size, int):
        return round(size * scale)
    return dim_mul(size, int(scale)) if scale.is_integer() else None


def _relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_number(0, source)
    attrs: Any = ctx.attrs_as(Attrs)
    layout = layout_of_images(ctx, source, "".join(attrs.scales))
    shape = list(source.shape)
    for letter in attrs.scales:
        axis = layout.index_of(letter)
        size = _enlarged(attrs, shape[axis], letter)
        if size is None or size == 0:
            ctx.fail("cannot upsample the axis", arg=0, axis=axis,
                     expected="a static size of 1 or more", got=shape[axis])
        else:
            shape[axis] = size
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def _axes(attrs: Any, shape: Sequence[PrimExpr | int]) -> dict[int, Resampling]:
    """Relay's convention: input positions are multiples of the inverse scale."""
    layout = Layout.parse(attrs.layout)
    mode = "align_corners" if attrs.align_corners else "asymmetric"
    axes = {}
    for letter, scale in attrs.scales.items():
        axis = layout.index_of(letter)
        size = shape[axis]
        new_size = round(size * scale) if isinstance(size, int) else size * int(scale)
        axes[axis] = Resampling(new_size, _METHODS[attrs.method], mode, "floor",
                                cubic_alpha=-0.5)
    return axes


def _as_resize(call: Call) -> Expr | None:
    attrs: Any = call.attrs
    shape = tensor_type(call.args[0]).shape
    layout, letters = Layout.parse(attrs.layout), tuple(attrs.scales)
    sizes = tuple(_enlarged(attrs, shape[layout.index_of(a)], a) for a in letters)
    if None in sizes or any(isinstance(size, AnyDim) for size in sizes):
        return None
    return get_op(f"image.resize{len(letters)}d")(
        call.args[0], size=sizes, layout=attrs.layout, method=_METHODS[attrs.method],
        coordinate_transformation_mode="align_corners" if attrs.align_corners else "asymmetric",
        rounding_method="floor", cubic_alpha=-0.5,
    )


def _define(name: str, attrs_type: type[Attrs], cases: Sequence[Case]) -> Op:
    def run(x: te.Tensor, attrs: Any) -> te.Tensor:
        layout = Layout.parse(attrs.layout)
        if _is_repetition(attrs):
            return repeat_nearest(x, {layout.index_of(a): int(s) for a, s in attrs.scales.items()})
        sizes = [size if int_value(size) is None else int_value(size) or 0 for size in x.shape]
        return resize(x, _axes(attrs, sizes), x.dtype, 0.0)

    def reference(x: np.ndarray, **values: Any) -> np.ndarray:
        return resized(x, _axes(attrs_type(**values), x.shape), x.dtype, 0.0)

    run.__doc__ = (
        "The data upsampled (or shrunk) by scale factors along its spatial axes.\n\n"
        "Output position i maps to i / scale on the input; ``align_corners`` aligns the outermost\n"
        "elements instead."
    )
    op = define_op(name, attrs=attrs_type, relation=_relation, pattern=OpPattern.OUT_FUSABLE,
                   level=2, inputs=("x",),
                   traits=in_family(Family.RESAMPLING, linear(CONTINUOUS)))(run)
    op.layout(image_layout)
    op.expansion(_as_resize)
    op.batching(merging(layout="layout"))
    op.spec(reference, *cases)
    return op


upsampling = _define("nn.upsampling", UpSamplingAttrs, (
    op_case((1, 2, 3, 4), scale_h=2.0, scale_w=3.0),
    op_case((1, 2, 3, 4), scale_h=2.0, scale_w=2.0, method="bilinear"),
    op_case((1, 2, 4, 3), scale_h=1.5, scale_w=2.0, method="bilinear", align_corners=True),
    op_case((1, 3, 3, 2), scale_h=2.0, scale_w=2.0, method="bicubic", layout="NHWC"),
    op_case((1, 1, 4, 4), scale_h=0.5, scale_w=1.5),
    op_case((1, 1, 3, 3, 4), scale_h=2.0, scale_w=2.0, layout="NCHW4c"),
    op_case((1, 1, 2, 2), scale_h=2.0, scale_w=1.0, dtypes="int32", low=-9, high=9),
))
upsampling3d = _define("nn.upsampling3d", UpSampling3DAttrs, (
    op_case((1, 2, 2, 3, 2), scale_d=2.0, scale_h=2.0, scale_w=3.0),
    op_case((1, 1, 3, 2, 2), scale_d=1.0, scale_h=2.0, scale_w=2.5, method="trilinear",
            align_corners=True),
))
