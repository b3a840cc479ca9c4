"""Matrix products of two activations.

The right operand is read in panels, as wide as the register tile: it is copied into them where it
is large and many rows use it, or does not lie in rows, or its rows are no whole vectors, and else
read where it is. The left one is read where it is too, an element at a time, unless it is stored
transposed: a tile has few rows, and sixteen elements of a row share a cache line.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

from weft import te
from weft.ir.dtype import DType
from weft.ir.expr import Call
from weft.ir.types import TensorType
from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.dot_product.matmul import dot_product_matmul
from weft.strategy.cpu.estimate import gemm_seconds
from weft.strategy.cpu.gemm.cost import (
    GemmBlocking,
    GemmShape,
    other_plans,
    packs_b,
    plan_gemm,
)
from weft.strategy.cpu.gemm.schedule import schedule_gemm
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.tir.expr import PrimExpr, const, if_then_else, int_value
from weft.topi.broadcast import broadcast_shape
from weft.topi.nn.dense import accumulator_dtype

# Below these a right operand that must be copied is not worth it: measured from 2 to 16 of each.
MIN_COPIED_ROWS, MIN_COLUMNS = 4, 3
SUM_TYPES = ("float32", "float64", "int32", "int64")


def _products(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    name = getattr(call.op, "name", "matmul")
    attrs = call.attrs
    if isinstance(attrs, MatmulAttrs | BatchMatmulAttrs) and _has_matrices(call):
        yield from dot_product_matmul(name, call, target)
        yield from gemm_of_activations(
            name, call, target, transpose_a=attrs.transpose_a, transpose_b=attrs.transpose_b
        )
    yield Implementation(f"{name}.cpu.generic", schedule_default,
                         seconds=gemm_seconds(call, target))


def _has_matrices(call: Call) -> bool:
    """Whether both operands are matrices, or stacks of one rank, as they are in the pipeline."""
    ranks = {x.checked_type.ndim for x in (call, *call.args)
             if isinstance(x.checked_type, TensorType)}
    return len(ranks) == 1 and ranks <= {2, 3}


strategy("nn.matmul", target="cpu", complete=True)(_products)
strategy("nn.batch_matmul", target="cpu", complete=True)(_products)


def gemm_of_activations(
    name: str, call: Call, target: CpuTarget, *, transpose_a: bool = False, transpose_b: bool
) -> Iterator[Implementation]:
    """The implementation in register tiles, where the call is large enough for it."""
    size = _size(call, transpose_a=transpose_a)
    if size is None or not _is_worth_tiles(size, call, transpose_b):
        return

    def in_tiles(full_name: str, plan: GemmBlocking) -> Implementation:
        product = functools.partial(
            tiled_matmul, transpose_a=transpose_a, transpose_b=transpose_b, plan=plan,
            in_panels=transpose_b or packs_b(size, plan, target),
        )
        return Implementation(
            full_name, functools.partial(schedule_gemm, plan=plan),
            lambda a, b, attrs: product(a, b, out_dtype=attrs.out_dtype or a.dtype),
        )

    yield with_variants(f"{name}.cpu.packed", plan_gemm(size, target),
                        functools.partial(other_plans, size, target), in_tiles)


def _is_worth_tiles(size: GemmShape, call: Call, transpose_b: bool) -> bool:
    """Tiles that are mostly empty are not, but that sums of narrow floats be exact is."""
    result = call.checked_type
    if isinstance(result, TensorType) and result.dtype is not size.dtype:
        return True
    return size.n >= MIN_COLUMNS and not (transpose_b and size.m < MIN_COPIED_ROWS)


def with_variants(
    name: str, best: GemmBlocking, others: Callable[[], Iterable[GemmBlocking]],
    make: Callable[[str, GemmBlocking], Implementation],
) -> Implementation:
    """The implementation for the best plan, with those for other plans as its variants."""
    def variants() -> Iterator[Implementation]:
        for plan in others():
            yield make(f"{name}[{plan.tile.mr}x{plan.width}]", plan)

    return dataclasses.replace(make(name, best), variants=variants)


def _size(call: Call, *, transpose_a: bool) -> GemmShape | None:
    """The sizes of a product of two batches of matrices of one type that has a register tile."""
    result, left, right = (call.checked_type, *(arg.checked_type for arg in call.args))
    if not (isinstance(result, TensorType) and isinstance(left, TensorType)
            and isinstance(right, TensorType)):
        return None
    dtype = accumulator_dtype(left.dtype)
    if right.dtype is not left.dtype or str(dtype) not in SUM_TYPES:
        return None
    if result.dtype not in (left.dtype, dtype):
        return None
    dims = (*result.shape[-2:], left.shape[-2 if transpose_a else -1])
    if not 2 <= result.ndim == left.ndim == right.ndim:
        return None
    rows, columns, depth = (d if isinstance(d, int) else 0 for d in dims)
    return GemmShape(rows, columns, depth, dtype) if rows * columns * depth else None


def tiled_matmul(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, plan: GemmBlocking,
    in_panels: bool, out_dtype: DType,
) -> te.Tensor:
    """The product, with ``b_panels[.., n // width, k, n % width]`` where ``in_panels``.

    The product has whole vectors of columns: panels have zeros beyond the matrix, and the last
    vectors of rows that are read where they are have a mask. The result leaves out the columns
    that are too many. A left operand that is stored transposed goes into panels
    ``[.., m // height, k, m % height]``. Narrow floats are widened as they are copied, or as they
    are read, and the sums narrowed at the end.
    """
    wide = accumulator_dtype(a.dtype)
    rows, depth = _pick(a.shape, transposed=transpose_a)
    _, columns = _pick(b.shape, transposed=transpose_b)
    height, width = plan.tile.mr, plan.width
    left_panels = transpose_a and (int_value(rows) or 0) > height  # a sole panel is one already
    left = (_panels(a, rows, depth, height, depth_first=True, name="a_panels",
                    role=te.StageRole.PACKED_A) if left_panels
            else widened(a, wide))
    right = (_panels(b, columns, depth, width, depth_first=not transpose_b, name="b_panels",
                     role=te.StageRole.PACKED_B)
             if in_panels else b)
    k = te.reduce_axis(depth, name="k")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim + b.ndim > 4 else ()

    def inside(n: PrimExpr) -> PrimExpr:
        """A mask; of several panels all but the last have none."""
        return te.likely(n < columns) if (int_value(columns) or 0) > width else n < columns

    def element(*index: PrimExpr) -> PrimExpr:
        *at, m, n = index
        line = (m // height, k, m % height) if left_panels else (k, m) if transpose_a else (m, k)
        column = (n // width, k, n % width) if in_panels else (k, n)
        y = right[(*_batch_index(b, at), *column)].astype(wide)
        if not in_panels and int_value(columns) != int_value(whole):
            y = if_then_else(inside(n), y, const(0, wide))
        return te.sum(left[(*_batch_index(a, at), *line)] * y, k)

    whole = (columns + (plan.lanes - 1)) // plan.lanes * plan.lanes
    product = te.compute((*batch, rows, whole), element, name="matmul")
    if int_value(columns) == int_value(whole) and wide is out_dtype:
        return product
    return te.compute((*batch, rows, columns), lambda *i: product[i].astype(out_dtype),
                      name="matmul_columns")


def widened(x: te.Tensor, dtype: DType) -> te.Tensor:
    """A copy of the left operand in the type of the sums, if it is narrower: its elements are
    read one by one, and so often that widening them there would cost as much as the sums.
    """
    if x.dtype is dtype:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(dtype), name="a_wide",
                      role=te.StageRole.PACKED_A)


def _pick(shape: tuple[PrimExpr, ...], *, transposed: bool) -> tuple[PrimExpr, PrimExpr]:
    first, second = shape[-2:]
    return (second, first) if transposed else (first, second)


def _batch_index(x: te.Tensor, at: list[PrimExpr]) -> tuple[PrimExpr, ...]:
    leading = x.ndim - 2
    if not leading:
        return ()
    own = at[len(at) - leading:]
    return tuple(
        const(0) if int_value(size) == 1 else i
        for size, i in zip(x.shape[:leading], own, strict=True)
    )


def _panels(
    x: te.Tensor, lines: PrimExpr, depth: PrimExpr, width: int, *, depth_first: bool, name: str,
    role: te.StageRole,
) -> te.Tensor:
    """``x`` as panels of ``width`` lines, the lines of one depth side by side."""
    count = (lines + (width - 1)) // width

    def element(*index: PrimExpr) -> PrimExpr:
        *at, panel, k, within = index
        line = panel * width + within
        value = x[(*at, k, line)] if depth_first else x[(*at, line, k)]
        wide = accumulator_dtype(x.dtype)
        return if_then_else(te.likely(line < lines), value.astype(wide), const(0, wide))

    shape = (*x.shape[:-2], count, depth, const(width))
    return te.compute(shape, element, name=name, role=role)
