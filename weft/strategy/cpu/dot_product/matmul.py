"""Matrix products of bytes and of bfloat16 through dot product instructions.

Both operands lie in panels with small groups of depths side by side, as one instruction takes
them: ``left[m // height, group // 16, m % height, 16 groups]`` and
``right[n // width, group, n % width, one group]``. What lies beyond the matrices is zero. The
product is computed tile by tile in registers over whole panels; a last compute takes the part
that is wanted, takes off what moved operands have added, and converts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft import te
from weft.ir.dtype import DType, float32, int32
from weft.ir.expr import Call
from weft.ir.types import TensorType, is_static
from weft.op.nn.dense import DenseAttrs
from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.cpu.common.register_tile import RegisterTile, choose_tile, fits_registers
from weft.strategy.cpu.dot_product.instruction import DotPlan, plan_dot_product
from weft.strategy.cpu.dot_product.schedule import CHUNK, schedule_dot_product
from weft.strategy.cpu.elementwise.flat_rows import ravel, row_count, unravel
from weft.strategy.implementation import Implementation
from weft.target import CpuTarget
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value, select
from weft.topi.broadcast import broadcast_shape
from weft.topi.layout import Layout

# (indices of the batch, line, depth) -> the element of an operand
Element = Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], PrimExpr]


def plan_of(call: Call, target: CpuTarget, *, is_packed: bool = False) -> DotPlan | None:
    """The plan for a product of known sizes whose sums are wanted in 32 bits (or as bfloat16).

    ``is_packed``: the right operand is, or shall be, in panels as it is.
    """
    result, left, right = (call.checked_type, *(a.checked_type for a in call.args))
    if not (isinstance(result, TensorType) and isinstance(left, TensorType)
            and isinstance(right, TensorType)):
        return None
    if not all(map(is_static, (result, left, right))):
        return None
    if 0 in (*result.shape, *left.shape, *right.shape):
        return None
    plan = plan_dot_product(left.dtype, right.dtype, target, keeps_right=is_packed)
    if plan is None:
        return None
    wanted = (int32,) if plan.accumulator.is_int else (float32, left.dtype)
    return plan if result.dtype in wanted else None


def dot_product_matmul(name: str, call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The implementation of ``nn.matmul``, ``nn.batch_matmul`` or ``nn.dense`` that packs both
    operands at run time.
    """
    plan, attrs = plan_of(call, target), call.attrs
    if plan is None:
        return
    swap_a, swap_b = False, True
    is_dense = isinstance(attrs, DenseAttrs)
    if isinstance(attrs, MatmulAttrs | BatchMatmulAttrs):
        swap_a, swap_b = attrs.transpose_a, attrs.transpose_b
    elif isinstance(attrs, DenseAttrs):
        swap_b = attrs.weight_layout == "NK"
    *leading, columns = call.checked_type.concrete_shape  # type: ignore[union-attr]
    rows = math.prod(leading) if is_dense else leading[-1]
    tile = _tile(plan, rows, -(-columns // plan.lanes), target)
    compute = functools.partial(_product_of_two, plan=plan, tile=tile, swap=(swap_a, swap_b))
    schedule = functools.partial(schedule_dot_product, plan=plan, tile=tile, flat_rows=is_dense)
    yield Implementation(f"{name}.cpu.{plan.instruction.name}", schedule, compute)


def dot_product_dense(call: Call, layout: Layout, target: CpuTarget) -> Iterator[Implementation]:
    """The implementation of ``nn.dense`` with a weight in panels of this layout."""
    plan, result = plan_of(call, target, is_packed=True), call.checked_type
    if plan is None or not is_panel_layout(layout, plan) or not isinstance(result, TensorType):
        return
    *leading, columns = result.concrete_shape
    width = layout.factor_of("N")
    tile = _tile_of_panel(plan, math.prod(leading), -(-columns // width), width // plan.lanes,
                          target)
    compute = functools.partial(_packed_dense, plan=plan, tile=tile)
    schedule = functools.partial(schedule_dot_product, plan=plan, tile=tile, flat_rows=True)
    yield Implementation(f"nn.dense.cpu.{plan.instruction.name}", schedule, compute)


def _tile(plan: DotPlan, rows: int, vectors: int, target: CpuTarget) -> RegisterTile:
    """The register tile; of few rows it has one more, which sums the columns of the operand that
    is in the registers anyway.
    """
    if plan.shifts_left:
        tile = choose_tile(rows + 1, vectors, target)
        if tile.mr > rows:
            return tile
    return choose_tile(rows, vectors, target)


def _tile_of_panel(
    plan: DotPlan, rows: int, panels: int, vectors: int, target: CpuTarget
) -> RegisterTile:
    """As ``_tile``, as wide as panels of ``vectors``, or a part of one where that makes room."""
    if plan.shifts_left:
        for width in range(vectors, 0, -1):
            tile = RegisterTile(rows + 1, width)
            if vectors % width == 0 and fits_registers(tile, target):
                return tile
    tile = choose_tile(rows, panels * vectors, target, vector_step=vectors)
    return RegisterTile(tile.mr, vectors)


def panel_layout(units: int, plan: DotPlan) -> str:
    """The layout in which a constant weight is packed, filled up where its sizes do not divide.

    The wider of the panels that waste the least.
    """
    widths = [plan.lanes * n for n in (4, 3, 2, 1)]
    width = min(widths, key=lambda w: -units % w)
    return f"NK{width}n{plan.group}k"


def is_panel_layout(layout: Layout, plan: DotPlan) -> bool:
    """Whether ``layout`` is what ``panel_layout`` gives for some sizes."""
    width = layout.factor_of("N")
    return width % plan.lanes == 0 and layout.name == f"NK{width}n{plan.group}k"


@dataclass(frozen=True, slots=True)
class _Product:
    """A product while it is built: ``batch`` axes, then ``rows`` x ``columns`` over ``depth``.

    ``width`` is that of the right panels, a multiple of the tile's.
    """

    plan: DotPlan
    tile: RegisterTile
    width: int
    batch: tuple[PrimExpr, ...]
    rows: PrimExpr
    columns: PrimExpr
    depth: PrimExpr

    @property
    def has_row_of_ones(self) -> bool:
        """Whether the one tile of rows has room for the sums of columns as its last row."""
        rows = int_value(self.rows)
        return self.plan.shifts_left and rows is not None and self.tile.mr > rows

    @property
    def groups(self) -> PrimExpr:
        return _ceil_div(self.depth, self.plan.group)

    def left_panels(self, batch: Sequence[PrimExpr], element: Element) -> te.Tensor:
        """16 groups of a line side by side: a cache line is copied at once."""
        plan, height, chunk = self.plan, self.tile.mr, CHUNK * self.plan.group

        def body(*index: PrimExpr) -> PrimExpr:
            *at, panel, block, within, inner = index
            line, k = panel * height + within, block * chunk + inner
            value = plan.convert(element(at, line, k), plan.left)
            inside = all_of(line < self.rows, k < self.depth)
            beyond = const(0, plan.left)
            if self.has_row_of_ones:
                beyond = select(line.equal(self.rows), const(1, plan.left), beyond)
            return if_then_else(inside, value, beyond)

        shape = (*batch, _ceil_div(self.rows, height), _ceil_div(self.groups, CHUNK),
                 const(height), const(chunk))
        return te.compute(shape, body, name="left_panels",
                          role=te.StageRole.PACKED_A)

    def right_panels(
        self, batch: Sequence[PrimExpr], element: Element, *, depth_first: bool
    ) -> te.Tensor:
        """With ``depth_first`` the elements of one depth are neighbours in memory."""
        plan, width = self.plan, self.width

        def body(*index: PrimExpr) -> PrimExpr:
            *at, panel, group, within, inner = index
            line, k = panel * width + within, group * plan.group + inner
            value = plan.convert(element(at, line, k), plan.right)
            inside = te.likely(all_of(line < self.columns, k < self.depth))
            return if_then_else(inside, value, const(0, plan.right))

        shape = (*batch, _ceil_div(self.columns, width), self.groups, const(width),
                 const(plan.group))
        role = te.StageRole.INTERLEAVED_B if depth_first else te.StageRole.PACKED_B
        return te.compute(shape, body, name="right_panels", role=role)

    # reads of the panels

    def _x(self, left: te.Tensor, at: list[PrimExpr], m: PrimExpr, group: te.IterVar,
           inner: te.IterVar) -> PrimExpr:
        place = (group % CHUNK) * self.plan.group + inner
        own = _own(left, at, 4)
        height = self.tile.mr
        return left[(*own, m // height, group // CHUNK, m % height, place)]

    def _y(self, right: te.Tensor, at: list[PrimExpr], n: PrimExpr, group: te.IterVar,
           inner: te.IterVar) -> PrimExpr:
        return right[(*_own(right, at, 4), n // self.width, group, n % self.width, inner)]

    def _sum(self, x: PrimExpr, y: PrimExpr, axes: Sequence[te.IterVar]) -> PrimExpr:
        kind = self.plan.accumulator
        return te.sum(x.astype(kind) * y.astype(kind), axes)

    def _depth_axes(self) -> tuple[te.IterVar, te.IterVar]:
        return te.reduce_axis(self.groups, "kg"), te.reduce_axis(self.plan.group, "ki")

    def build(self, left: te.Tensor, right: te.Tensor) -> Callable[..., PrimExpr]:
        """The element of the product at (batch…, row, column), in the accumulators' type."""
        kg, ki = self._depth_axes()

        def element(*index: PrimExpr) -> PrimExpr:
            *at, m, n = index
            return self._sum(self._x(left, at, m, kg, ki), self._y(right, at, n, kg, ki),
                             [kg, ki])

        shape = (*self.batch, _round_up(self.rows, self.tile.mr),
                 _round_up(self.columns, self.width))
        product = te.compute(shape, element, name="dot", role=te.StageRole.DOT_PRODUCT)
        found = (self._column_correction(right, product), self._row_correction(left))
        corrections = [c for c in found if c is not None]

        def corrected(*index: PrimExpr) -> PrimExpr:
            value: PrimExpr = product[index]
            for correction in corrections:
                value = value - correction(*index)
            return value

        return corrected

    def _column_correction(
        self, right: te.Tensor, product: te.Tensor
    ) -> Callable[..., PrimExpr] | None:
        """What moving the left operand has added: a multiple of the sums of columns."""
        shift, plan = self.plan.shift(right=False), self.plan
        if not shift:
            return None
        factor = const(shift, plan.accumulator)
        if self.has_row_of_ones:
            return lambda *i: product[(*i[:-2], self.rows, i[-1])] * factor
        kg, ki = self._depth_axes()
        ones = te.compute((plan.group,), lambda _: const(1, plan.left), name="ones",
                          role=te.StageRole.ONES)
        shape = (*right.shape[:-4], _round_up(self.columns, self.width))

        def element(*index: PrimExpr) -> PrimExpr:
            *at, n = index
            return self._sum(ones[ki], self._y(right, at, n, kg, ki), [kg, ki])

        sums = te.compute(shape, element, name="column_sums", role=te.StageRole.OPERAND_SUMS)
        return lambda *i: sums[(*_own(right, list(i[:-2]), 4), i[-1])] * factor

    def _row_correction(self, left: te.Tensor) -> Callable[..., PrimExpr] | None:
        """What moving the right operand has added: a multiple of the sums of rows."""
        shift, plan = self.plan.shift(right=True), self.plan
        if not shift:
            return None
        kg, ki = self._depth_axes()
        ones = te.compute((plan.lanes, plan.group), lambda *_: const(1, plan.right), name="ones",
                          role=te.StageRole.ONES)
        shape = (*left.shape[:-4], _round_up(self.rows, self.tile.mr), const(plan.lanes))

        def element(*index: PrimExpr) -> PrimExpr:
            *at, m, lane = index
            return self._sum(self._x(left, at, m, kg, ki), ones[lane, ki], [kg, ki])

        sums = te.compute(shape, element, name="row_sums", role=te.StageRole.OPERAND_SUMS)
        return lambda *i: sums[(*_own(left, list(i[:-2]), 4), i[-2], const(0))] * const(
            shift, plan.accumulator)


def _product_of_two(
    a: te.Tensor, b: te.Tensor, attrs: MatmulAttrs | BatchMatmulAttrs | DenseAttrs, *,
    plan: DotPlan, tile: RegisterTile, swap: tuple[bool, bool],
) -> te.Tensor:
    """The product of matrices or stacks of them; rows of ``nn.dense`` are the leading axes'."""
    out_dtype = attrs.out_dtype or a.dtype
    if isinstance(attrs, DenseAttrs):
        *leading, depth = a.shape
        columns = b.shape[0 if swap[1] else 1]
        product = _Product(plan, tile, tile.nr_vectors * plan.lanes, (), row_count(leading),
                           columns, depth)
        right = product.right_panels((), lambda _, n, k: b[(n, k) if swap[1] else (k, n)],
                                     depth_first=not swap[1])
        return _dense(a, product, right, out_dtype)
    rows, depth = _swapped(a.shape[-2:], swap[0])
    columns = _swapped(b.shape[-2:], swap[1])[1]
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim > 2 else ()
    width = tile.nr_vectors * plan.lanes
    product = _Product(plan, tile, width, tuple(batch), rows, columns, depth)
    left = product.left_panels(
        a.shape[:-2], lambda at, m, k: a[(*at, *_swapped((m, k), swap[0]))])
    right = product.right_panels(
        b.shape[:-2], lambda at, n, k: b[(*at, *_swapped((k, n), swap[1]))],
        depth_first=not swap[1])
    element = product.build(left, right)
    return te.compute((*batch, rows, columns), lambda *i: element(*i).astype(out_dtype),
                      name="dot_matmul")


def _packed_dense(
    data: te.Tensor, weight: te.Tensor, attrs: DenseAttrs, *, plan: DotPlan, tile: RegisterTile
) -> te.Tensor:
    *leading, depth = data.shape
    panels, _, width, _ = weight.shape
    columns = panels * width if attrs.units is None else const(attrs.units)
    product = _Product(plan, tile, int_value(width) or 1, (), row_count(leading), columns, depth)
    return _dense(data, product, weight, attrs.out_dtype or data.dtype)


def _dense(
    data: te.Tensor, product: _Product, right: te.Tensor, out_dtype: DType
) -> te.Tensor:
    """``product`` of the rows of ``data`` and the panels ``right``, in the form of ``data``."""
    *leading, _ = data.shape
    left = product.left_panels((), lambda _, m, k: data[(*unravel(m, leading), k)])
    element = product.build(left, right)
    return te.compute((*leading, product.columns),
                      lambda *i: element(ravel(i[:-1], leading), i[-1]).astype(out_dtype),
                      name="dot_dense")


def _swapped(pair: Sequence[PrimExpr], swap: bool) -> tuple[PrimExpr, PrimExpr]:
    first, second = pair
    return (second, first) if swap else (first, second)


def _own(x: te.Tensor, at: list[PrimExpr], matrix_axes: int) -> tuple[PrimExpr, ...]:
    """The batch index into ``x``, whose axes of size 1 repeat."""
    sizes = x.shape[: x.ndim - matrix_axes]
    own = at[len(at) - len(sizes):]
    return tuple(const(0) if int_value(n) == 1 else i for n, i in zip(sizes, own, strict=True))


def _ceil_div(a: PrimExpr, b: int) -> PrimExpr:
    return (a + (b - 1)) // b


def _round_up(a: PrimExpr, b: int) -> PrimExpr:
    return _ceil_div(a, b) * b
