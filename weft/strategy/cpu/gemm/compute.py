"""The computes of a GEMM: over a weight in panels, and over two operands as they are stored.

The innermost tile reads one element of A at a time and broadcasts it, so that A is read in place:
a tile has few rows, and the elements of a row share cache lines. Only an A that is stored
transposed is packed, into panels of mr rows. B is read in vectors along N, in place or from panels
of nr columns.
"""

from __future__ import annotations

from weft import te
from weft.ir import Attrs, DType
from weft.op.nn.dense import DenseAttrs
from weft.strategy.cpu.gemm.blocking import GemmPlan
from weft.support.errors import InternalError
from weft.tir import PrimExpr, const, if_then_else, int_value
from weft.tir.row_major import element_count, ravel, unravel
from weft.topi.broadcast import broadcast_shape
from weft.topi.layout import Layout
from weft.topi.nn.dense import accumulator_dtype, batch_index, swapped


def prepacked_gemm(
    data: te.Tensor, weight: te.Tensor, attrs: Attrs, *, plan: GemmPlan
) -> te.Tensor:
    """``out[.., n] = sum over k of data[.., k] * weight[n // nr, k, n % nr]``.

    ``data`` has any rank: its leading axes together are M. The reduction has the columns of all
    panels, the result those of the call. Narrow floats are accumulated in float32.
    """
    if not isinstance(attrs, DenseAttrs) or plan.panels is None:
        raise InternalError(f"a GEMM over a packed weight got {type(attrs).__name__}")
    dtype = attrs.out_dtype or data.dtype
    accumulator = accumulator_dtype(dtype)
    layout = Layout.parse(plan.panels.layout)
    *leading, depth = data.shape
    rows = element_count(leading)
    panels, _, nr = weight.shape
    columns = panels * nr
    matrix = data
    if len(leading) != 1:
        # A view that the schedule inlines: the tiles then have a single axis of rows.
        matrix = te.compute(
            (rows, depth), lambda r, k: data[(*unravel(r, leading), k)], name="rows",
        )
    matrix = upcast_a(matrix, accumulator)
    k = te.reduce_axis(depth, name="k")

    def element(r: PrimExpr, n: PrimExpr) -> PrimExpr:
        factor = weight[layout.indices({"N": n, "K": k.var})]
        return te.sum(matrix[r, k] * factor.astype(accumulator), k)

    sums = te.compute((rows, columns), element, name="dense")
    units = attrs.units if attrs.units is not None else columns
    # Without columns to cut off or values to round, the sum itself is the result.
    if len(leading) == 1 and units is columns and accumulator is dtype:
        return sums
    return te.compute(
        (*leading, units), lambda *i: sums[ravel(i[:-1], leading), i[-1]].astype(dtype),
        name="dense_rows",
    )


def gemm(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, plan: GemmPlan,
    out_dtype: DType,
) -> te.Tensor:
    """``C[.., m, n] = sum over k of A[.., m, k] * B[.., k, n]``; leading axes broadcast.

    A packed B is ``b_panels[.., n // nr, k, n % nr]``, a packed A is
    ``a_panels[.., m // mr, k, m % mr]``. The reduction has whole vectors of columns: panels are
    padded with zeros, and the last vectors of a B that is read in place have a mask. The result
    leaves the surplus columns out. Narrow floats are upcast as they are packed or read, and the
    sums rounded once.
    """
    accumulator = accumulator_dtype(a.dtype)
    rows, depth = swapped(a.shape[-2:], transpose_a)
    columns = swapped(b.shape[-2:], transpose_b)[1]
    blocking = plan.blocking
    mr, nr = blocking.mr, blocking.nr
    left = (_panels(a, rows, depth, mr, is_depth_first=True, role=te.StageRole.PACKED_A)
            if plan.packs_a else upcast_a(a, accumulator))
    right = (_panels(b, columns, depth, nr, is_depth_first=not transpose_b,
                     role=te.StageRole.PACKED_B) if plan.packs_b else b)
    k = te.reduce_axis(depth, name="k")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim + b.ndim > 4 else ()

    def in_bounds(n: PrimExpr) -> PrimExpr:
        """A mask, which only the last of several panels needs."""
        is_one_panel = is_fixed and (int_value(columns) or 0) <= nr
        return n < columns if is_one_panel else te.likely(n < columns)

    def element(*index: PrimExpr) -> PrimExpr:
        *at, m, n = index
        row = (m // mr, k, m % mr) if plan.packs_a else (k, m) if transpose_a else (m, k)
        column = (n // nr, k, n % nr) if plan.packs_b else (k, n)
        y = right[(*batch_index(b, at), *column)].astype(accumulator)
        # Packed panels have zeros beyond the last column; B in memory ends there.
        if not plan.packs_b and not (is_fixed and int_value(columns) == int_value(whole)):
            y = if_then_else(in_bounds(n), y, const(0, accumulator))
        return te.sum(left[(*batch_index(a, at), *row)] * y, k)

    # A symbolic N is rounded to whole panels: the tail is one panel with masked loads and stores.
    is_fixed = int_value(columns) is not None
    step = blocking.lanes if is_fixed else nr
    whole = (columns + (step - 1)) // step * step
    sums = te.compute((*batch, rows, whole), element, name="matmul")
    if is_fixed and int_value(columns) == int_value(whole) and accumulator is out_dtype:
        return sums
    return te.compute((*batch, rows, columns), lambda *i: sums[i].astype(out_dtype),
                      name="matmul_columns")


def upcast_a(x: te.Tensor, dtype: DType) -> te.Tensor:
    """A copy of A in the accumulator dtype, ``x`` itself if it has that dtype.

    The microkernel reads the elements of A one by one, and each so often that converting them
    there would cost as much as the multiply-adds.
    """
    if x.dtype is dtype:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(dtype), name="a_upcast",
                      role=te.StageRole.PACKED_A)


def _panels(
    x: te.Tensor, lines: PrimExpr, depth: PrimExpr, width: int, *, is_depth_first: bool,
    role: te.StageRole,
) -> te.Tensor:
    """``x`` in panels of ``width`` lines (rows of A, columns of B), adjacent for each k.

    ``is_depth_first``: ``x`` is stored (K, lines), else (lines, K).
    """
    count = (lines + (width - 1)) // width

    def element(*index: PrimExpr) -> PrimExpr:
        *at, panel, k, within = index
        line = panel * width + within
        value = x[(*at, k, line)] if is_depth_first else x[(*at, line, k)]
        accumulator = accumulator_dtype(x.dtype)
        # Only the last panel reaches beyond the operand: loop partitioning frees the others of the
        # check.
        return if_then_else(te.likely(line < lines), value.astype(accumulator),
                            const(0, accumulator))

    name = "a_panels" if role is te.StageRole.PACKED_A else "b_panels"
    shape = (*x.shape[:-2], count, depth, const(width))
    return te.compute(shape, element, name=name, role=role)
