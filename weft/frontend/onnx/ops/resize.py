"""Converters of Resize and Upsample.

Along each axis, an output element is a fixed linear combination of input elements, so each axis is
resampled as a sum over taps of ``take(x, positions) * weights``, where both are constant. The
formulas are those of the Resize specification (opsets 10 to 19).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from weft import op
from weft.frontend.common.resampling import resampling_order
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.resize_symbolic import (
    SymbolicAxis,
    resize_symbolic_axes,
    scaled_size,
)
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.shape_value import ShapeValue
from weft.ir.expr import Constant, Expr
from weft.support.allocation import check_nodes, check_numbers
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

_ATTRIBUTES = ("antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a",
               "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy", "mode",
               "nearest_mode")
_MODES = ("nearest", "linear", "cubic")
_NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


@dataclass(frozen=True)
class AxisResize:
    """Resampling of one axis: input and output size, given scale, and region of interest."""

    size: int
    new_size: int
    scale: float
    start: float
    end: float

    def source(self, position: int, mode: str) -> float:
        """Return the input coordinate of an output position."""
        n, m = self.size, self.scale * self.size  # not rounded, by the specification
        if mode == "align_corners":
            return position * (n - 1) / (m - 1) if m > 1 else 0.0
        if mode == "asymmetric":
            return position / self.scale
        if mode == "tf_half_pixel_for_nn":
            return (position + 0.5) / self.scale
        if mode == "tf_crop_and_resize":
            if m == 1:
                return 0.5 * (self.start + self.end) * (n - 1)
            width = (self.end - self.start) * (n - 1)
            return self.start * (n - 1) + position * width / (m - 1)
        if mode == "pytorch_half_pixel" and m == 1:
            return -0.5
        half = (position + 0.5) / self.scale - 0.5
        if mode != "half_pixel_symmetric":
            return half
        centre = n / 2 * (1 - self.new_size / m)
        return centre + half


@dataclass(frozen=True)
class Kernel:
    """An interpolation kernel: weight by distance, and the radius of its support."""

    weigh: Callable[[float], float]
    reach: float


def _kernel_of(node: Node, mode: str) -> Kernel:
    if mode == "linear":
        return Kernel(lambda d: max(0.0, 1 - d), 1.0)
    a = node.attrs.number("cubic_coeff_a", -0.75)
    return Kernel(lambda d: _cubic(d, a), 2.0)


def _cubic(d: float, a: float) -> float:
    """Keys' convolution kernel."""
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0


def _nearest_taps(node: Node, axis: AxisResize, transform: str) -> list[list[tuple[int, float]]]:
    rounding = _NEAREST[node.attrs.one_of("nearest_mode", "round_prefer_floor", tuple(_NEAREST))]
    check_numbers(2 * axis.new_size)
    positions = [rounding(axis.source(i, transform)) for i in range(axis.new_size)]
    return [[(min(max(p, 0), axis.size - 1), 1.0)] for p in positions]


def _weighted_taps(
    node: Node, axis: AxisResize, transform: str, kernel: Kernel
) -> list[list[tuple[int, float]]]:
    """Return the taps of each output position; antialiasing widens the kernel for downsampling."""
    shrink = min(axis.scale, 1.0) if node.attrs.flag("antialias") else 1.0
    reach = kernel.reach / shrink
    inside_only = node.attrs.flag("exclude_outside")
    check_numbers(math.ceil(2 * reach) * axis.new_size)
    result = []
    for i in range(axis.new_size):
        x = axis.source(i, transform)
        first, last = math.floor(x - reach) + 1, math.ceil(x + reach) - 1
        if math.floor(x) == x and shrink == 1.0:
            first, last = int(x), int(x)
        taps = [(p, kernel.weigh(abs(x - p) * shrink)) for p in range(first, last + 1)]
        if inside_only:
            taps = [(p, w) for p, w in taps if 0 <= p < axis.size]
        total = sum(w for _, w in taps) or 1.0
        result.append([(min(max(p, 0), axis.size - 1), w / total) for p, w in taps])
    return result


