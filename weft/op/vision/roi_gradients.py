"""Derivatives of roi_align and roi_pool, as operators.

They differentiate with regard to the data. The regions count as constants, as in torchvision: their
numbers hold the index of an image, and detectors do not learn through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Call, Case, Expr, Op, OpPattern, RelationContext, Shape, TensorType, define_op
from weft.op.gradients import typed_zeros
from weft.op.vision.roi_attrs import RoiPoolAttrs, expect_regions, from_images, to_images
from weft.support.dataclass import dataclass
from weft.topi.vision import roi as topi

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
