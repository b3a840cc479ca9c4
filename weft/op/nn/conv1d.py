"""One-dimensional convolution, along a signal."""

from __future__ import annotations

from weft.ir import attr, op_case
from weft.op.nn.conv import ConvAttrs, define_conv, padding_attr, steps_attr
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Conv1DAttrs(ConvAttrs):
    strides: tuple[int] = steps_attr(1, "step along the width")
    padding: tuple[int, ...] = padding_attr(1, "zeros around the data")
    dilation: tuple[int] = steps_attr(1, "distance of the taps")
    kernel_size: tuple[int] | None = attr(None, "width of the kernel; None to read it off the "
                                          "kernel")
    data_layout: str = attr("NCW", "layout of the data")
    kernel_layout: str = attr("OIW", "layout of the kernel; I counts the channels of one group")


conv1d = define_conv(
    "nn.conv1d", Conv1DAttrs,
    """Cross-correlation of signals with a kernel, zeros around them.

    out[n, o, x] = sum over c, j of data[n, c, x * s + j * d - left] * kernel[o, c, j], where o
    sees the channels c of its group.
    """,
    (
        op_case((1, 3, 7), (4, 3, 3), padding=(1,)),
        op_case((2, 4, 9), (6, 2, 3), strides=(2,), padding=(0, 2), groups=2),
        op_case((1, 2, 11), (3, 2, 4), dilation=(3,), padding=(2,)),
        op_case((1, 5, 6), (5, 1, 2), groups=5, channels=5, kernel_size=(2,)),
        op_case((1, 6, 3), (2, 3, 4), data_layout="NWC", kernel_layout="WIO"),
        op_case((1, 1, 9, 8), (2, 1, 3, 8, 4), data_layout="NCW8c", kernel_layout="OIW8i4o",
                out_layout="NCW4c", padding=(1,), strides=(2,)),
        op_case((1, 2, 5, 4), (2, 1, 3, 1, 4), data_layout="NCW4c", kernel_layout="OIW1i4o",
                groups=8, padding=(1,)),
        op_case((1, 2, 5), (2, 2, 3), dtypes="int32", low=-5, high=5),
        op_case((0, 2, 4), (2, 2, 3)),
    ),
)
