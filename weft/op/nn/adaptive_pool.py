"""Adaptive pooling of signals, images and volumes: pooling to a given output size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import te
from weft.ir import CONTINUOUS, Attrs, Call, Expr, Homogeneity, TensorType, Tuple, attr, linear
from weft.ir.op import Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.typing.relation import Relation, RelationContext
from weft.op.batching import merging
from weft.op.gradients import tensor_type
from weft.op.layout_inference import image_layout
from weft.op.nn.conv import positive
from weft.op.nn.pool import layout_of_images
from weft.op.relations import checked, expect_float, expect_number
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.topi.nn import adaptive_pool as topi_pool
from weft.topi.nn.conv import SPATIAL_AXES

_SIZE_DOC = "sizes of the result along the spatial axes"
_LAYOUT_DOC = "layout of the data and the result"


@dataclass(frozen=True, kw_only=True)
class AdaptivePoolAttrs(Attrs):
    """Attributes of adaptive pooling; the members of the family fix the number of axes."""

    output_size: tuple[int, ...] = attr(doc=_SIZE_DOC)
    layout: str = attr(doc=_LAYOUT_DOC)

    @property
    def spatial(self) -> str:
        return SPATIAL_AXES[len(self.output_size)]


@dataclass(frozen=True, kw_only=True)
class AdaptivePool1DAttrs(AdaptivePoolAttrs):
    output_size: tuple[int] = attr((1,), _SIZE_DOC, check=positive, expected="a number >= 1")
    layout: str = attr("NCW", _LAYOUT_DOC)


@dataclass(frozen=True, kw_only=True)
class AdaptivePool2DAttrs(AdaptivePoolAttrs):
    output_size: tuple[int, int] = attr((1, 1), _SIZE_DOC, check=positive,
                                        expected="two numbers >= 1")
    layout: str = attr("NCHW", _LAYOUT_DOC)


@dataclass(frozen=True, kw_only=True)
class AdaptivePool3DAttrs(AdaptivePoolAttrs):
    output_size: tuple[int, int, int] = attr((1, 1, 1), _SIZE_DOC, check=positive,
                                             expected="three numbers >= 1")
    layout: str = attr("NCDHW", _LAYOUT_DOC)


def _relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(AdaptivePoolAttrs)
    layout = layout_of_images(ctx, source, attrs.spatial)
    shape = list(source.shape)
    for letter, count in zip(attrs.spatial, attrs.output_size, strict=True):
        axis = layout.index_of(letter)
        if shape[axis] == 0:
            ctx.fail("cannot pool an empty axis", arg=0, axis=axis, expected="a size of 1 or more",
                     got=0)
        shape[axis] = count
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def window_bounds(size: int, count: int) -> Iterator[tuple[int, int]]:
    """The start and end of each of ``count`` even windows over ``size`` elements."""
    return ((i * size // count, -(-(i + 1) * size // count)) for i in range(count))


def _reference(x: np.ndarray, attrs: AdaptivePoolAttrs, reduce: Callable[..., Any]) -> np.ndarray:
    """Reduces axis by axis, because windows are separable."""
    layout, dtype = Layout.parse(attrs.layout), x.dtype
    x = x.astype(np.float64) if reduce is np.mean else x
    for letter, count in zip(attrs.spatial, attrs.output_size, strict=True):
        axis = layout.index_of(letter)
        parts = [reduce(np.take(x, range(first, last), axis), axis=axis, keepdims=True)
                 for first, last in window_bounds(x.shape[axis], count)]
        x = np.concatenate(parts, axis=axis)
    return np.ascontiguousarray(x.astype(dtype))


def _as_pool(kind: str) -> Callable[[Call], Expr | None]:
    def decompose(call: Call) -> Expr | None:
        """Windows of equal length are those of ordinary pooling, which has its own schedule."""
        attrs: Any = call.attrs
        layout, shape = Layout.parse(attrs.layout), tensor_type(call.args[0]).shape
        sizes = [shape[layout.index_of(letter)] for letter in attrs.spatial]
        steps = [size // count if isinstance(size, int) and size % count == 0 else 0
                 for size, count in zip(sizes, attrs.output_size, strict=True)]
        if not all(steps):
            return None
        axes = len(steps)
        if all(count == 1 for count in attrs.output_size):
            return get_op(f"nn.global_{kind}_pool{axes}d")(call.args[0], layout=attrs.layout,
                                                           span=call.span)
        pool = get_op(f"nn.{kind}_pool{axes}d")
        return pool(call.args[0], pool_size=steps, strides=steps, padding=(0,) * (2 * axes),
                    layout=attrs.layout, span=call.span)

    return decompose


def _as_slices(reduce: str) -> Callable[[Call], Expr | None]:
    def expand(call: Call) -> Expr | None:
        """Each window along an axis becomes a reduced slice; the results are concatenated."""
        attrs: Any = call.attrs
        layout, x = Layout.parse(attrs.layout), call.args[0]
        shape = tensor_type(x).shape
        for letter, count in zip(attrs.spatial, attrs.output_size, strict=True):
            axis = layout.index_of(letter)
            size = shape[axis]
            if not isinstance(size, int):
                return None
            cuts = [get_op("strided_slice")(x, begin=(first,), end=(last,), axes=(axis,))
                    for first, last in window_bounds(size, count)]
            parts = [get_op(reduce)(cut, axis=(axis,), keepdims=True) for cut in cuts]
            x = get_op("concatenate")(Tuple(tuple(parts)), axis=axis)
        return x

    return expand


_TRAITS = {
    "avg": linear(replace(CONTINUOUS, homogeneity=Homogeneity.ANY_SCALE)),
    "max": replace(CONTINUOUS, homogeneity=Homogeneity.POSITIVE),
}


def _define(
    kind: str, axes: int, attrs_type: type[AdaptivePoolAttrs], cases: Sequence[Case]
) -> Op:
    compute = topi_pool.adaptive_avg_pool if kind == "avg" else topi_pool.adaptive_max_pool
    reduce: Callable[..., Any] = np.mean if kind == "avg" else np.max
    relation: Relation = checked(expect_float if kind == "avg" else expect_number, _relation)

    def run(x: te.Tensor, attrs: AdaptivePoolAttrs) -> te.Tensor:
        return compute(x, attrs.output_size, Layout.parse(attrs.layout), attrs.spatial)

    what = "The mean" if kind == "avg" else "The largest element"
    run.__doc__ = (f"{what} of each of ``output_size`` windows.\n\n"
                   "Window i of m over n elements reaches from floor(i * n / m) to\n"
                   "ceil((i + 1) * n / m).")
    op = define_op(f"nn.adaptive_{kind}_pool{axes}d", attrs=attrs_type, relation=relation,
                   pattern=OpPattern.OUT_FUSABLE, level=10, inputs=("x",),
                   traits=_TRAITS[kind])(run)
    op.layout(image_layout)
    op.decomposition(_as_pool(kind))
    op.expansion(_as_slices("mean" if kind == "avg" else "max"))
    op.batching(merging(layout="layout"))
    op.spec(lambda x, **values: _reference(x, attrs_type(**values), reduce), *cases)
    return op


_CASES_1D = (op_case((2, 3, 7), output_size=(3,)), op_case((1, 2, 8), output_size=(4,)),
             op_case((1, 3, 2), output_size=(5,)),
             op_case((1, 5, 3), output_size=(2,), layout="NWC"),
             op_case((1, 2, 4), output_size=(1,)))
_CASES_2D = (op_case((1, 2, 7, 5), output_size=(3, 2)), op_case((1, 2, 6, 4), output_size=(3, 2)),
             op_case((1, 2, 5, 5, 4), output_size=(2, 5), layout="NCHW4c"),
             op_case((2, 2, 3, 4), output_size=(1, 1)), op_case((0, 2, 3, 4), output_size=(2, 3)))
_CASES_3D = (op_case((1, 2, 3, 4, 5), output_size=(2, 2, 3)),
             op_case((1, 2, 4, 2, 6), output_size=(2, 1, 3)),
             op_case((1, 3, 2, 3, 2), output_size=(2, 2, 1), layout="NDHWC"))
_INTEGERS = {"dtypes": "int32", "low": -9, "high": 9}

adaptive_avg_pool1d = _define("avg", 1, AdaptivePool1DAttrs, _CASES_1D)
adaptive_avg_pool2d = _define("avg", 2, AdaptivePool2DAttrs, _CASES_2D)
adaptive_avg_pool3d = _define("avg", 3, AdaptivePool3DAttrs, _CASES_3D)
adaptive_max_pool1d = _define("max", 1, AdaptivePool1DAttrs, (
    *_CASES_1D, op_case((1, 2, 5), output_size=(2,), **_INTEGERS)))
adaptive_max_pool2d = _define("max", 2, AdaptivePool2DAttrs, (
    *_CASES_2D, op_case((1, 1, 5, 4), output_size=(2, 3), **_INTEGERS)))
adaptive_max_pool3d = _define("max", 3, AdaptivePool3DAttrs, _CASES_3D)
