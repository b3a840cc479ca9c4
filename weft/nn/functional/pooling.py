"""Pooling with torch's signatures: maximum, mean, p-norm, adaptive windows."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.nn.functional.sizes import of_axes, per_axis, with_batch, with_indices, without_batch
from weft.topi.nn.window import whole_window_padding


def _window(
    axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, Any]:
    """The attributes common to all pools."""
    sizes, pads = per_axis(kernel, axes, "kernel_size"), per_axis(padding, axes, "padding")
    steps = sizes if stride in (None, ()) else per_axis(stride, axes, "stride")
    return {"pool_size": sizes, "strides": steps, "padding": (*pads, *pads),
            "dilation": per_axis(dilation, axes, "dilation"), "ceil_mode": bool(ceil_mode)}


def _max_pool(
    axes: int, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The maximum of each window; with ``return_indices`` also its index in the plane."""
    x, has_batch = with_batch(input, axes + 2, f"max_pool{axes}d")
    window = _window(axes, kernel_size, stride, padding, dilation, ceil_mode)
    largest = without_batch(call(f"nn.max_pool{axes}d", x, **window), has_batch)
    if not return_indices:
        return largest
    found = call(f"nn.max_pool{axes}d_indices", x.detach(), **window)
    return largest, without_batch(found, has_batch)


def _avg_pool(
    axes: int, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, or its sum divided by ``divisor_override``."""
    if input.dtype.rank < 2:
        return _whole_means(axes, input, (kernel_size, stride), padding, ceil_mode,
                            count_include_pad, divisor_override)
    x, has_batch = with_batch(input, axes + 2, f"avg_pool{axes}d")
    window = _window(axes, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is None:
        result = call(f"nn.avg_pool{axes}d", x, count_include_pad=bool(count_include_pad),
                       **window)
        return without_batch(result, has_batch)
    padded = call("nn.pad", x, 0.0, pad_width=whole_window_padding(tuple(x.shape), window))
    whole = {**window, "padding": (0,) * (2 * axes), "ceil_mode": False}
    result = call(f"nn.avg_pool{axes}d", padded, **whole)
    return without_batch(result * (math.prod(window["pool_size"]) / divisor_override), has_batch)


def _whole_means(
    axes: int, input: Tensor, window: tuple[Any, Any], padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor: int | None,
) -> Tensor:
    """The mean of each window of integers, truncated."""
    total = _avg_pool(axes, input.to("float64"), *window, padding, ceil_mode, True, 1)
    counts: Any = divisor
    if divisor is None:
        pads = per_axis(padding, axes, "padding")
        extra = [2 * p if count_include_pad else 0 for p in pads]
        sizes = [s + e for s, e in zip(input.shape[-axes:], extra, strict=True)]
        ones = call("ones", shape=(1, 1, *sizes), dtype="float64")
        counts = _avg_pool(axes, ones, *window, 0 if count_include_pad else padding, ceil_mode,
                           True, 1)
        counts = call("round", counts[0, 0])[tuple(slice(n) for n in total.shape[-axes:])]
    return call("trunc", call("round", total) / counts).to(input.dtype)


def _adaptive_sizes(axes: int, x: Tensor, output_size: Any) -> tuple[int, ...]:
    """``output_size`` for each axis; ``None`` keeps the size of ``x``."""
    given = (output_size,) * axes if output_size is None else output_size
    sizes = (given,) * axes if isinstance(given, int) else tuple(given)
    return tuple(own if size is None else size
                 for size, own in zip(sizes, x.shape[-axes:], strict=True))


def _adaptive_avg_pool(axes: int, input: Tensor, output_size: Any) -> Tensor:
    """The mean over windows that divide each axis as evenly as possible."""
    x, has_batch = with_batch(input, axes + 2, f"adaptive_avg_pool{axes}d")
    sizes = _adaptive_sizes(axes, x, output_size)
    if all(size == 1 for size in sizes):
        result = call("mean", x, axis=tuple(range(2, axes + 2)), keepdims=True)
    else:
        result = call(f"nn.adaptive_avg_pool{axes}d", x, output_size=sizes)
    return without_batch(result, has_batch)


def _adaptive_max_pool(
    axes: int, input: Tensor, output_size: Any, return_indices: bool = False
) -> Any:
    """The maximum over windows that divide each axis as evenly as possible."""
    x, has_batch = with_batch(input, axes + 2, f"adaptive_max_pool{axes}d")
    sizes = _adaptive_sizes(axes, x, output_size)
    largest = call(f"nn.adaptive_max_pool{axes}d", x, output_size=sizes)
    largest = without_batch(largest, has_batch)
    if not return_indices:
        return largest
    found = call(f"nn.adaptive_max_pool{axes}d_indices", x.detach(), output_size=sizes)
    return largest, without_batch(found, has_batch)


def _lp_pool(
    axes: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window: ``(sum of x**p) ** (1 / p)``, without an absolute value.

    An infinite ``norm_type`` gives the largest or the smallest magnitude.
    """
    if math.isinf(norm_type):
        sign = math.copysign(1, norm_type)
        magnitude = call("abs", input) * sign
        return _max_pool(axes, magnitude, kernel_size, stride, ceil_mode=ceil_mode) * sign
    total = _avg_pool(axes, input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    count = math.prod(per_axis(kernel_size, axes, "kernel_size"))
    positive = call("sign", total) * call("nn.relu", call("abs", total))
    return (positive * count).pow(1.0 / norm_type)


max_pool1d, max_pool2d, max_pool3d = (
    of_axes(_max_pool, n, f"max_pool{n}d") for n in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (
    of_axes(_avg_pool, n, f"avg_pool{n}d") for n in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    of_axes(_adaptive_avg_pool, n, f"adaptive_avg_pool{n}d") for n in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    of_axes(_adaptive_max_pool, n, f"adaptive_max_pool{n}d") for n in (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = (
    of_axes(_lp_pool, n, f"lp_pool{n}d") for n in (1, 2, 3))
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(
    with_indices, (max_pool1d, max_pool2d, max_pool3d))
(adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices,
 adaptive_max_pool3d_with_indices) = map(
    with_indices, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d))
