"""Convolutions in any layout, transposed ones, and their gradients by the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value, maximum
from weft.topi.layout import BlockedIndex, Layout, convert_shape
from weft.topi.nn.pad import Width, pad
from weft.topi.nn.window import window_count, window_span

W = TypeVar("W", int, Width)

# The letters of the spatial axes by their number: depth, height, width.
SPATIAL_AXES = {1: "W", 2: "HW", 3: "DHW"}


def data_axes(spatial: str) -> Layout:
    """The unblocked layout of images: ``NCHW`` for the spatial axes ``HW``."""
    return Layout.parse("NC" + spatial)


def kernel_axes(spatial: str) -> Layout:
    """The unblocked layout of kernels: ``OIHW`` for the spatial axes ``HW``."""
    return Layout.parse("OI" + spatial)


def full_padding(padding: Sequence[W], axes: int) -> tuple[W, ...]:
    """The padding before each of ``axes`` axes, then the padding after each.

    ``padding`` is one number for all sides, one for each axis, or two for each axis as returned.
    """
    if len(padding) == 1:
        return tuple(padding) * (2 * axes)
    return tuple(padding) * 2 if len(padding) == axes else tuple(padding)


def side_padding(padding: Sequence[W], axes: int) -> tuple[tuple[W, W], ...]:
    """``full_padding`` as (before, after) of each axis."""
    full = full_padding(padding, axes)
    return tuple(zip(full[:axes], full[axes:], strict=True))


def pad_spatial(
    x: te.Tensor, layout: Layout, spatial: str, padding: Sequence[Width], value: PrimExpr
) -> te.Tensor:
    """``x`` padded along its spatial axes."""
    widths: list[tuple[Width, Width]] = [(0, 0)] * layout.ndim
    for letter, sides in zip(spatial, side_padding(padding, len(spatial)), strict=True):
        widths[layout.index_of(letter)] = sides
    return pad(x, widths, value, name="data_pad")


def window_counts(
    sizes: Sequence[PrimExpr], sides: Sequence[tuple[int, int]], taps: Sequence[PrimExpr],
    dilation: Sequence[int], strides: Sequence[int],
) -> list[PrimExpr]:
    """The size of the result along each spatial axis."""
    from weft.tir.simplify import simplify

    return [
        simplify(window_count(size + (before + after), window_span(tap, step), stride))
        for size, (before, after), tap, step, stride in zip(
            sizes, sides, taps, dilation, strides, strict=True
        )
    ]


def conv(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: Layout,
    kernel_layout: Layout,
    out_layout: Layout,
    out_dtype: DType,
    skipped: str = "",
) -> te.Tensor:
    """Cross-correlation of ``data`` (axes N, C, H, W) with ``kernel`` (axes O, I, H, W).

    The number of strides is that of the spatial axes. The last stage is the sum (``conv2d``, or
    the name for another rank), with ``reduce_axis``

    - ``(ic, kh, kw)`` if the kernel's I is not blocked;
    - ``(ic_outer, kh, kw, ic_inner)`` if it is;
    - ``(kh, kw)`` for a depthwise convolution (stage ``depthwise_conv2d``), which has one input
      channel and one output channel in each group.

    A stage ``data_pad`` precedes it if the data is padded. Along the axes in ``skipped`` the data
    is not padded: there the sum skips the taps outside of the data.
    """
    spatial = SPATIAL_AXES[len(strides)]
    out_channels, group_size, *taps = convert_shape(
        kernel_layout, kernel_axes(spatial), kernel.shape
    )
    batch, channels, *sizes = convert_shape(data_layout, data_axes(spatial), data.shape)
    sides = side_padding(padding, len(spatial))
    extents = window_counts(sizes, sides, taps, dilation, strides)
    border = _Border(spatial, sides, sizes, skipped)
    padded = pad_spatial(data, data_layout, spatial, border.copied, const(0, data.dtype))
    depthwise = _is_depthwise(channels, group_size, out_channels, groups)
    reduction = _Reduction(None if depthwise else group_size, spatial, taps, kernel_layout)
    grouping = _Grouping(groups, out_channels // groups, group_size, depthwise=depthwise)
    steps = {a: (stride, step) for a, stride, step in zip(spatial, strides, dilation, strict=True)}

    def element(*index: PrimExpr) -> Any:
        out = out_layout.blocked_indices(index)
        source = {"N": out["N"], "C": grouping.input_channel(out["C"], reduction.channel)}
        for letter, (stride, step) in steps.items():
            source[letter] = out[letter] * stride + reduction.taps[letter] * step
            source[letter] -= border.before[letter]
        tap = {"O": out["C"], "I": reduction.channel, **reduction.taps}
        value = padded[data_layout.indices(source)].astype(out_dtype)
        weight = kernel[kernel_layout.indices(tap)].astype(out_dtype)
        return te.sum(value * weight, reduction.axes, where=border.inside(source))

    shape = convert_shape(data_axes(spatial), out_layout, (batch, out_channels, *extents))
    base = f"depthwise_conv{len(spatial)}d" if depthwise else f"conv{len(spatial)}d"
    return te.compute(shape, element, name=base)


class _Border:
    """The padding of each axis: zeros that are copied, or taps that are skipped (``skipped``)."""

    def __init__(self, spatial: str, sides: Sequence[tuple[int, int]], sizes: Sequence[PrimExpr],
                 skipped: str) -> None:
        around = dict(zip(spatial, zip(sides, sizes, strict=True), strict=True))
        self.skipped = {a: around[a] for a in skipped if any(around[a][0])}
        self.before = {a: around[a][0][0] if a in self.skipped else 0 for a in spatial}
        copied = [(0, 0) if a in self.skipped else around[a][0] for a in spatial]
        self.copied = (*(before for before, _ in copied), *(after for _, after in copied))

    def inside(self, source: dict[str, Any]) -> PrimExpr | None:
        """Whether a tap reads data."""
        bounds: list[PrimExpr] = []
        for letter, ((before, after), size) in self.skipped.items():
            bounds += [source[letter] >= 0] if before else []
            bounds += [source[letter] < size] if after else []
        # Only rows at the border have such taps: loop partitioning frees the others of the check.
        return te.likely(all_of(*bounds)) if bounds else None


class _Reduction:
    """The reduction axes of a convolution; input channels are blocked as the kernel's I is.

    ``channels`` is ``None`` for a depthwise convolution, which does not reduce over them.
    """

    def __init__(self, channels: PrimExpr | None, spatial: str, sizes: Sequence[PrimExpr],
                 layout: Layout) -> None:
        over = [te.reduce_axis(size, name=f"k{letter.lower()}")
                for letter, size in zip(spatial, sizes, strict=True)]
        self.taps = {letter: axis.var for letter, axis in zip(spatial, over, strict=True)}
        self.channel: Any = const(0)
        self.axes: list[te.IterVar] = over
        block = layout.factor_of("I")
        if channels is None:
            return
        if layout.block_index_of("I") is None:
            ic = te.reduce_axis(channels, name="ic")
            self.channel, self.axes = ic.var, [ic, *over]
            return
        outer = te.reduce_axis(channels // block, name="ic_outer")
        inner = te.reduce_axis(block, name="ic_inner")
        self.channel = BlockedIndex(outer.var, inner.var, block)
        # Inner channels last: they are neighbours in blocked data (``NCHW16c``).
        self.axes = [outer, *over, inner]


class _Grouping:
    """Which input channels an output channel sees."""

    def __init__(self, groups: int, outputs: PrimExpr, inputs: PrimExpr, *,
                 depthwise: bool) -> None:
        """``outputs`` and ``inputs`` count the channels of one group."""
        self.groups = groups
        self.outputs = at_least_one(outputs)
        self.inputs = at_least_one(inputs)
        self.depthwise = depthwise

    def input_channel(self, out: Any, channel: Any) -> Any:
        """The channel of the data from the output channel and the channel within the group."""
        if self.depthwise:
            return out
        if self.groups == 1:
            return channel
        inputs = self.inputs
        first = self._group(out) * inputs
        if isinstance(channel, BlockedIndex):
            if isinstance(inputs, int) and inputs % channel.factor == 0:
                outer = self._group(out) * (inputs // channel.factor) + channel.outer
                return BlockedIndex(outer, channel.inner, channel.factor)
            return first + channel.value
        return first + channel

    def _group(self, out: Any) -> PrimExpr:
        outputs = self.outputs
        if isinstance(out, BlockedIndex):
            if isinstance(outputs, int) and outputs % out.factor == 0:
                return out.outer // (outputs // out.factor)
            return out.value // outputs
        return out // outputs


def at_least_one(size: PrimExpr) -> int | PrimExpr:
    """A size that indices are divided by: 1 for an empty axis, where no index is computed."""
    fixed = int_value(size)
    return maximum(size, 1) if fixed is None else max(fixed, 1)


def _is_depthwise(channels: PrimExpr, group_size: PrimExpr, out_channels: PrimExpr,
                  groups: int) -> bool:
    return (groups > 1 and int_value(group_size) == 1 and int_value(channels) == groups
            and int_value(out_channels) == groups)


def transposed_kernel_axes(spatial: str) -> Layout:
    """The unblocked layout of kernels: ``IOHW`` for the spatial axes ``HW``."""
    return Layout.parse("IO" + spatial)


def conv_transpose(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: Layout,
    kernel_layout: Layout,
    out_layout: Layout,
    out_dtype: DType,
) -> te.Tensor:
    """The gradient of a convolution with respect to its data, as one compute.

    Stage ``conv2d_transpose`` (or the name for another rank): each element of the result sums the
    taps that meet an element of the data. Taps between two elements (stride) or outside of the data
    are skipped instead of multiplied by zero, which would make NaN of an infinite tap.
    """
    spatial = SPATIAL_AXES[len(strides)]
    inputs, group_outputs, *taps = convert_shape(
        kernel_layout, transposed_kernel_axes(spatial), kernel.shape
    )
    per_group = at_least_one(group_outputs)
    batch, _, *sizes = convert_shape(data_layout, data_axes(spatial), data.shape)
    sides = side_padding(padding, len(spatial))
    extents = [
        (size - 1) * stride - before - after + (tap - 1) * step + 1 + extra
        for size, stride, (before, after), tap, step, extra in zip(
            sizes, strides, sides, taps, dilation, output_padding, strict=True
        )
    ]
    ic = te.reduce_axis(inputs // groups, name="ic")
    over = [te.reduce_axis(tap, name=f"k{a.lower()}") for a, tap in zip(spatial, taps, strict=True)]

    def element(*index: PrimExpr) -> Any:
        out = {a: getattr(i, "value", i) for a, i in out_layout.blocked_indices(index).items()}
        group, o = _split(out["C"], groups, per_group)
        channel = ic.var if groups == 1 else group * (inputs // groups) + ic.var
        source, inside = {"N": out["N"], "C": channel}, []
        for a, k, step, stride, (before, _), size in zip(
            spatial, over, dilation, strides, sides, sizes, strict=True
        ):
            distance = out[a] + before - k.var * step
            source[a] = distance // stride
            inside += [distance >= 0, (distance % stride).equal(0), source[a] < size]
        tap = {"I": channel, "O": o} | {a: k.var for a, k in zip(spatial, over, strict=True)}
        value, weight = data[data_layout.indices(source)], kernel[kernel_layout.indices(tap)]
        scaled = value.astype(out_dtype) * weight.astype(out_dtype)
        return te.sum(if_then_else(all_of(*inside), scaled, const(0, out_dtype)), [ic, *over])

    shape = convert_shape(data_axes(spatial), out_layout, (batch, group_outputs * groups, *extents))
    name = f"conv{len(spatial)}d_transpose"
    return te.compute(shape, element, name=name)


def _split(
    channel: PrimExpr, groups: int, outputs: int | PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The group of an output channel, and its number in the group."""
    if groups == 1:
        return const(0), channel
    return channel // outputs, channel % outputs


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
