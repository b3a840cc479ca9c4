"""The computes of a matmul by dot-product instructions (bytes and bfloat16).

Both operands are packed into panels whose groups of neighbours along K are adjacent, as one
instruction reads them: ``left[m // mr, group // 16, m % mr, 16 groups]`` and
``right[n // nr, group, n % nr, one group]``, padded with zeros. The reduction covers whole panels,
tile by tile in registers; a last compute cuts off the padding, subtracts what shifted operands have
added, and converts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.ir.dtype import DType
from weft.op.nn.dense import DenseAttrs
from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.dot_product.cost import DotProductPlan
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.strategy.cpu.dot_product.schedule import CHUNK
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value, select
from weft.tir.row_major import element_count, ravel, unravel
from weft.topi.broadcast import broadcast_shape
from weft.topi.nn.dense import batch_index, swapped

# (indices of the batch, row of A or column of B, k) -> the element of an operand
Element = Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], PrimExpr]


@dataclass(frozen=True, slots=True)
class _PackedMatmul:
    """A matmul while it is built: ``batch`` axes, then ``rows`` x ``columns`` over ``depth``.

    ``nr`` is the width of the right panels, a multiple of the tile's.
    """

    dot: DotInstruction
    tile: RegisterTile
    nr: int
    batch: tuple[PrimExpr, ...]
    rows: PrimExpr
    columns: PrimExpr
    depth: PrimExpr

    @property
    def has_row_of_ones(self) -> bool:
        """Whether A gets a last row of ones, which makes the column sums of B part of the tile."""
        rows = int_value(self.rows)
        return self.dot.shifts_left and rows is not None and self.tile.mr > rows

    @property
    def groups(self) -> PrimExpr:
        return _ceil_div(self.depth, self.dot.k_group)

    def left_panels(self, batch: Sequence[PrimExpr], element: Element) -> te.Tensor:
        """A packed; 16 groups of a row are adjacent: packing copies a cache line at once."""
        dot, mr, chunk = self.dot, self.tile.mr, CHUNK * self.dot.k_group

        def body(*index: PrimExpr) -> PrimExpr:
            *at, panel, block, within, inner = index
            row, k = panel * mr + within, block * chunk + inner
            value = dot.convert(element(at, row, k), dot.left)
            # Padding along K is zero after the shift, here and in B: it adds to neither the sums
            # nor their corrections.
            padding = const(0, dot.left)
            if self.has_row_of_ones:
                padding = select(row.equal(self.rows), const(1, dot.left), padding)
            return if_then_else(all_of(row < self.rows, k < self.depth), value, padding)

        shape = (*batch, _ceil_div(self.rows, mr), _ceil_div(self.groups, CHUNK), const(mr),
                 const(chunk))
        return te.compute(shape, body, name="left_panels", role=te.StageRole.PACKED_A)

    def right_panels(
        self, batch: Sequence[PrimExpr], element: Element, *, is_depth_first: bool
    ) -> te.Tensor:
        """B packed; ``is_depth_first``: it is stored (K, N), and packing interleaves its rows."""
        dot, nr = self.dot, self.nr

        def body(*index: PrimExpr) -> PrimExpr:
            *at, panel, group, within, inner = index
            column, k = panel * nr + within, group * dot.k_group + inner
            value = dot.convert(element(at, column, k), dot.right)
            inside = te.likely(all_of(column < self.columns, k < self.depth))
            return if_then_else(inside, value, const(0, dot.right))

        shape = (*batch, _ceil_div(self.columns, nr), self.groups, const(nr), const(dot.k_group))
        role = te.StageRole.INTERLEAVED_B if is_depth_first else te.StageRole.PACKED_B
        return te.compute(shape, body, name="right_panels", role=role)

    def _x(self, left: te.Tensor, at: list[PrimExpr], m: PrimExpr, group: te.IterVar,
           inner: te.IterVar) -> PrimExpr:
        """``A[m, k]`` from its panels."""
        offset = (group % CHUNK) * self.dot.k_group + inner
        batch, mr = batch_index(left, at, matrix_axes=4), self.tile.mr
        return left[(*batch, m // mr, group // CHUNK, m % mr, offset)]

    def _y(self, right: te.Tensor, at: list[PrimExpr], n: PrimExpr, group: te.IterVar,
           inner: te.IterVar) -> PrimExpr:
        """``B[k, n]`` from its panels."""
        batch = batch_index(right, at, matrix_axes=4)
        return right[(*batch, n // self.nr, group, n % self.nr, inner)]

    def _sum(self, x: PrimExpr, y: PrimExpr, axes: Sequence[te.IterVar]) -> PrimExpr:
        kind = self.dot.accumulator
        return te.sum(x.astype(kind) * y.astype(kind), axes)

    def _k_axes(self) -> tuple[te.IterVar, te.IterVar]:
        return te.reduce_axis(self.groups, "kg"), te.reduce_axis(self.dot.k_group, "ki")

    def element(self, left: te.Tensor, right: te.Tensor) -> Callable[..., PrimExpr]:
        """The element of C at (batch…, row, column), in the accumulator dtype."""
        kg, ki = self._k_axes()

        def body(*index: PrimExpr) -> PrimExpr:
            *at, m, n = index
            return self._sum(self._x(left, at, m, kg, ki), self._y(right, at, n, kg, ki),
                             [kg, ki])

        # Whole tiles: shorter loops would not become instructions, and rows have no mask. The tail
        # of a symbolic M has a version for each number of rows instead.
        is_fixed = int_value(self.rows) is not None
        rows = _round_up(self.rows, self.tile.mr) if is_fixed else self.rows
        shape = (*self.batch, rows, _round_up(self.columns, self.nr))
        sums = te.compute(shape, body, name="dot", role=te.StageRole.DOT_PRODUCT)
        found = (self._column_correction(right, sums), self._row_correction(left))
        corrections = [c for c in found if c is not None]

        def corrected(*index: PrimExpr) -> PrimExpr:
            value: PrimExpr = sums[index]
            for correction in corrections:
                value = value - correction(*index)
            return value

        return corrected

    def _column_correction(
        self, right: te.Tensor, dot_sums: te.Tensor
    ) -> Callable[..., PrimExpr] | None:
        """What shifting A has added to C: a multiple of the column sums of B."""
        # The sum of ``(a + shift) * b`` is that of ``a * b``, plus ``shift`` times the sum of b.
        shift, dot = self.dot.shift(right=False), self.dot
        if not shift:
            return None
        factor = const(shift, dot.accumulator)
        if self.has_row_of_ones:
            return lambda *i: dot_sums[(*i[:-2], self.rows, i[-1])] * factor
        kg, ki = self._k_axes()
        ones = te.compute((dot.k_group,), lambda _: const(1, dot.left), name="ones",
                          role=te.StageRole.ONES)
        shape = (*right.shape[:-4], _round_up(self.columns, self.nr))

        def element(*index: PrimExpr) -> PrimExpr:
            *at, n = index
            return self._sum(ones[ki], self._y(right, at, n, kg, ki), [kg, ki])

        sums = te.compute(shape, element, name="column_sums", role=te.StageRole.OPERAND_SUMS)
        return lambda *i: sums[(*batch_index(right, i[:-2], matrix_axes=4), i[-1])] * factor

    def _row_correction(self, left: te.Tensor) -> Callable[..., PrimExpr] | None:
        """What shifting B has added to C: a multiple of the row sums of A."""
        shift, dot = self.dot.shift(right=True), self.dot
        if not shift:
            return None
        kg, ki = self._k_axes()
        ones = te.compute((dot.lanes, dot.k_group), lambda *_: const(1, dot.right), name="ones",
                          role=te.StageRole.ONES)
        shape = (*left.shape[:-4], _round_up(self.rows, self.tile.mr), const(dot.lanes))

        def element(*index: PrimExpr) -> PrimExpr:
            *at, m, lane = index
            return self._sum(self._x(left, at, m, kg, ki), ones[lane, ki], [kg, ki])

        sums = te.compute(shape, element, name="row_sums", role=te.StageRole.OPERAND_SUMS)
        factor = const(shift, dot.accumulator)
        return lambda *i: sums[
            (*batch_index(left, i[:-2], matrix_axes=4), i[-2], const(0))] * factor


def dot_product_matmul(
    a: te.Tensor, b: te.Tensor, attrs: MatmulAttrs | BatchMatmulAttrs | DenseAttrs, *,
    plan: DotProductPlan, transpose_a: bool, transpose_b: bool,
) -> te.Tensor:
    """The matmul that packs both operands; the leading axes of ``nn.dense`` together are M."""
    out_dtype = attrs.out_dtype or a.dtype
    nr = plan.tile.nr_vectors * plan.dot.lanes
    columns = swapped(b.shape[-2:], transpose_b)[1]

    def packed_b(build: _PackedMatmul) -> te.Tensor:
        return build.right_panels(
            b.shape[:-2], lambda at, n, k: b[(*at, *swapped((k, n), transpose_b))],
            is_depth_first=not transpose_b)

    if isinstance(attrs, DenseAttrs):
        *leading, depth = a.shape
        build = _PackedMatmul(plan.dot, plan.tile, nr, (), element_count(leading), columns, depth)
        return _dense(a, build, packed_b(build), out_dtype)
    rows, depth = swapped(a.shape[-2:], transpose_a)
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim > 2 else ()
    build = _PackedMatmul(plan.dot, plan.tile, nr, tuple(batch), rows, columns, depth)
    left = build.left_panels(
        a.shape[:-2], lambda at, m, k: a[(*at, *swapped((m, k), transpose_a))])
    element = build.element(left, packed_b(build))
    return te.compute((*batch, rows, columns), lambda *i: element(*i).astype(out_dtype),
                      name="dot_matmul")


def prepacked_dot_product(
    data: te.Tensor, weight: te.Tensor, attrs: DenseAttrs, *, plan: DotProductPlan
) -> te.Tensor:
    """``nn.dense`` over a weight in the panels of ``plan``."""
    *leading, depth = data.shape
    panels, _, nr, _ = weight.shape
    columns = panels * nr if attrs.units is None else const(attrs.units)
    build = _PackedMatmul(plan.dot, plan.tile, int_value(nr) or 1, (),
                          element_count(leading), columns, depth)
    return _dense(data, build, weight, attrs.out_dtype or data.dtype)


def _dense(
    data: te.Tensor, build: _PackedMatmul, right: te.Tensor, out_dtype: DType
) -> te.Tensor:
    """The matmul of the rows of ``data`` and the panels ``right``, with the axes of ``data``."""
    *leading, _ = data.shape
    left = build.left_panels((), lambda _, m, k: data[(*unravel(m, leading), k)])
    element = build.element(left, right)
    return te.compute((*leading, build.columns),
                      lambda *i: element(ravel(i[:-1], leading), i[-1]).astype(out_dtype),
                      name="dot_dense")


def _ceil_div(a: PrimExpr, b: int) -> PrimExpr:
    return (a + (b - 1)) // b


def _round_up(a: PrimExpr, b: int) -> PrimExpr:
    return _ceil_div(a, b) * b
