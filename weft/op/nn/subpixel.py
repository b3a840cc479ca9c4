"""Transposed convolution as a plain one, whose channels hold the phases of the result.

With stride s, output position y = s * q + r depends on data around q alone, through the taps whose
number is r modulo s (Shi et al., "Is the deconvolution layer the same as a convolutional layer?",
2016). One convolution with s times the channels for each axis computes all phases; a transpose
interleaves them. Nothing is multiplied by the zeros between the data's elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.ir.expr import Call, Expr, const
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.op.gradients import tensor_type
from weft.op.nn.conv1d import conv1d
from weft.op.nn.conv2d import conv2d
from weft.op.nn.conv3d import conv3d
from weft.op.nn.pad import pad
from weft.op.transform.join import strided_slice
from weft.op.transform.shape import reshape, transpose
from weft.topi.layout import Layout
from weft.topi.nn.conv import side_padding

_CONVOLUTIONS: dict[int, Op] = {1: conv1d, 2: conv2d, 3: conv3d}


@dataclass(frozen=True, slots=True)
class _Phases:
    """One axis: ``stride`` phases, each a convolution with ``taps`` taps ``step`` apart.

    ``before`` and ``after`` pad the data; of the interleaved result, ``size`` elements from
    ``start`` on are wanted.
    """

    stride: int
    spread: int  # zeros between the taps of the kernel, plus one: dilation that strides absorb
    taps: int
    step: int
    before: int
    after: int
    start: int
    size: int

    @staticmethod
    def of(n: int, taps: int, stride: int, step: int, cut: int, size: int) -> _Phases:
        """For ``n`` elements, a kernel of ``taps``, and ``cut`` elements taken away in front."""
        if stride == 1:
            spread, count = 1, taps
        else:
            spread, count, step = step, -(-((taps - 1) * step + 1) // stride), 1
        reach = (count - 1) * step
        first = min(cut // stride, reach)
        start = cut - first * stride
        places = -(-(start + size) // stride)
        return _Phases(stride, spread, count, step, reach - first, max(0, places - (n - first)),
                       start, size)


def transposed_as_convolution(call: Call) -> Expr | None:
    """The call by sub-pixels; ``None`` for layouts in blocks and spatial sizes that are open."""
    attrs: Any = call.attrs
    data, kernel = call.args
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.result_layout)
    if not all(Layout.parse(layout).is_primal for layout in layouts):
        return None
    spatial = attrs.spatial
    x, w = tensor_type(data), tensor_type(kernel)
    sizes = _fixed(x, attrs.data_layout, "C" + spatial)
    taps = _fixed(w, attrs.kernel_layout, "IO" + spatial)
    if sizes is None or taps is None:
        return None
    phases = [_phases(attrs, i, sizes[1 + i], taps[2 + i]) for i in range(len(spatial))]
    images = _in_order(data, attrs.data_layout, "NC" + spatial)
    weights = _phase_kernel(_in_order(kernel, attrs.kernel_layout, "IO" + spatial), taps, phases,
                            attrs.groups, const(0, w.dtype))
    count = taps[1] * attrs.groups
    channels = count * math.prod(p.stride for p in phases)
    result = _CONVOLUTIONS[len(spatial)](
        images, weights, groups=attrs.groups, channels=channels,
        kernel_size=tuple(p.taps for p in phases), dilation=tuple(p.step for p in phases),
        padding=(*(p.before for p in phases), *(p.after for p in phases)),
        out_dtype=attrs.out_dtype, span=call.span,
    )
    places = [n + p.before + p.after - (p.taps - 1) * p.step
              for n, p in zip(sizes[1:], phases, strict=True)]
    whole = _interleaved(result, count, places, phases)
    axes = tuple(range(2, 2 + len(spatial)))
    cut = strided_slice(whole, begin=tuple(p.start for p in phases),
                        end=tuple(p.start + p.size for p in phases), axes=axes)
    return _in_order(cut, "NC" + spatial, attrs.result_layout)


def _phases(attrs: Any, axis: int, size: int, taps: int) -> _Phases:
    before, after = side_padding(attrs.padding, len(attrs.spatial))[axis]
    stride, step = attrs.strides[axis], attrs.dilation[axis]
    out = ((size - 1) * stride + (taps - 1) * step + 1 - before - after
           + attrs.output_padding[axis])
    return _Phases.of(size, taps, stride, step, before, out)


def _fixed(type_: TensorType, layout: str, letters: str) -> tuple[int, ...] | None:
    """The sizes along ``letters``, ``None`` where one of them is open."""
    found = [type_.shape[layout.index(letter)] for letter in letters]
    fixed = tuple(size for size in found if isinstance(size, int))
    return fixed if len(fixed) == len(found) else None


def _in_order(x: Expr, source: str, wanted: str) -> Expr:
    if source == wanted:
        return x
    return transpose(x, axes=tuple(source.index(a) for a in wanted))


def _phase_kernel(
    kernel: Expr, taps: tuple[int, ...], phases: list[_Phases], groups: int, zero: Expr
) -> Expr:
    """The kernel (I, O, taps…) as (groups * O * strides…, I / groups, taps of a phase…)."""
    inputs, outputs, *sizes = taps
    kernel = _spread_taps(kernel, [inputs, outputs], sizes, phases, zero)
    rank = len(phases)
    split = [n for p in phases for n in (p.taps, p.stride)]
    kernel = reshape(kernel, newshape=(groups, inputs // groups, outputs, *split), allowzero=True)
    positions = tuple(3 + 2 * i for i in range(rank))
    order = (0, 2, *(p + 1 for p in positions), 1, *positions)
    channels = groups * outputs * math.prod(p.stride for p in phases)
    counts = tuple(p.taps for p in phases)
    kernel = reshape(transpose(kernel, axes=order),
                     newshape=(channels, inputs // groups, *counts), allowzero=True)
    return strided_slice(kernel, begin=tuple(n - 1 for n in counts),
                         end=tuple(-n - 1 for n in counts), strides=(-1,) * rank,
                         axes=tuple(range(2, 2 + rank)))


def _spread_taps(
    kernel: Expr, lead: list[int], sizes: list[int], phases: list[_Phases], zero: Expr
) -> Expr:
    """The taps ``spread`` apart, then zeros behind, so that every phase has as many."""
    if any(p.spread > 1 for p in phases):
        wide = reshape(kernel, newshape=(*lead, *(n for size in sizes for n in (size, 1))),
                       allowzero=True)
        gaps = [w for p in phases for w in ((0, 0), (0, p.spread - 1))]
        sizes = [size * p.spread for size, p in zip(sizes, phases, strict=True)]
        kernel = reshape(pad(wide, zero, pad_width=((0, 0), (0, 0), *gaps)),
                         newshape=(*lead, *sizes), allowzero=True)
        # The gap behind the last tap is no part of the kernel.
        sizes = [size - p.spread + 1 for size, p in zip(sizes, phases, strict=True)]
        kernel = strided_slice(kernel, begin=(0,) * len(sizes), end=tuple(sizes),
                               axes=tuple(range(2, 2 + len(sizes))))
    missing = [(0, p.taps * p.stride - size) for size, p in zip(sizes, phases, strict=True)]
    if not any(after for _, after in missing):
        return kernel
    return pad(kernel, zero, pad_width=((0, 0), (0, 0), *missing))


def _interleaved(x: Expr, channels: int, places: list[int], phases: list[_Phases]) -> Expr:
    """(N, channels * strides…, places…) as (N, channels, places * strides…)."""
    strides = [p.stride for p in phases]
    if all(s == 1 for s in strides):
        return x
    rank = len(places)
    x = reshape(x, newshape=(0, channels, *strides, *places))
    pairs = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
    x = transpose(x, axes=(0, 1, *pairs))
    return reshape(x, newshape=(0, channels, *(n * s for n, s in zip(places, strides,
                                                                       strict=True))))

