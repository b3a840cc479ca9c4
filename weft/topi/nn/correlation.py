"""Correlation of two feature maps at shifts (FlowNet, Dosovitskiy et al. 2015)."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.tir.expr import PrimExpr, const
from weft.topi.layout import Layout
from weft.topi.nn.conv import pad_spatial
from weft.topi.nn.window import window_count


def correlation(
    a: te.Tensor, b: te.Tensor, *, kernel_size: int, max_displacement: int, stride1: int,
    stride2: int, padding: tuple[int, ...], is_multiply: bool,
) -> te.Tensor:
    """The correlation (N, shifts, rows, columns) of two NCHW maps; stages ``data_pad`` (if padded),
    ``correlation_sum``, ``correlation``.
    """
    layout, zero = Layout.parse("NCHW"), const(0, a.dtype)
    left, right = (pad_spatial(x, layout, "HW", padding, zero) for x in (a, b))
    reach = max_displacement // stride2
    shifts = 2 * reach + 1
    border = max_displacement + (kernel_size - 1) // 2
    # Windows keep this distance from the border, so that all their shifts are inside.
    rows, columns = (window_count(size, 2 * border + 1, stride1) for size in left.shape[2:])
    c = te.reduce_axis(a.shape[1], name="c")
    i, j = (te.reduce_axis(kernel_size, name=name) for name in ("i", "j"))

    def element(n: PrimExpr, q: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        top = y * stride1 + max_displacement + i.var
        side = x * stride1 + max_displacement + j.var
        down, across = (q // shifts - reach) * stride2, (q % shifts - reach) * stride2
        first, second = left[n, c.var, top, side], right[n, c.var, top + down, side + across]
        return te.sum(first * second if is_multiply else te.abs(first - second), (c, i, j))

    total = te.compute((a.shape[0], shifts * shifts, rows, columns), element,
                       name="correlation_sum")
    count = a.shape[1].astype(a.dtype) * const(kernel_size * kernel_size, a.dtype)
    return te.compute(total.shape, lambda *index: total[index] / count, name="correlation")
