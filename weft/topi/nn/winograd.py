"""Convolution with 3 x 3 kernels by minimal filtering: fewer multiplications, more additions.

An output tile of m x m positions needs (m + 2)**2 products per channel in place of 9 * m**2, which
is 4 times fewer for m = 4. Data and kernel tiles are taken to the values of polynomials at a few
points, multiplied there, and the products are interpolated. The sum over channels is at the points,
as one matrix product for each.

Sources: S. Winograd, Arithmetic Complexity of Computations, 1980 (minimal filtering by the Chinese
remainder theorem); A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016
(the two-dimensional form with its sum over channels).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from weft import te
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, const, int_value, select
from weft.topi.layout import BlockedIndex, Layout, convert_shape
from weft.topi.nn.conv import data_axes, full_padding, kernel_axes, pad_spatial

TAPS = 3
NCHW, OIHW = data_axes("HW"), kernel_axes("HW")
# The finite points, by output positions. Small ones of both signs keep the rounding errors low.
_POINTS: dict[int, tuple[int, ...]] = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2)}
TILES = tuple(_POINTS)

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True)
class Transforms:
    """One dimension: output = ``output`` ((``kernel`` taps) * (``data`` tile)), rows of each."""

    output: Matrix
    kernel: Matrix
    data: Matrix


@functools.lru_cache(maxsize=8)
def transforms(tile: int) -> Transforms:
    """The transforms of ``tile`` outputs with 3 taps: ``tile + 2`` points, infinity the last.

    Column j of ``output`` holds the powers of point j, row j of ``kernel`` the same over the
    product of its distances from the others, row j of ``data`` the polynomial whose roots those
    others are. At infinity stand the leading coefficients.
    """
    if tile not in _POINTS:
        raise LoweringError("there is no such Winograd tile", expected=f"one of {TILES}", got=tile)
    points = [Fraction(p) for p in _POINTS[tile]]
    zero, one = Fraction(0), Fraction(1)
    output = [[*(p**i for p in points), one if i == tile - 1 else zero] for i in range(tile)]
    kernel, data = [], []
    for j, point in enumerate(points):
        others = points[:j] + points[j + 1:]
        scale = one
        for other in others:
            scale *= point - other
        kernel.append([point**k / scale for k in range(TAPS)])
        data.append([*_with_roots(others), zero])
    kernel.append([zero, zero, one])
    data.append(_with_roots(points))
    return Transforms(*(tuple(map(tuple, m)) for m in (output, kernel, data)))


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients, lowest first, of the monic polynomial with these roots."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(root * c for c in coefficients), Fraction(0)]
        coefficients = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def winograd_weight(weight: te.Tensor, tile: int) -> te.Tensor:
    """3 x 3 kernels (O, I, 3, 3) at the points: (points, points, O, I)."""
    matrix = transforms(tile).kernel
    outputs, inputs, *_ = weight.shape
    points = tile + TAPS - 1
    rows = te.compute(
        (points, TAPS, outputs, inputs),
        lambda e, b, o, i: _row_of(matrix, e, lambda a: weight[o, i, a, b]),
        name="winograd_weight_rows",
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

    The axes H and W of ``weight`` (axes O, I, H, W) count the ``tile + 2`` points. Stages:
    ``data_pad``, ``winograd_rows`` and ``winograd_data`` (the data at the points),
    ``winograd_product`` with ``reduce_axis`` (ic_outer, ic_inner), ``winograd_columns``, and the
    result ``winograd_conv2d``.
    """
    matrices = transforms(tile)
    _, channels, *_ = convert_shape(kernel_layout, OIHW, weight.shape)
    _, _, height, width = convert_shape(data_layout, NCHW, data.shape)
    top, left, bottom, right = full_padding(padding, 2)
    rows, columns = _fixed(height) + top + bottom - 2, _fixed(width) + left + right - 2
    # The last tiles may reach over the end; what they read there does not count.
    border = (top, left, bottom + -rows % tile, right + -columns % tile)
    padded = pad_spatial(data, data_layout, "HW", border, const(0, data.dtype))
    tall, wide = -(-rows // tile), -(-columns // tile)
    at_points = _data_at_points(padded, data_layout, channels, tile, tall, wide)
    products = _products(at_points, weight, kernel_layout, out_layout.factor_of("C"))
    by_columns = _by_columns(products, matrices.output)

    def element(*index: PrimExpr) -> PrimExpr:
        place = out_layout.blocked_indices(index)
        channel, y, x = place["C"], place["H"], place["W"]
        split = isinstance(channel, BlockedIndex)
        block, lane = (channel.outer, channel.inner) if split else (channel, const(0))
        th, tw, a = y // tile, x // tile, y % tile
        return _row_of(matrices.output, x % tile,
                       lambda f: by_columns[place["N"], th, tw, block, a, f, lane])

    outputs = products.shape[2] * products.shape[-1]
    shape = convert_shape(NCHW, out_layout, (data.shape[0], outputs, rows, columns))
    return te.compute(shape, element, name="winograd")


def _data_at_points(
    padded: te.Tensor, layout: Layout, channels: PrimExpr, tile: int, tall: int, wide: int
) -> te.Tensor:
    """(N, tile rows, channel blocks, points, points, tile columns, block)."""
    matrix, points, block = transforms(tile).data, tile + TAPS - 1, layout.factor_of("C")

    def pixel(n: PrimExpr, outer: PrimExpr, lane: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        channel = BlockedIndex(outer, lane, block)
        return padded[layout.indices({"N": n, "C": channel, "H": y, "W": x})]

    by_rows = te.compute(
        (padded.shape[0], tall, wide, channels // block, points, points, block),
        lambda n, th, tw, c, e, j, lane: _row_of(
            matrix, e, lambda i: pixel(n, c, lane, th * tile + i, tw * tile + j)),
        name="winograd_rows",
    )
    return te.compute(
        (padded.shape[0], tall, channels // block, points, points, wide, block),
        lambda n, th, c, e, f, tw, lane: _row_of(
            matrix, f, lambda j: by_rows[n, th, tw, c, e, j, lane]),
        name="winograd_data",
    )


def _products(at_points: te.Tensor, weight: te.Tensor, layout: Layout, block: int) -> te.Tensor:
    """The sums over channels, laid out as the data at the points."""
    batch, tall, in_blocks, points, _, wide, ins = at_points.shape
    outer, inner = te.reduce_axis(in_blocks, "ic_outer"), te.reduce_axis(ins, "ic_inner")
    outputs = convert_shape(layout, OIHW, weight.shape)[0]

    def product(n: PrimExpr, th: PrimExpr, o: PrimExpr, e: PrimExpr, f: PrimExpr, tw: PrimExpr,
                lane: PrimExpr) -> PrimExpr:
        taps = layout.indices({"O": BlockedIndex(o, lane, block), "H": e, "W": f,
                               "I": BlockedIndex(outer.var, inner.var, int_value(ins) or 1)})
        values = at_points[n, th, outer.var, e, f, tw, inner.var] * weight[taps]
        return te.sum(values, [outer, inner])

    shape = (batch, tall, outputs // block, points, points, wide, block)
    return te.compute(shape, product, name="winograd_product")


def _by_columns(products: te.Tensor, matrix: Matrix) -> te.Tensor:
    """Interpolated along columns: (N, tile rows, tile columns, blocks, rows, points, block)."""
    batch, tall, blocks, points, _, wide, block = products.shape
    return te.compute(
        (batch, tall, wide, blocks, len(matrix), points, block),
        lambda n, th, tw, o, a, f, lane: _row_of(
            matrix, a, lambda e: products[n, th, o, e, f, tw, lane]),
        name="winograd_columns",
    )


def _fixed(size: PrimExpr) -> int:
    value = int_value(size)
    if value is None:
        raise LoweringError("minimal filtering needs images of fixed size", got=str(size))
    return value


def _row_of(matrix: Matrix, row: PrimExpr, operand: Callable[[int], PrimExpr]) -> PrimExpr:
    """The product of one row of ``matrix``, chosen by ``row``, with the operands.

    Schedules unroll ``row``, and of the choice one sum is left.
    """
    found = int_value(row)
    if found is not None:
        return _combination(matrix[found], operand)
    result = _combination(matrix[-1], operand)
    for number in reversed(range(len(matrix) - 1)):
        chosen = row.equal(number)
        result = select(chosen, _combination(matrix[number], operand), result)
    return result


def _combination(factors: Sequence[Fraction], operand: Callable[[int], PrimExpr]) -> PrimExpr:
    """``sum of factors[i] * operand(i)``, the even and the odd places apart.

    Rows of opposite points have the same even part and the same odd part up to its sign; written
    this way, code generation computes both once.
    """
    even = _sum_of([(f, operand(i)) for i, f in enumerate(factors) if f and i % 2 == 0])
    odd_factors = [(f, operand(i)) for i, f in enumerate(factors) if f and i % 2 == 1]
    if not odd_factors:
        if even is None:
            raise LoweringError("a transform has a row of zeros")
        return even
    negative = odd_factors[0][0] < 0
    odd = _sum_of([(-f if negative else f, x) for f, x in odd_factors])
    if odd is None:
        raise LoweringError("a transform has a row of zeros")
    if even is None:
        return -odd if negative else odd
    return even - odd if negative else even + odd


def _sum_of(terms: Sequence[tuple[Fraction, PrimExpr]]) -> PrimExpr | None:
    result: PrimExpr | None = None
    for factor, value in terms:
        scaled = value if abs(factor) == 1 else value * const(float(abs(factor)), value.dtype)
        if result is None:
            result = scaled if factor > 0 else -scaled
        else:
            result = result + scaled if factor > 0 else result - scaled
    return result
