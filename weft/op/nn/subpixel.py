"""Transposed convolution as ordinary convolutions, whose channels hold the phases of the result.

With stride s, output position y = s * q + r depends on data around q alone, through the taps
congruent to r modulo s (Shi et al., "Is the deconvolution layer the same as a convolutional
layer?", 2016). Phases with equally many taps are the channels of one convolution, and a transpose
interleaves all phases. Phases with fewer taps have separate convolutions, because taps of zero
would turn infinite data into NaN. For the same reason taps on the padding are left out, and
constant kernels with infinities are excluded: along the last axis taps do multiply the padding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ir import Call, Constant, Expr, Op, TensorType, Tuple, const
from weft.op.gradients import tensor_type
from weft.op.nn.conv import conv1d, conv2d, conv3d
from weft.op.nn.pad import pad
from weft.op.transform.index import take
from weft.op.transform.join import concatenate
from weft.op.transform.shape import reshape, transpose
from weft.op.transform.slice import strided_slice
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.topi.nn.conv import side_padding

_CONVOLUTIONS: dict[int, Op] = {1: conv1d, 2: conv2d, 3: conv3d}


@dataclass(frozen=True, slots=True)
class _Group:
    """Phases of one axis with the same number of taps, ``step`` apart in the data.

    ``taps[p][j]`` is the kernel tap that phase ``phases[p]`` applies to the data at
    ``q - offset - (count - 1 - j) * step`` for position q, in the order of a convolution.
    """

    phases: tuple[int, ...]
    taps: tuple[tuple[int, ...], ...]
    step: int
    offset: int

    @property
    def count(self) -> int:
        return len(self.taps[0])

    @property
    def reach(self) -> int:
        """The distance before position q from which data is read."""
        return self.offset + (self.count - 1) * self.step


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis: ``size`` elements of data, grouped phases, and the computed positions.

    ``wanted`` elements of the interleaved result, from ``start`` on, are the result of the call.
    """

    size: int
    stride: int
    groups: tuple[_Group, ...]
    first: int
    positions: int
    start: int
    wanted: int

    @staticmethod
    def of(size: int, taps: int, stride: int, step: int, cut: int, wanted: int) -> _Axis:
        """For a kernel of ``taps``, with ``cut`` elements cropped in front."""
        groups = _phase_groups(taps, stride, step)
        first = min(cut // stride, *(g.reach for g in groups))
        last = max(-(-(cut + wanted) // stride), *(size + g.offset for g in groups))
        return _Axis(size, stride, groups, first, last - first, cut - first * stride, wanted)

    def padding(self, group: _Group) -> tuple[int, int]:
        """Zeros before and after the data for one group; neither is negative."""
        before = group.reach - self.first
        return before, self.first + self.positions - group.offset - self.size


def _phase_groups(taps: int, stride: int, step: int) -> tuple[_Group, ...]:
    """The phases that have taps: tap k belongs to phase k * step modulo stride."""
    by_phase: dict[int, list[int]] = {}
    for k in range(taps):
        by_phase.setdefault(k * step % stride, []).append(k)
    alike: dict[tuple[int, int], list[int]] = {}
    for phase, found in sorted(by_phase.items()):
        alike.setdefault((len(found), found[0] * step // stride), []).append(phase)
    distance = step // math.gcd(step, stride)
    return tuple(
        _Group(tuple(phases), tuple(tuple(reversed(by_phase[p])) for p in phases), distance, offset)
        for (_, offset), phases in alike.items()
    )


def transposed_as_convolution(call: Call) -> Expr | None:
    """The call as convolutions of phases.

    ``None`` for blocked layouts, symbolic spatial sizes, and kernels with infinities or NaN.
    """
    attrs: Any = call.attrs
    data, kernel = call.args
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.result_layout)
    if not all(Layout.parse(layout).is_primal for layout in layouts) or not _is_finite(kernel):
        return None
    spatial = attrs.spatial
    x, w = tensor_type(data), tensor_type(kernel)
    sizes = _fixed(x, attrs.data_layout, "C" + spatial)
    taps = _fixed(w, attrs.kernel_layout, "IO" + spatial)
    if sizes is None or taps is None:
        return None
    axes = [_axis(attrs, i, sizes[1 + i], taps[2 + i]) for i in range(len(spatial))]
    images = _in_order(data, attrs.data_layout, "NC" + spatial)
    shape = (attrs.groups, taps[0] // attrs.groups, *taps[1:])
    weights = reshape(_in_order(kernel, attrs.kernel_layout, "IO" + spatial), newshape=shape,
                      allowzero=True)
    dtype = attrs.out_dtype or x.dtype
    build = _Builder(call, images, weights, shape[:3], tuple(axes), const(0, dtype))
    whole = build.interleaved(build.phases(()))
    cut = strided_slice(whole, begin=tuple(a.start for a in axes),
                        end=tuple(a.start + a.wanted for a in axes),
                        axes=tuple(range(2, 2 + len(spatial))))
    return _in_order(cut, "NC" + spatial, attrs.result_layout)


def _is_finite(kernel: Expr) -> bool:
    """Whether the kernel's elements are finite; a kernel that is an input is assumed to be.

    The direct form takes hundreds of times as long. An infinite tap of an input makes NaN where it
    passes the end of a row of the data.
    """
    if not isinstance(kernel, Constant) or not tensor_type(kernel).dtype.is_float:
        return True
    return bool(np.isfinite(kernel.data).all())


def _axis(attrs: Any, axis: int, size: int, taps: int) -> _Axis:
    before, after = side_padding(attrs.padding, len(attrs.spatial))[axis]
    stride, step = attrs.strides[axis], attrs.dilation[axis]
    out = ((size - 1) * stride + (taps - 1) * step + 1 - before - after
           + attrs.output_padding[axis])
    return _Axis.of(size, taps, stride, step, before, out)


def _fixed(type_: TensorType, layout: str, letters: str) -> tuple[int, ...] | None:
    """The sizes along ``letters``; ``None`` if one of them is symbolic."""
    found = [type_.shape[layout.index(letter)] for letter in letters]
    fixed = tuple(size for size in found if isinstance(size, int))
    return fixed if len(fixed) == len(found) else None


def _in_order(x: Expr, source: str, wanted: str) -> Expr:
    if source == wanted:
        return x
    return transpose(x, axes=tuple(source.index(a) for a in wanted))


@dataclass(frozen=True, slots=True)
class _Builder:
    """Convolves ``images`` (N, C, sizes…) with ``weights`` (groups, I, O, taps…)."""

    call: Call
    images: Expr
    weights: Expr
    shape: tuple[int, ...]  # groups, I, O
    axes: tuple[_Axis, ...]
    zero: Expr

    def phases(self, chosen: tuple[_Group, ...]) -> Expr:
        """(N, channels, strides…, positions…) with all phases of the axes after the ``chosen``."""
        if len(chosen) == len(self.axes):
            return self._convolved(chosen)
        axis, position = self.axes[len(chosen)], 2 + len(chosen)
        parts = [self.phases((*chosen, g)) for g in axis.groups]
        joined = parts[0] if len(parts) == 1 else concatenate(Tuple(tuple(parts)), axis=position)
        order = [p for g in axis.groups for p in g.phases]
        if len(order) < axis.stride:  # a phase without taps is zero
            width = [(0, 0)] * (2 + 2 * len(self.axes))
            width[position] = (0, axis.stride - len(order))
            joined = pad(joined, self.zero, pad_width=tuple(width))
            order += [p for p in range(axis.stride) if p not in order]
        if order == sorted(order):
            return joined
        return take(joined, const(np.argsort(order)), axis=position)

    def _convolved(self, chosen: tuple[_Group, ...]) -> Expr:
        """The phases of one group for each axis, as axes after the channels."""
        (groups, inputs, outputs), rank = self.shape, len(self.axes)
        kernel = self.weights
        for axis, group in enumerate(chosen):
            kernel = take(kernel, const(np.array(group.taps)), axis=3 + 2 * axis)
        counts = [len(g.phases) for g in chosen]
        order = (0, 2, *(3 + 2 * i for i in range(rank)), 1, *(4 + 2 * i for i in range(rank)))
        channels, taps = groups * outputs * math.prod(counts), tuple(g.count for g in chosen)
        kernel = reshape(transpose(kernel, axes=order), newshape=(channels, inputs, *taps),
                         allowzero=True)
        attrs: Any = self.call.attrs
        sides = [a.padding(g) for a, g in zip(self.axes, chosen, strict=True)]
        result = _CONVOLUTIONS[rank](
            self.images, kernel, groups=groups, channels=channels, kernel_size=taps,
            dilation=tuple(g.step for g in chosen),
            padding=(*(before for before, _ in sides), *(after for _, after in sides)),
            # An element of the result that a tap does not reach has no such term, infinite or not.
            out_dtype=attrs.out_dtype, finite_kernel=True, span=self.call.span,
        )
        # 0 copies the batch size, which may be symbolic.
        return reshape(result, newshape=(0, groups * outputs, *counts,
                                         *(a.positions for a in self.axes)))

    def interleaved(self, x: Expr) -> Expr:
        """(N, channels, strides…, positions…) as (N, channels, positions * strides…)."""
        rank = len(self.axes)
        pairs = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
        return reshape(transpose(x, axes=(0, 1, *pairs)),
                       newshape=(0, 0, *(a.positions * a.stride for a in self.axes)))