def _resized(node: Node, x: Expr, index: int, taps: list[list[tuple[int, float]]]) -> Expr:
    """Resample axis ``index`` by the taps (position, weight) of each output position."""
    rank = len(tensor_type(x).shape)
    count = max(map(len, taps), default=1)
    check_nodes(count)
    padded = [row + [(row[-1][0], 0.0)] * (count - len(row)) for row in taps]
    terms = []
    for k in range(count):
        positions = np.array([row[k][0] for row in padded], np.int64)
        if positions.max(initial=0) < 2**31:  # gathers take more of int32 at once
            positions = positions.astype(np.int32)
        weights = np.array([row[k][1] for row in padded])
        term = node.call(op.take, x, Constant(positions, span=node.span), axis=index, mode="clip")
        if not (weights == 1).all():
            factor = weights.reshape(-1, *(1,) * (rank - index - 1))
            term = node.call(op.multiply, term, node.constant(factor, tensor_type(x).dtype))
        terms.append(term)
    return reduce(lambda a, b: node.call(op.add, a, b), terms)


def _outside(axis: AxisResize, transform: str) -> np.ndarray:
    """Return a mask of output positions outside the input (``tf_crop_and_resize``)."""
    positions = [axis.source(i, transform) for i in range(axis.new_size)]
    return np.array([not 0 <= p <= axis.size - 1 for p in positions])


def resize_axes(node: Node, axes: Sequence[AxisResize], transform: str) -> Expr:
    """Resample the axes one after the other, in the cheapest order; unchanged axes are skipped."""
    x, dtype = node.input(0), node.dtype()
    mode = node.attrs.one_of("mode", "nearest", _MODES)
    interpolates = mode != "nearest"
    if interpolates and not dtype.is_float:
        x = node.call(op.cast, x, dtype="float32")
    beyond = np.zeros((), bool)
    changed = {i: axis.new_size / axis.size for i, axis in enumerate(axes)
               if (axis.size, axis.scale, axis.start, axis.end) != (axis.new_size, 1.0, 0, 1)}
    for index in resampling_order(changed):
        axis = axes[index]
        if interpolates:
            taps = _weighted_taps(node, axis, transform, _kernel_of(node, mode))
        else:
            taps = _nearest_taps(node, axis, transform)
        x = _resized(node, x, index, taps)
        if transform == "tf_crop_and_resize":
            outside = _outside(axis, transform).reshape(-1, *(1,) * (len(axes) - index - 1))
            beyond = beyond | outside
    if beyond.any():
        fill = node.scalar_like(node.attrs.number("extrapolation_value", 0.0), x)
        x = node.call(op.where, Constant(beyond, span=node.span), fill, x)
    if interpolates and not dtype.is_float:
        x = node.call(op.cast, node.call(op.round, x), dtype=dtype.name)
    return x


def _fixed_shape(node: Node) -> tuple[int, ...]:
    shape = tuple(d for d in node.shape() if isinstance(d, int))
    if len(shape) < node.rank() or 0 in shape:
        raise UnsupportedModelError(f"{node.op} of symbolic or zero sizes", where=node.span,
                                    help='fix the sizes: inputs={"x": (1, 3, 224, 224)}')
    return shape


def _spread(
    node: Node, axes: Sequence[int], values: Sequence[float], default: Sequence[float]
) -> list[float]:
    if len(values) != len(axes):
        raise node.fail("scales, sizes or roi do not match the axes", expected=str(len(axes)),
                        got=str(len(values)))
    full = list(default)
    for axis, value in zip(axes, values, strict=True):
        full[axis] = value
    return full


@converts("Upsample", since=7, attributes=("mode", "scales"))
def upsample_by_attribute(node: Node) -> Expr:
    return _scaled_by(node, node.attrs.numbers("scales") or ())


@converts("Upsample", since=9, attributes=("mode",))
@converts("Resize", since=10, attributes=("mode",))
def upsample(node: Node) -> Expr:
    return _scaled_by(node, [float(s) for s in node.array(1, "scales").reshape(-1)])


