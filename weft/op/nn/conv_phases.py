"""The gradient of a convolution's data by phases: one dense convolution per residue of the stride.

With stride ``s``, the elements of the data at ``u * s + phase`` meet only some taps of the kernel,
and those in every window: a convolution of ``dy`` with these taps, without the zeros between its
elements ("sub-pixel convolution", Shi et al. 2016). With stride 1 there is one phase.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import op
from weft.ir import Expr, Op, Tuple, infer_expr
from weft.op.gradients import tensor_type
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Phase:
    """One residue along one axis: ``count`` elements, from ``taps`` that are ``step`` apart.

    Element ``u`` is the sum over ``j`` of the ``j``-th tap from the end times
    ``dy[u + first + j * step]``.
    """

    count: int
    taps: range
    first: int
    step: int


def phases_along(
    size: int, taps: int, stride: int, dilation: int, before: int
) -> list[Phase]:
    """The phases of an axis of ``size`` elements with ``before`` zeros in front.

    Element ``phase + stride * u`` of the data is read by output ``u + offset`` through tap ``t``
    if ``phase + before - t * dilation == offset * stride``.
    """
    apart = stride // math.gcd(stride, dilation)
    found = []
    for phase in range(min(stride, size)):
        first = next((t for t in range(min(apart, taps))
                      if (phase + before - t * dilation) % stride == 0), taps)
        chosen = range(first, taps, apart)
        last = chosen[-1] if chosen else 0
        found.append(Phase(-(-(size - phase) // stride), chosen,
                           (phase + before - last * dilation) // stride,
                           apart * dilation // stride))
    return found


def data_gradient_by_phases(
    sizes: Sequence[int], w: Expr, dy: Expr, attrs: Any, befores: Sequence[int],
    convolve: Op, swap: Callable[[Expr], Expr],
) -> Expr:
    """The gradient of data of ``sizes`` (spatial), given that of the result.

    ``swap`` exchanges inputs and outputs of the kernel.
    """
    _, _, *taps = tensor_type(w).concrete_shape
    axes = [phases_along(*which) for which in zip(sizes, taps, attrs.strides, attrs.dilation,
                                                  befores, strict=True)]
    parts = [_one(w, dy, phases, attrs, convolve, swap) for phases in itertools.product(*axes)]
    for axis in reversed(range(len(sizes))):
        parts = [_interleaved(parts[i:i + len(axes[axis])], axis + 2, sizes[axis])
                 for i in range(0, len(parts), len(axes[axis]))]
    return parts[0]


def _one(
    w: Expr, dy: Expr, phases: Sequence[Phase], attrs: Any, convolve: Op,
    swap: Callable[[Expr], Expr],
) -> Expr:
    """The elements of one phase along each axis."""
    inputs = tensor_type(w).concrete_shape[1]
    batch = tensor_type(dy).shape[0]
    steps = [_size(dy, 2 + i) for i in range(len(phases))]
    counts = [p.count for p in phases]
    if not all(p.taps for p in phases):
        shape = (batch, inputs * attrs.groups, *counts)
        zeros = op.zeros(shape=shape, dtype=tensor_type(dy).dtype)
        return infer_expr(zeros, trust=True)
    axes = tuple(range(2, 2 + len(phases)))
    # The operator computes a correlation: the taps are read from the end.
    part = w
    sizes = tensor_type(w).concrete_shape[2:]
    if any(n > 1 for n in sizes):
        part = infer_expr(op.strided_slice(
            w, begin=tuple(p.taps[-1] for p in phases),
            end=tuple(p.taps[0] - 1 - (n if p.taps[0] == 0 else 0)
                      for p, n in zip(phases, sizes, strict=True)),
            strides=tuple(-p.taps.step for p in phases), axes=axes), trust=True)
    before, after, begin, end = [], [], [], []
    for phase, size in zip(phases, steps, strict=True):
        reach = phase.count + phase.first + (len(phase.taps) - 1) * phase.step
        before.append(max(-phase.first, 0))
        after.append(max(reach - size, 0))
        begin.append(max(phase.first, 0))
        end.append(min(reach, size))
    if any(begin) or tuple(end) != tuple(steps):
        dy = infer_expr(op.strided_slice(dy, begin=tuple(begin), end=tuple(end), axes=axes),
                        trust=True)
    result = convolve(dy, swap(part), padding=(*before, *after), groups=attrs.groups,
                      dilation=tuple(max(p.step, 1) for p in phases))
    return infer_expr(result, trust=True)


def _interleaved(parts: Sequence[Expr], axis: int, size: int) -> Expr:
    """The phases of one axis side by side: element ``u`` of part ``i`` at ``u * parts + i``."""
    if len(parts) == 1:
        return parts[0]
    longest = max(_size(p, axis) for p in parts)
    filled = [_filled(p, axis, longest) for p in parts]
    stacked = infer_expr(op.stack(Tuple(tuple(filled)), axis=axis + 1), trust=True)
    shape = list(tensor_type(filled[0]).shape)
    shape[axis] = longest * len(parts)
    merged = op.reshape(stacked, newshape=tuple(shape), allowzero=True)
    if longest * len(parts) != size:
        merged = op.strided_slice(merged, begin=(0,), end=(size,), axes=(axis,))
    return infer_expr(merged, trust=True)


def _filled(x: Expr, axis: int, size: int) -> Expr:
    shape = tensor_type(x).shape
    missing = size - _size(x, axis)
    if not missing:
        return x
    pads = tuple((0, missing if i == axis else 0) for i in range(len(shape)))
    zero = op.zeros(shape=(), dtype=tensor_type(x).dtype)
    return infer_expr(op.nn.pad(x, zero, pad_width=pads), trust=True)


def _size(x: Expr, axis: int) -> int:
    size = tensor_type(x).shape[axis]
    if not isinstance(size, int):
        raise InternalError("phases need fixed sizes", where=x.span, got=str(size))
    return size
