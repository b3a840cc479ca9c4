"""The gradient of a convolution with regard to its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, const
from weft.topi.layout import Layout
from weft.topi.nn.conv import pad_spatial


def conv2d_backward_weight(
    grad: te.Tensor,
    data: te.Tensor,
    *,
    kernel_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_dtype: DType,
) -> te.Tensor:
    """(O, I, height, width) from the gradient of the result and the data, both NCHW.

    Stages ``data_pad`` (where needed) and ``conv2d_backward_weight``.
    """
    padded = pad_spatial(data, Layout.parse("NCHW"), "HW", padding, const(0, data.dtype))
    batch, outputs, rows, columns = grad.shape
    n, y, x = (te.reduce_axis(size, name=name)
               for size, name in ((batch, "n"), (rows, "y"), (columns, "x")))
    inputs = data.shape[1] // groups

    def element(o: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        channel = c if groups == 1 else o // (outputs // groups) * inputs + c
        value = padded[n.var, channel, y.var * strides[0] + i * dilation[0],
                       x.var * strides[1] + j * dilation[1]]
        return te.sum(grad[n.var, o, y.var, x.var].astype(out_dtype) * value.astype(out_dtype),
                      (n, y, x))

    return te.compute((outputs, inputs, *kernel_size), element, name="conv2d_backward_weight")