def _scaled_by(node: Node, scales: Sequence[float]) -> Expr:
    """Resample with asymmetric coordinates, rounded down, as defined before opset 11."""
    if not all(isinstance(d, int) for d in node.shape()):
        return _symbolic_by_scales(node, range(node.rank()), scales, "asymmetric")
    shape = _fixed_shape(node)
    if len(scales) != len(shape) or min(scales, default=1) <= 0:
        raise node.fail("the shape of the scales does not match the input", got=str(tuple(scales)))
    if node.attrs.text("mode", "nearest") != "nearest":
        axes = [AxisResize(n, math.floor(n * s), s, 0.0, 1.0)
                for n, s in zip(shape, scales, strict=True)]
        return resize_axes(node, axes, "asymmetric")
    x = node.input(0)
    for index, (n, s) in enumerate(zip(shape, scales, strict=True)):
        check_numbers(math.floor(n * s))
        positions = [min(math.floor(i / s), n - 1) for i in range(math.floor(n * s))]
        if s != 1:
            x = _resized(node, x, index, [[(p, 1.0)] for p in positions])
    return x


@converts("Resize", since=11, attributes=_ATTRIBUTES)
def resize(node: Node) -> Expr:
    rank = node.rank()
    transform = node.attrs.text("coordinate_transformation_mode", "half_pixel")
    named = node.attrs.integers("axes")
    axes = tuple(range(rank)) if named is None else node.axes(named, rank)
    if node.has_input(3) and node.has_input(2) and node.shape(2) != (0,):
        raise node.fail("both scales and sizes are given", expected="one of them")
    if isinstance(node.inputs[-1], ShapeValue) or not all(
            isinstance(d, int) for d in node.shape()):
        return _symbolic(node, axes, transform)
    shape = _fixed_shape(node)
    roi = _region(node, axes, rank, transform)
    scales, sizes = _scales_and_sizes(node, axes, shape)
    records = [AxisResize(*record) for record in zip(shape, sizes, scales, *roi, strict=True)]
    return resize_axes(node, records, transform)


def _symbolic(node: Node, axes: Sequence[int], transform: str) -> Expr:
    """Resize axes of symbolic size, by scales or to sizes."""
    if node.has_input(2) and node.array(2, "scales").size:
        scales = [float(v) for v in node.array(2, "scales").reshape(-1)]
        return _symbolic_by_scales(node, axes, scales, transform)
    if node.attrs.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedModelError("Resize of symbolic sizes that keeps the aspect ratio",
                                    where=node.span)
    shape, sizes = node.shape(), node.dims(3, "sizes")
    if len(sizes) != len(axes):
        raise node.fail("the sizes do not match the axes", expected=str(len(axes)),
                        got=str(len(sizes)))
    records = [SymbolicAxis(a, shape[a], m, None) for a, m in zip(axes, sizes, strict=True)
               if m != shape[a]]
    return resize_symbolic_axes(node, records, transform)


def _symbolic_by_scales(node: Node, axes: Sequence[int], scales: Sequence[float], transform: str
                        ) -> Expr:
    shape = node.shape()
    if len(scales) != len(axes) or min(scales, default=1) <= 0:
        raise node.fail("the scales do not match the axes", got=str(tuple(scales)))
    records = [SymbolicAxis(a, shape[a], scaled_size(node, shape[a], s), s)
               for a, s in zip(axes, scales, strict=True) if s != 1]
    return resize_symbolic_axes(node, records, transform)


def _region(
    node: Node, axes: tuple[int, ...], rank: int, transform: str
) -> tuple[list[float], list[float]]:
    zeros, ones = [0.0] * rank, [1.0] * rank
    if transform != "tf_crop_and_resize" or not node.has_input(1):
        return zeros, ones
    values = [float(v) for v in node.array(1, "roi").reshape(-1)]
    half = len(values) // 2
    return _spread(node, axes, values[:half], zeros), _spread(node, axes, values[half:], ones)


def _scales_and_sizes(
    node: Node, axes: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[list[float], list[int]]:
    if node.has_input(2) and node.array(2, "scales").size:
        given = [float(v) for v in node.array(2, "scales").reshape(-1)]
        scales = _spread(node, axes, given, [1.0] * len(shape))
        if min(scales) <= 0:
            raise node.fail("a scale is not positive", got=str(given))
        return scales, [math.floor(n * s) for n, s in zip(shape, scales, strict=True)]
    wanted = _spread(node, axes, node.ints(3, "sizes"), shape)
    sizes = [int(v) for v in wanted]
    scales = [m / n for m, n in zip(sizes, shape, strict=True)]
    policy = node.attrs.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        pick = min if policy == "not_larger" else max
        common = pick(scales[a] for a in axes)
        for a in axes:
            scales[a], sizes[a] = common, math.floor(shape[a] * common + 0.5)
    return scales, sizes
