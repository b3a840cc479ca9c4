"""Winograd convolution F(m x m, 3 x 3): fewer multiplications, more additions.

An output tile of m x m positions needs (m + 2)**2 multiplications per channel instead of 9 * m**2:
4 times fewer for m = 4. The input transform and the filter transform take tiles of data and kernels
to the transform domain, whose (m + 2)**2 points are the values of polynomials. There they are
multiplied and summed over channels, one GEMM for each point; the output transform takes the sums
back.

Sources: S. Winograd, Arithmetic Complexity of Computations, 1980 (fast filtering by the Chinese
remainder theorem); A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016
(the two-dimensional form with its sum over channels, and the names of the transforms).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction

from weft import te
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, const, int_value, select
from weft.topi.layout import BlockedIndex, Layout, convert_shape
from weft.topi.nn.conv import data_axes, full_padding, kernel_axes, pad_spatial
from weft.topi.nn.window import window_count

TAPS = 3
NCHW, OIHW = data_axes("HW"), kernel_axes("HW")
# The finite points of F(m, 3), by m. Small ones of both signs keep the rounding errors low.
_POINTS: dict[int, tuple[int, ...]] = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2)}
TILES = tuple(_POINTS)

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True)
class Transforms:
    """F(m, 3) in one dimension: y = ``output`` ((``filter`` g) * (``input`` d)).

    Lavin and Gray write A^T, G and B^T: m x (m + 2), (m + 2) x 3 and (m + 2) x (m + 2).
    """

    output: Matrix
    filter: Matrix
    input: Matrix


@functools.lru_cache(maxsize=8)
def transforms(tile: int) -> Transforms:
    """The transforms of F(``tile``, 3), which has ``tile + 2`` points, infinity the last.

    Column j of ``output`` holds the powers of point j; row j of ``filter`` the same, divided by the
    product of its distances from the other points; row j of ``input`` the coefficients of the
    polynomial whose roots are the other points. Infinity has the leading coefficients. Raises
    ``LoweringError`` for other tiles than 2 and 4.
    """
    if tile not in _POINTS:
        raise LoweringError("unknown Winograd tile", expected=f"one of {TILES}", got=tile)
    # Fractions are exact: an entry is rounded once, when it becomes a constant of the data's dtype.
    points = [Fraction(p) for p in _POINTS[tile]]
    zero, one = Fraction(0), Fraction(1)
    output = [[*(p**i for p in points), one if i == tile - 1 else zero] for i in range(tile)]
    filters, inputs = [], []
    for j, point in enumerate(points):
        others = points[:j] + points[j + 1:]
        scale = one
        for other in others:
            scale *= point - other
        filters.append([point**k / scale for k in range(TAPS)])
        inputs.append([*_with_roots(others), zero])
    # The row of the point at infinity has the leading coefficient.
    filters.append([zero, zero, one])
    inputs.append(_with_roots(points))
    return Transforms(*(tuple(map(tuple, m)) for m in (output, filters, inputs)))


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients, lowest first, of the monic polynomial with these roots."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(root * c for c in coefficients), Fraction(0)]
        coefficients = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def winograd_weight(weight: te.Tensor, tile: int) -> te.Tensor:
    """The filter transform G g G^T of kernels (O, I, 3, 3): (tile + 2, tile + 2, O, I)."""
    matrix = transforms(tile).filter
    outputs, inputs, *_ = weight.shape
    points = tile + TAPS - 1
    # Two passes of one-dimensional sums: fewer multiply-adds than one two-dimensional sum.
    rows = te.compute(
        (points, TAPS, outputs, inputs),
        lambda e, b, o, i: _row_of(matrix, e, lambda a: weight[o, i, a, b]),
        name="winograd_weight_pass",
    )
    return te.compute(
        (points, points, outputs, inputs),
        lambda e, f, o, i: _row_of(matrix, f, lambda b: rows[e, b, o, i]),
        name="winograd_weight",
    )


def winograd_conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    tile: int,
    padding: Sequence[int],
    data_layout: Layout,
    kernel_layout: Layout,
    out_layout: Layout,
) -> te.Tensor:
    """Cross-correlation with 3 x 3 kernels that are transformed already, stride 1.

    The axes H and W of ``weight`` (axes O, I, H, W) count the ``tile + 2`` points of a dimension.
    Stages: ``data_pad``; ``winograd_input_pass`` and ``winograd_input``, the two passes of the
    input transform; ``winograd_gemm`` with ``reduce_axis`` (ic_outer, ic_inner);
    ``winograd_output_pass``, the first pass of the output transform, and the result.
    """
    matrix = transforms(tile).output
    _, channels, *_ = convert_shape(kernel_layout, OIHW, weight.shape)
    _, _, height, width = convert_shape(data_layout, NCHW, data.shape)
    top, left, bottom, right = full_padding(padding, 2)
    from weft.tir.simplify import simplify

    rows = simplify(window_count(height + (top + bottom), TAPS, 1))
    columns = simplify(window_count(width + (left + right), TAPS, 1))
    tall, wide = (simplify((extent + (tile - 1)) // tile) for extent in (rows, columns))
    # The last tiles may reach beyond the image; the result leaves out what they compute there.
    border = (top, left, *(_width(after + (tiles * tile - extent)) for after, tiles, extent
                           in ((bottom, tall, rows), (right, wide, columns))))
    padded = pad_spatial(data, data_layout, "HW", border, const(0, data.dtype))
    transformed = _input_transform(padded, data_layout, channels, tile, tall, wide)
    sums = _gemms(transformed, weight, kernel_layout, out_layout.factor_of("C"))
    half = _output_pass(sums, matrix)

    def element(*index: PrimExpr) -> PrimExpr:
        out = out_layout.blocked_indices(index)
        channel, y, x = out["C"], out["H"], out["W"]
        split = isinstance(channel, BlockedIndex)
        block, lane = (channel.outer, channel.inner) if split else (channel, const(0))
        th, tw, a = y // tile, x // tile, y % tile
        return _row_of(matrix, x % tile, lambda f: half[out["N"], th, tw, block, a, f, lane])

    outputs = sums.shape[2] * sums.shape[-1]
    shape = convert_shape(NCHW, out_layout, (data.shape[0], outputs, rows, columns))
    return te.compute(shape, element, name="winograd")


def _input_transform(
    padded: te.Tensor, layout: Layout, channels: PrimExpr, tile: int, tall: PrimExpr, wide: PrimExpr
) -> te.Tensor:
    """B^T d B: (N, tile rows, channel blocks, points, points, tile columns, block)."""
    matrix, points, block = transforms(tile).input, tile + TAPS - 1, layout.factor_of("C")

    def pixel(n: PrimExpr, outer: PrimExpr, lane: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        channel = BlockedIndex(outer, lane, block)
        return padded[layout.indices({"N": n, "C": channel, "H": y, "W": x})]

    half = te.compute(
        (padded.shape[0], tall, wide, channels // block, points, points, block),
        lambda n, th, tw, c, e, j, lane: _row_of(
            matrix, e, lambda i: pixel(n, c, lane, th * tile + i, tw * tile + j)),
        name="winograd_input_pass",
    )
    return te.compute(
        (padded.shape[0], tall, channels // block, points, points, wide, block),
        lambda n, th, c, e, f, tw, lane: _row_of(
            matrix, f, lambda j: half[n, th, tw, c, e, j, lane]),
        name="winograd_input",
    )


def _gemms(transformed: te.Tensor, weight: te.Tensor, layout: Layout, block: int) -> te.Tensor:
    """The sums over channels at each point, laid out as the transformed input."""
    batch, tall, in_blocks, points, _, wide, ins = transformed.shape
    # The axes of the transformed input: for each point the tiles of a row are neighbours, as the
    # rows of its GEMM.
    outer, inner = te.reduce_axis(in_blocks, "ic_outer"), te.reduce_axis(ins, "ic_inner")
    outputs = convert_shape(layout, OIHW, weight.shape)[0]

    def element(n: PrimExpr, th: PrimExpr, o: PrimExpr, e: PrimExpr, f: PrimExpr, tw: PrimExpr,
                lane: PrimExpr) -> PrimExpr:
        at = layout.indices({"O": BlockedIndex(o, lane, block), "H": e, "W": f,
                             "I": BlockedIndex(outer.var, inner.var, int_value(ins) or 1)})
        values = transformed[n, th, outer.var, e, f, tw, inner.var] * weight[at]
        return te.sum(values, [outer, inner])

    shape = (batch, tall, outputs // block, points, points, wide, block)
    return te.compute(shape, element, name="winograd_gemm")


def _output_pass(sums: te.Tensor, matrix: Matrix) -> te.Tensor:
    """A^T M: (N, tile rows, tile columns, channel blocks, rows of a tile, points, block)."""
    batch, tall, blocks, points, _, wide, block = sums.shape
    return te.compute(
        (batch, tall, wide, blocks, len(matrix), points, block),
        lambda n, th, tw, o, a, f, lane: _row_of(
            matrix, a, lambda e: sums[n, th, o, e, f, tw, lane]),
        name="winograd_output_pass",
    )


def _width(zeros: PrimExpr) -> int | PrimExpr:
    """Zeros to append, as a number if it is known."""
    from weft.tir.simplify import simplify

    fixed = int_value(zeros)
    return simplify(zeros) if fixed is None else fixed


def _row_of(matrix: Matrix, row: PrimExpr, operand: Callable[[int], PrimExpr]) -> PrimExpr:
    """The dot product of row number ``row`` of ``matrix`` with the operands.

    Schedules unroll ``row``, which leaves a single sum of the selection.
    """
    found = int_value(row)
    if found is not None:
        return _combination(matrix[found], operand)
    # Without unrolling, all rows are computed and one is selected: correct, but slow.
    result = _combination(matrix[-1], operand)
    for number in reversed(range(len(matrix) - 1)):
        chosen = row.equal(number)
        result = select(chosen, _combination(matrix[number], operand), result)
    return result


def _combination(factors: Sequence[Fraction], operand: Callable[[int], PrimExpr]) -> PrimExpr:
    """``sum of factors[i] * operand(i)``, even and odd ``i`` summed separately.

    Rows of opposite points have the same even sum, and the same odd sum up to its sign; written
    this way, common subexpression elimination computes each sum once.
    """
    even = _sum_of([(f, operand(i)) for i, f in enumerate(factors) if f and i % 2 == 0])
    odd_factors = [(f, operand(i)) for i, f in enumerate(factors) if f and i % 2 == 1]
    if not odd_factors:
        if even is None:
            raise LoweringError("a Winograd transform has a row of zeros")
        return even
    negative = odd_factors[0][0] < 0
    odd = _sum_of([(-f if negative else f, x) for f, x in odd_factors])
    if odd is None:
        raise LoweringError("a Winograd transform has a row of zeros")
    if even is None:
        return -odd if negative else odd
    return even - odd if negative else even + odd


def _sum_of(terms: Sequence[tuple[Fraction, PrimExpr]]) -> PrimExpr | None:
    result: PrimExpr | None = None
    for factor, value in terms:
        # Factors of 1 cost no multiplication, and signs become subtractions.
        scaled = value if abs(factor) == 1 else value * const(float(abs(factor)), value.dtype)
        if result is None:
            result = scaled if factor > 0 else -scaled
        else:
            result = result + scaled if factor > 0 else result - scaled
    return result
