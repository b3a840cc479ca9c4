"""Products with a constant weight matrix, packed at compile time into panels of columns.

The result of any rank is one matrix: its leading axes together are the rows. From a few rows on
the data is packed into panels too, by copying whole cache lines; otherwise lines whose distance is
a multiple of a page would push each other out of the first-level cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from weft import te
from weft.ir.attrs import Attrs
from weft.ir.expr import Call
from weft.ir.types import TensorType, is_static
from weft.op.nn.dense import DenseAttrs
from weft.strategy.analysis import size_of
from weft.strategy.cpu.blocking import registers
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.dot_product_matmul import dot_products, packed_dot_dense
from weft.strategy.cpu.flat_rows import ravel, row_count, unravel
from weft.strategy.cpu.machine import RegisterTile, choose_tile
from weft.strategy.cpu.matmul import CHUNK, line_panels, packing_at_run_time, schedule_packed
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import Target
from weft.tir.expr import PrimExpr
from weft.topi.layout import Layout

MIN_PACKED_ROWS = 8
MIN_PACKED_COLUMNS = 64


@strategy("nn.dense", target="cpu")
def dense(call: Call, target: Target) -> Iterator[Implementation]:
    """Packed weights are tiled as they are; others are packed at run time first."""
    layout = Layout.parse(attrs_of(call, DenseAttrs).weight_layout)
    yield from packed_dot_dense(call, layout, target)
    panel = layout.factor_of("N")
    result = call.checked_type
    is_packed = layout.ndim == 3 and panel > 1
    if is_packed and isinstance(result, TensorType) and is_static(result):
        tile = _tile(result, panel, target)
        yield Implementation(
            "nn.dense.cpu.packed",
            functools.partial(schedule_packed, tile=tile, lanes=panel, flat_rows=True),
            functools.partial(packed_dense, layout=layout, height=tile.rows),
        )
    elif layout.name in ("NK", "KN"):
        yield from dot_products("nn.dense", call, target)
        yield from packing_at_run_time("nn.dense", call, target, transpose_b=layout.name == "NK")
    yield Implementation("nn.dense.cpu.generic", schedule_default, cost=1.0)


def _tile(result: TensorType, panel: int, target: Target) -> RegisterTile:
    """Rows by panels."""
    *leading, columns = result.concrete_shape
    step = registers(panel, target.lanes(result.dtype))
    count = -(-columns // panel) * step
    tile = choose_tile(math.prod(leading), count, target, result.dtype, column_step=step)
    return RegisterTile(tile.rows, max(1, tile.vectors // step))


def packed_dense(
    data: te.Tensor, weight: te.Tensor, attrs: Attrs, *, layout: Layout, height: int
) -> te.Tensor:
    """``out[…, n] = sum over k of data[…, k] * weight[n // p, k, n % p]``.

    The product has all columns of all panels; the result leaves out those that fill up the last.
    """
    if not isinstance(attrs, DenseAttrs):
        raise InternalError(f"packed dense got {type(attrs).__name__}")
    dtype = attrs.out_dtype or data.dtype
    *leading, depth = data.shape
    rows = row_count(leading)
    panels, _, width = weight.shape
    columns = panels * width
    matrix = data
    if len(leading) != 1:
        matrix = te.compute(
            (rows, depth), lambda r, k: data[(*unravel(r, leading), k)], name="rows",
            tag="injective",
        )
    is_worth_packing = size_of(rows) >= MIN_PACKED_ROWS and size_of(columns) >= MIN_PACKED_COLUMNS
    left = line_panels(matrix, rows, depth, height) if is_worth_packing else None
    k = te.reduce_axis(depth, name="k")

    def element(r: PrimExpr, n: PrimExpr) -> PrimExpr:
        value = (matrix[r, k] if left is None
                 else left[r // height, k.var // CHUNK, r % height, k.var % CHUNK])
        factor = weight[layout.indices({"N": n, "K": k.var})]
        return te.sum(value.astype(dtype) * factor.astype(dtype), k)

    product = te.compute((rows, columns), element, name="dense", tag="dense_pack")
    units = attrs.units if attrs.units is not None else columns
    if len(leading) == 1 and units is columns:
        return product
    return te.compute(
        (*leading, units), lambda *i: product[ravel(i[:-1], leading), i[-1]],
        name="dense_rows", tag="injective",
    )
