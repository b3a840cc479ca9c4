"""Three-dimensional convolution, over volumes and videos."""

from __future__ import annotations

from weft.ir import attr, op_case
from weft.op.nn.conv import ConvAttrs, define_conv, padding_attr, steps_attr
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Conv3DAttrs(ConvAttrs):
    strides: tuple[int, int, int] = steps_attr(3, "steps along depth, height and width")
    padding: tuple[int, ...] = padding_attr(3, "zeros around the data")
    dilation: tuple[int, int, int] = steps_attr(3, "distance of the taps")
    kernel_size: tuple[int, int, int] | None = attr(None, "depth, height and width of the "
                                                    "kernel; None to read them off the kernel")
    data_layout: str = attr("NCDHW", "layout of the data")
    kernel_layout: str = attr("OIDHW", "layout of the kernel; I counts the channels of one group")


conv3d = define_conv(
    "nn.conv3d", Conv3DAttrs,
    """Cross-correlation of volumes with a kernel, zeros around them.

    out[n, o, z, y, x] = sum over c, k, i, j of data[n, c, z * s0 + k * d0 - front,
    y * s1 + i * d1 - top, x * s2 + j * d2 - left] * kernel[o, c, k, i, j], where o sees the
    channels c of its group.
    """,
    (
        op_case((1, 2, 4, 5, 4), (3, 2, 3, 3, 3), padding=(1,)),
        op_case((2, 4, 3, 4, 5), (2, 2, 2, 1, 3), strides=(1, 2, 2), padding=(1, 0, 1, 0, 0, 2),
                groups=2),
        op_case((1, 2, 5, 5, 5), (2, 2, 2, 2, 2), dilation=(2, 1, 3)),
        op_case((1, 3, 3, 3, 3), (3, 1, 2, 2, 2), groups=3, padding=(0, 1, 1)),
        op_case((1, 3, 3, 4, 2), (2, 2, 2, 2, 3), data_layout="NDHWC", kernel_layout="DHWIO"),
        op_case((1, 1, 3, 4, 5, 4), (2, 1, 3, 3, 3, 4, 4), data_layout="NCDHW4c",
                kernel_layout="OIDHW4i4o", padding=(1, 1, 1)),
        op_case((1, 1, 2, 3, 3), (2, 1, 2, 2, 2), dtypes="int32", low=-5, high=5),
        op_case((0, 2, 3, 3, 3), (2, 2, 2, 2, 2)),
    ),
)
