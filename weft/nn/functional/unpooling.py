"""Unpooling by indices, and pooling over windows of random places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.eager.cell import node_of
from weft.eager.checks import require_classes
from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.nn.functional import randomness as random
from weft.nn.functional.sizes import of_axes, per_axis, with_batch, with_indices, without_batch
from weft.support.errors import InvalidInputError


def _max_unpool(
    axes: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None,
    padding: Any = 0, output_size: Any = None,
) -> Tensor:
    """The elements at their places ``indices`` in planes of zeros, the inverse of a max pool."""
    x, has_batch = with_batch(input, axes + 2, f"max_unpool{axes}d")
    at, _ = with_batch(indices, axes + 2, f"max_unpool{axes}d")
    if tuple(x.shape) != tuple(at.shape):
        raise InvalidInputError(f"max_unpool{axes}d: the indices have another shape",
                                expected=tuple(input.shape), got=tuple(indices.shape))
    kernel = per_axis(kernel_size, axes, "kernel_size")
    steps = kernel if stride in (None, ()) else per_axis(stride, axes, "stride")
    pads = per_axis(padding, axes, "padding")
    usual = tuple((n - 1) * s + k - 2 * p
                  for n, s, k, p in zip(x.shape[2:], steps, kernel, pads, strict=True))
    sizes = _chosen(usual, steps, output_size)
    plane = math.prod(sizes)
    flat = (*x.shape[:2], math.prod(x.shape[2:]))
    zeros = call("zeros", shape=(*flat[:2], plane), dtype=x.dtype.name)
    at, line = at.reshape(flat), x.reshape(flat)
    found = call("scatter_elements", zeros, at, line.detach(), axis=2)
    if x.requires_grad:  # in torch, elements with equal indices all get the gradient
        found = found + call("scatter_elements", zeros, at, line - line.detach(), axis=2,
                             reduction="add")
    require_classes(node_of(found), node_of(at), plane, what="an index")
    return without_batch(found.reshape((*flat[:2], *sizes)), has_batch)


def _chosen(usual: tuple[int, ...], steps: tuple[int, ...], output_size: Any) -> tuple[int, ...]:
    """``output_size`` where it is within a stride of the usual size."""
    if output_size is None:
        return usual
    sizes = tuple(output_size)[-len(usual):]
    if len(sizes) != len(usual) or any(abs(size - own) >= step for size, own, step in
                                       zip(sizes, usual, steps, strict=True)):
        raise InvalidInputError("max_unpool: output_size does not fit", got=tuple(output_size),
                                expected=f"sizes less than {steps} away from {usual}")
    return sizes


def _fractional_max_pool(
    axes: int, input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:
    """The maximum over windows whose starts are random (Graham 2014).

    The windows fill ``output_size``, or ``output_ratio`` of the size of the input. With
    ``return_indices`` also the index of each maximum in its plane.
    """
    x, has_batch = with_batch(input, axes + 2, f"fractional_max_pool{axes}d")
    kernel = per_axis(kernel_size, axes, "kernel_size")
    sizes = _output_sizes(axes, tuple(x.shape[2:]), output_size, output_ratio)
    if any(k + out - 1 > size for k, out, size in zip(kernel, sizes, x.shape[2:], strict=True)):
        raise InvalidInputError(f"fractional_max_pool{axes}d: the windows do not fit",
                                expected=f"kernel_size + output_size - 1 at most {x.shape[2:]}",
                                got=f"{kernel} and {sizes}")
    batch, channels = x.shape[:2]
    drawn = _random_samples if _random_samples is not None else random.uniform(
        (batch, channels, axes), 0.0, 1.0, x.dtype)
    at = _window_places(drawn, tuple(x.shape[2:]), kernel, sizes)
    taps, count = math.prod(kernel), math.prod(sizes)
    flat = x.reshape((batch, channels, math.prod(x.shape[2:])))
    values = call("gather", flat.detach(), at, axis=2).reshape((batch, channels, count, taps))
    best = call("argmax", values, axis=3, keepdims=True)
    at = call("gather", at.reshape((batch, channels, count, taps)), best, axis=3)
    at = at.reshape((batch, channels, count))
    shape = (batch, channels, *sizes)
    found = without_batch(call("gather", flat, at, axis=2).reshape(shape), has_batch)
    return (found, without_batch(at.reshape(shape), has_batch)) if return_indices else found


def _output_sizes(
    axes: int, shape: tuple[int, ...], output_size: Any, output_ratio: Any
) -> tuple[int, ...]:
    if (output_size is None) == (output_ratio is None):
        raise InvalidInputError("fractional_max_pool takes either output_size or output_ratio")
    if output_size is not None:
        return per_axis(output_size, axes, "output_size")
    ratios = (output_ratio,) * axes if isinstance(output_ratio, float) else tuple(output_ratio)
    return tuple(int(size * ratio) for size, ratio in zip(shape, ratios, strict=True))


def _window_places(
    drawn: Tensor, shape: tuple[int, ...], kernel: tuple[int, ...], sizes: tuple[int, ...]
) -> Tensor:
    """(N, C, windows · taps): the flat places of the elements of all windows.

    Torch draws the number of the last axis first in two dimensions, of the first in three.
    """
    axes = len(shape)
    batch, channels = drawn.shape[:2]
    flat: Tensor | None = None
    for axis, (size, taps, count) in enumerate(zip(shape, kernel, sizes, strict=True)):
        which = axes - 1 - axis if axes == 2 else axis
        number = call("strided_slice", drawn, begin=(which,), end=(which + 1,), axes=(2,))
        starts = _starts(number, size, taps, count)
        along = call("expand_dims", starts, axis=3) + np.arange(taps)
        out = [1] * (2 * axes)
        out[axis], out[axes + axis] = count, taps
        along = along.reshape((batch, channels, *out))
        flat = along if flat is None else flat * size + along
    assert flat is not None
    return flat.reshape((batch, channels, math.prod(sizes) * math.prod(kernel)))


def _starts(number: Tensor, size: int, taps: int, count: int) -> Tensor:
    """Where windows begin along an axis: floor((i + u) a) - floor(u a), and the last at the end."""
    last = np.arange(count) == count - 1
    if count == 1:
        return call("full", size - taps, shape=tuple(number.shape), dtype="int64")
    step = (size - taps) / (count - 1)
    steps = np.arange(count).astype(number.dtype.numpy)
    raised = call("floor", (number + steps) * step) - call("floor", number * step)
    return call("where", last, size - taps, call("cast", raised, dtype="int64"))


def _named(function: Callable[..., Any], name: str) -> tuple[Callable[..., Any], ...]:
    return tuple(of_axes(function, axes, name.format(axes)) for axes in (1, 2, 3))


max_unpool1d, max_unpool2d, max_unpool3d = _named(_max_unpool, "max_unpool{}d")
_, fractional_max_pool2d, fractional_max_pool3d = _named(
    _fractional_max_pool, "fractional_max_pool{}d")
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = map(
    with_indices, (fractional_max_pool2d, fractional_max_pool3d))
