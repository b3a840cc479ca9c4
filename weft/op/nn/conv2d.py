"""Two-dimensional convolution."""

from __future__ import annotations

from weft.ir import attr, op_case
from weft.op.nn.conv import ConvAttrs, define_conv, padding_attr, steps_attr
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Conv2DAttrs(ConvAttrs):
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    padding: tuple[int, ...] = padding_attr(2, "zeros around the data")
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps")
    kernel_size: tuple[int, int] | None = attr(None, "height and width of the kernel; None to "
                                               "read them off the kernel")
    data_layout: str = attr("NCHW", "layout of the data")
    kernel_layout: str = attr("OIHW", "layout of the kernel; I counts the channels of one group")


conv2d = define_conv(
    "nn.conv2d", Conv2DAttrs,
    """Cross-correlation of images with a kernel, zeros around them.

    out[n, o, y, x] = sum over c, i, j of data[n, c, y * s0 + i * d0 - top, x * s1 + j * d1 - left]
    * kernel[o, c, i, j], where o sees the channels c of its group.
    """,
    (
        op_case((1, 3, 5, 6), (4, 3, 3, 3), padding=(1, 1)),
        op_case((2, 4, 7, 5), (6, 4, 3, 2), strides=(2, 1), padding=(0, 1, 2, 0)),
        op_case((1, 2, 8, 8), (3, 2, 3, 3), dilation=(2, 3), padding=(2,)),
        op_case((1, 6, 4, 4), (4, 3, 1, 1), groups=2, channels=4, kernel_size=(1, 1)),
        op_case((1, 3, 5, 5), (3, 1, 3, 3), groups=3, padding=(1, 1)),
        op_case((1, 2, 4, 4), (6, 1, 3, 3), groups=2),
        op_case((1, 5, 5, 3), (3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO"),
        op_case((1, 1, 4, 5, 8), (2, 1, 3, 3, 8, 4), data_layout="NCHW8c", kernel_layout="OIHW8i4o",
                out_layout="NCHW4c", padding=(1, 1)),
        op_case((1, 3, 5, 5), (2, 1, 3, 3, 3, 4), kernel_layout="OIHW3i4o", out_layout="NCHW4c",
                strides=(2, 2)),
        op_case((1, 2, 5, 5, 4), (2, 1, 3, 3, 1, 4), data_layout="NCHW4c", kernel_layout="OIHW1i4o",
                groups=8, padding=(1, 1)),
        op_case((1, 2, 3, 3, 4), (2, 1, 1, 1, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o",
                groups=2),
        op_case((1, 2, 3, 3, 4), (2, 1, 2, 2, 2, 4), data_layout="NCHW4c", kernel_layout="OIHW2i4o",
                groups=4),
        op_case((1, 2, 4, 4), (2, 2, 3, 3), dtypes="int32", low=-5, high=5),
        op_case((0, 2, 4, 4), (2, 2, 3, 3)),
    ),
)
conv2d.refer(integer_form="weft.op.qnn.integer_forms:conv2d")
