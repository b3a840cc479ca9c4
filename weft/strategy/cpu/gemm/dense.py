"""Products with a constant weight matrix, packed at compile time into panels of columns.

The result of any rank is one matrix: its leading axes together are the rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TypeGuard

from weft import te
from weft.ir.attrs import Attrs
from weft.ir.expr import Call
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.dense import DenseAttrs
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.dot_product.matmul import dot_product_dense, dot_product_matmul
from weft.strategy.cpu.elementwise.flat_rows import ravel, row_count, unravel
from weft.strategy.cpu.estimate import gemm_seconds
from weft.strategy.cpu.gemm.cost import (
    GemmBlocking,
    GemmShape,
    other_plans,
    plan_gemm,
)
from weft.strategy.cpu.gemm.matmul import gemm_of_activations, widened, with_variants
from weft.strategy.cpu.gemm.schedule import schedule_gemm
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CpuTarget
from weft.tir.expr import PrimExpr
from weft.topi.layout import Layout
from weft.topi.nn.dense import accumulator_dtype


@strategy("nn.dense", target="cpu", complete=True)
def dense(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Packed weights are tiled as they are; others are packed at run time first."""
    layout = Layout.parse(attrs_of(call, DenseAttrs).weight_layout)
    yield from dot_product_dense(call, layout, target)
    panel = layout.factor_of("N")
    result, data = call.checked_type, call.args[0].checked_type
    is_packed = layout.ndim == 3 and panel > 1
    if is_packed and _is_known(result) and _is_known(data) and data.concrete_shape[-1]:
        *leading, columns = result.concrete_shape
        rows, depth = math.prod(leading), data.concrete_shape[-1]
        size = GemmShape(max(rows, 1), columns, depth, accumulator_dtype(result.dtype))
        yield with_variants(
            "nn.dense.cpu.packed", plan_gemm(size, target, panel=panel),
            functools.partial(other_plans, size, target, panel=panel),
            functools.partial(_in_panels, layout),
        )
    elif layout.name in ("NK", "KN"):
        yield from dot_product_matmul("nn.dense", call, target)
        yield from gemm_of_activations("nn.dense", call, target,
                                           transpose_b=layout.name == "NK")
    yield Implementation("nn.dense.cpu.generic", schedule_default,
                         seconds=gemm_seconds(call, target))


def _in_panels(layout: Layout, name: str, plan: GemmBlocking) -> Implementation:
    return Implementation(
        name, functools.partial(schedule_gemm, plan=plan, flat_rows=True),
        functools.partial(packed_dense, layout=layout),
    )


def _is_known(type_: Type | None) -> TypeGuard[TensorType]:
    return isinstance(type_, TensorType) and is_static(type_)


def packed_dense(
    data: te.Tensor, weight: te.Tensor, attrs: Attrs, *, layout: Layout
) -> te.Tensor:
    """``out[…, n] = sum over k of data[…, k] * weight[n // p, k, n % p]``.

    The product has all columns of all panels; the result leaves out those that fill up the last.
    Narrow floats are added up in float32.
    """
    if not isinstance(attrs, DenseAttrs):
        raise InternalError(f"packed dense got {type(attrs).__name__}")
    dtype = attrs.out_dtype or data.dtype
    wide = accumulator_dtype(dtype)
    *leading, depth = data.shape
    rows = row_count(leading)
    panels, _, width = weight.shape
    columns = panels * width
    matrix = data
    if len(leading) != 1:
        matrix = te.compute(
            (rows, depth), lambda r, k: data[(*unravel(r, leading), k)], name="rows",
        )
    matrix = widened(matrix, wide)
    k = te.reduce_axis(depth, name="k")

    def element(r: PrimExpr, n: PrimExpr) -> PrimExpr:
        factor = weight[layout.indices({"N": n, "K": k.var})]
        return te.sum(matrix[r, k] * factor.astype(wide), k)

    product = te.compute((rows, columns), element, name="dense")
    units = attrs.units if attrs.units is not None else columns
    if len(leading) == 1 and units is columns and wide is dtype:
        return product
    return te.compute(
        (*leading, units), lambda *i: product[ravel(i[:-1], leading), i[-1]].astype(dtype),
        name="dense_rows",
    )
