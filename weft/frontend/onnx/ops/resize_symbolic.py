"""Resize of axes of symbolic size: positions and weights are computed at run time.

The formulas are those of ``resize``, in the same float64 arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.reshaping import positions
from weft.frontend.onnx.shape_value import Ratio
from weft.ir import AnyDim, Dim, Expr, SymDim
from weft.op.composites.terms import Term
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

_TRANSFORMS = ("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric",
               "pytorch_half_pixel", "tf_half_pixel_for_nn")


@dataclass(frozen=True)
class SymbolicAxis:
    """Resampling of axis ``index``; ``scale`` is ``None`` for the quotient of the sizes."""

    index: int
    size: Dim
    new_size: Dim
    scale: float | None


def scaled_size(node: Node, size: Dim, scale: float) -> Dim:
    """floor(size * scale), if floats do not round the product."""
    if isinstance(size, SymDim):
        try:
            return Ratio(size).times(scale).floor()
        except TypeError:
            raise UnsupportedModelError(f"{node.op} of a symbolic size by {scale}",
                                        where=node.span, expected="a simple fraction") from None
    return size if isinstance(size, AnyDim) else int(size * scale)


def resize_symbolic_axes(node: Node, axes: Sequence[SymbolicAxis], transform: str) -> Expr:
    """Resample ``axes`` one after the other; all other axes keep their sizes.

    Raises ``UnsupportedModelError`` for the options whose number of taps depends on the sizes.
    """
    mode = node.attrs.one_of("mode", "nearest", ("nearest", "linear", "cubic"))
    refused = [name for name in ("antialias", "exclude_outside") if node.attrs.flag(name)]
    if refused or transform not in _TRANSFORMS:
        raise UnsupportedModelError(
            f"{node.op} of symbolic sizes", where=node.span, expected=", ".join(_TRANSFORMS),
            got=", ".join(refused) or transform)
    x, dtype = node.input(0), node.dtype()
    interpolates = mode != "nearest"
    if interpolates and not dtype.is_float:
        x = node.call(op.cast, x, dtype="float32")
    for axis in axes:
        source = _source(node, axis, transform)
        x = (_interpolated(node, x, axis.index, source, mode) if interpolates
             else _taken(node, x, axis.index, _nearest(node, source)))
    if interpolates and not dtype.is_float:
        x = node.call(op.cast, node.call(op.round, x), dtype=dtype.name)
    return x


def _source(node: Node, axis: SymbolicAxis, transform: str) -> Term:
    """The input coordinate of each output position, float64."""
    def real(size: Dim) -> Term:
        return Term(node, node.call(op.cast, node.size(size), dtype="float64"))

    i = Term(node, node.call(op.cast, positions(node, axis.new_size), dtype="float64"))
    n, new = real(axis.size), real(axis.new_size)
    scale = new / n if axis.scale is None else Term(node, node.constant(axis.scale, "float64"))
    m = scale * n
    if transform == "align_corners":
        # One position takes the first element; the divisor only has to differ from 0.
        several = m > 1.0
        return several.apply("where", i * (n - 1.0) / several.apply("where", m - 1.0, m), i * 0.0)
    if transform == "asymmetric":
        return i / scale
    if transform == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    half = (i + 0.5) / scale - 0.5
    if transform == "pytorch_half_pixel":
        return (m > 1.0).apply("where", half, i * 0.0 - 0.5)
    if transform == "half_pixel_symmetric":
        return half + n / 2.0 * (1.0 - new / m)
    return half


def _nearest(node: Node, source: Term) -> Expr:
    rounding = node.attrs.text("nearest_mode", "round_prefer_floor")
    moved = {"round_prefer_floor": source - 0.5, "round_prefer_ceil": source + 0.5}
    up = rounding in ("round_prefer_floor", "ceil")
    value = moved.get(rounding, source).expr
    return node.call(op.cast, node.call(op.ceil if up else op.floor, value), dtype="int64")


def _taken(node: Node, x: Expr, axis: int, indices: Expr) -> Expr:
    return node.call(op.take, x, indices, axis=axis, mode="clip")


def _interpolated(node: Node, x: Expr, axis: int, source: Term, mode: str) -> Expr:
    """The sum of 2 (linear) or 4 (cubic) neighbours, times their weights."""
    first = node.call(op.floor, source.expr)
    fraction = source - Term(node, first)
    start = node.call(op.cast, first, dtype="int64")
    dtype, rest = tensor_type(x).dtype, tensor_type(x).ndim - axis - 1
    terms = []
    for offset, weight in _weights(node, fraction, mode):
        indices = node.call(op.add, start, node.constant(offset, "int64"))
        factor = node.call(op.cast, weight.expr, dtype=dtype)
        if rest:
            factor = node.call(op.expand_dims, factor, axis=1, num_newaxis=rest)
        terms.append(node.call(op.multiply, _taken(node, x, axis, indices), factor))
    return reduce(lambda a, b: node.call(op.add, a, b), terms)


def _weights(node: Node, fraction: Term, mode: str) -> list[tuple[int, Term]]:
    """The offsets from the floor of the coordinate, and the weights there."""
    if mode == "linear":
        return [(0, 1.0 - fraction), (1, fraction)]
    a = node.attrs.number("cubic_coeff_a", -0.75)

    def near(d: Term) -> Term:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: Term) -> Term:
        return (((d - 5.0) * d + 8.0) * d - 4.0) * a

    rules: list[tuple[int, Callable[[Term], Term], Term]] = [
        (-1, far, fraction + 1.0), (0, near, fraction), (1, near, 1.0 - fraction),
        (2, far, 2.0 - fraction)]
    return [(offset, rule(distance)) for offset, rule, distance in rules]
