"""What the choice of an algorithm for a convolution depends on, as values that can be compared."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from weft.ir import Call, Constant, DType, Expr, TensorType, Type, float32, is_static, typical_size
from weft.ir.deferred import is_finite as is_finite_array
from weft.ir.shape import ANY
from weft.op.nn.conv import ConvAttrs
from weft.strategy.implementation import attrs_of
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import data_axes, kernel_axes, side_padding
from weft.topi.nn.dense import accumulator_dtype
from weft.topi.nn.window import window_count, window_span
from weft.transform.layout.typical_images import TYPICAL_IMAGE_SIZE, typical_image_shape


@dataclass(frozen=True, slots=True)
class ConvShape:
    """The sizes of a convolution, whatever the layouts of its operands; typical ones if symbolic.

    ``inputs`` and ``outputs`` count all channels; ``extents`` are the spatial sizes of the result,
    ``dtype`` is that of the accumulators, ``itemsize`` the bytes of one element of an operand. The
    last extent is symbolic if ``has_open_row``, the one before if ``has_open_height``.
    """

    batch: int
    inputs: int
    outputs: int
    groups: int
    taps: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    pointwise: bool
    dtype: DType
    itemsize: int
    has_open_row: bool = False
    has_open_height: bool = False

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def of(attrs: ConvAttrs, data: TensorType, kernel: TensorType) -> ConvShape:
        """From types in the layouts that ``attrs`` name, with typical sizes for symbolic ones."""
        spatial, layout = attrs.spatial, Layout.parse(attrs.data_layout)
        batch, inputs, *sizes = convert_shape(
            layout, data_axes(spatial), typical_image_shape(data.shape, layout.index_of("N")))
        outputs, _, *taps = convert_shape(Layout.parse(attrs.kernel_layout), kernel_axes(spatial),
                                          typical_image_shape(kernel.shape))
        counts = (
            window_count(size + sum(sides), window_span(tap, dilation), stride)
            for size, sides, tap, dilation, stride in zip(
                sizes, side_padding(attrs.padding, len(spatial)), taps, attrs.dilation,
                attrs.strides, strict=True)
        )
        # A typical image may be smaller than the window; at run time at least one window fits.
        extents = counts if is_static(data) else (max(count, 1) for count in counts)
        pointwise = math.prod(taps) == 1 and not any(attrs.padding)
        return ConvShape(batch, inputs, outputs, attrs.groups, tuple(taps), tuple(extents),
                         tuple(attrs.strides), pointwise,
                         accumulator_dtype(attrs.out_dtype or data.dtype), data.dtype.itemsize,
                         *(_is_open(data, layout, letter) for letter in spatial[:-3:-1]))

    @property
    def row_stride(self) -> int:
        """The stride from a row of the image to the next."""
        return self.strides[-2] if len(self.strides) > 1 else 1

    @property
    def group_inputs(self) -> int:
        return self.inputs // self.groups

    @property
    def group_outputs(self) -> int:
        return self.outputs // self.groups

    @property
    def depth(self) -> int:
        """Multiply-adds for one element of the result."""
        return self.group_inputs * math.prod(self.taps)

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.outputs * math.prod(self.extents)

    @property
    def is_empty(self) -> bool:
        return 0 in (self.batch, self.inputs, self.outputs, *self.taps, *self.extents)

    @property
    def is_depthwise(self) -> bool:
        """Whether each group has one input channel and one output channel."""
        return self.groups > 1 and self.groups == self.inputs == self.outputs

    @property
    def sample_widths(self) -> tuple[int, ...]:
        """The width, or those that images from 32 to 640 have here if it is symbolic."""
        return open_samples(self.extents[-1]) if self.has_open_row else self.extents[-1:]

    def with_outputs(self, outputs: int) -> ConvShape:
        return replace(self, outputs=outputs)


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """A convolution whose sizes are fixed or symbolic.

    ``is_constant``: the kernel is known when the model is compiled, so its layout may change and
    zeros may be appended for free. ``is_finite``: it is known to hold numbers only.
    """

    op_name: str
    attrs: ConvAttrs
    data: TensorType
    kernel: TensorType
    is_constant: bool
    is_finite: bool

    @staticmethod
    def of(call: Call, types: Sequence[Type | None] | None = None) -> ConvProblem | None:
        """From a typed call; ``None`` if only run time determines a size.

        ``types`` replaces the types of the arguments while these are being rewritten.
        """
        data, kernel = types or [argument.checked_type for argument in call.args]
        if not (isinstance(data, TensorType) and isinstance(kernel, TensorType)):
            return None
        if ANY in (*data.shape, *kernel.shape):
            return None
        attrs, weights = attrs_of(call, ConvAttrs), call.args[1]
        return ConvProblem(getattr(call.op, "name", ""), attrs, data, kernel,
                           isinstance(weights, Constant), is_finite(weights))

    @property
    def shape(self) -> ConvShape:
        return ConvShape.of(self.attrs, self.data, self.kernel)

    @property
    def assumed_share(self) -> float:
        """The typical number of elements of the data over that which ``shape`` assumes.

        Algorithms are compared for one image of the usual size; reports name the typical sizes of
        the program's symbols, and need the time for these.
        """
        assumed = math.prod(self._assumed_data)
        return math.prod(map(typical_size, self.data.shape)) / assumed if assumed else 1.0

    @property
    def assumed_sizes(self) -> str:
        """The symbolic dimensions of the data with the sizes that ``shape`` assumes, as text."""
        return ", ".join(f"{dim}={size}" for dim, size in zip(
            self.data.shape, self._assumed_data, strict=True) if not isinstance(dim, int))

    @property
    def _assumed_data(self) -> tuple[int, ...]:
        return typical_image_shape(self.data.shape,
                                   Layout.parse(self.attrs.data_layout).index_of("N"))

    @property
    def has_fixed_channels(self) -> bool:
        """Whether the kernel and the channels have fixed sizes: batch and image may be symbolic."""
        layout = Layout.parse(self.attrs.data_layout)
        return is_static(self.kernel) and isinstance(self.data.shape[layout.index_of("C")], int)

    @property
    def has_fixed_image(self) -> bool:
        """Whether all sizes but the batch are fixed."""
        batch = Layout.parse(self.attrs.data_layout).index_of("N")
        return all(isinstance(size, int) for axis, size in enumerate(self.data.shape)
                   if axis != batch)

    @property
    def unblocked_data(self) -> str:
        """``NCHW``, or its counterpart for other numbers of axes."""
        return "NC" + self.attrs.spatial

    @property
    def unblocked_kernel(self) -> str:
        """``OIHW``, or its counterpart for other numbers of axes."""
        return "OI" + self.attrs.spatial

    @property
    def is_unblocked(self) -> bool:
        """Whether all layouts are the usual ones with channels first: NCHW, OIHW and NCHW."""
        attrs = self.attrs
        return ((attrs.data_layout, attrs.kernel_layout, attrs.result_layout)
                == (self.unblocked_data, self.unblocked_kernel, self.unblocked_data))

    @property
    def is_channels_last(self) -> bool:
        """Whether data and result are in NHWC (or its counterpart) and the kernel unblocked."""
        attrs, wanted = self.attrs, f"N{self.attrs.spatial}C"
        return (attrs.data_layout == attrs.result_layout == wanted
                and Layout.parse(attrs.kernel_layout).is_primal)

    @property
    def has_narrow_floats(self) -> bool:
        """Whether both operands are floats of at most 16 bits."""
        return self.data.dtype.is_narrow_float and self.kernel.dtype.is_narrow_float

    def in_float32(self) -> ConvProblem:
        """The same convolution with both operands converted to float32."""
        return replace(self, attrs=self.attrs.replace(out_dtype=None),
                       data=TensorType(self.data.shape, float32),
                       kernel=TensorType(self.kernel.shape, float32))


def _is_open(data: TensorType, layout: Layout, letter: str) -> bool:
    """Whether the size of a spatial axis is symbolic."""
    return not isinstance(data.shape[layout.index_of(letter)], int)


def open_samples(typical: int) -> tuple[int, ...]:
    """The extents of images of 32 to 640 pixels where one of 224 has ``typical``."""
    return tuple(-(-typical * size // TYPICAL_IMAGE_SIZE)
                 for size in (32, 56, 97, 128, 224, 256, 320, 640))


def is_finite(kernel: Expr) -> bool:
    """Whether the kernel is a constant without infinities and NaN."""
    return isinstance(kernel, Constant) and is_finite_array(kernel.content)
