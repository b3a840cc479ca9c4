"""Convolutions, transposed convolutions, linear layers: torch's signatures and layouts."""

from __future__ import annotations

from typing import Any

from weft.amp.autocast import narrowed
from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.sizes import along, per_axis, with_batch, without_batch
from weft.support.errors import InvalidInputError


@checked
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b for ``input`` (…, in), ``weight`` (out, in) or (in), ``bias`` (out)."""
    input, weight, bias = narrowed(input, weight, bias)
    if weight.ndim == 1:
        result = (input * weight).sum(-1)
    elif input.ndim == 1:
        result = call("squeeze", call("nn.dense", input.reshape((1, -1)), weight), axis=0)
    else:
        result = call("nn.dense", input, weight)
    return result if bias is None else result + bias


@checked
def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x₁ᵀ W x₂ + b for (…, in1), (…, in2), ``weight`` (out, in1, in2)."""
    input1, input2, weight, bias = narrowed(input1, input2, weight, bias)
    leading = tuple(input1.shape[:-1])
    first, second = (t.reshape((-1, t.shape[-1])) for t in (input1, input2))
    result = call("einsum", first, weight, second, equation="bi,oij,bj->bo")
    result = result.reshape((*leading, weight.shape[0]))
    return result if bias is None else result + bias


@checked
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:
    """``input`` (N, C, L) or (C, L), ``weight`` (out, C / groups, k)."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@checked
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:
    """``input`` (N, C, H, W) or (C, H, W), ``weight`` (out, C / groups, kH, kW)."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@checked
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:
    """``input`` (N, C, D, H, W) or (C, D, H, W), ``weight`` (out, C / groups, kD, kH, kW)."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@checked
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """``conv1d`` of ``input`` (L, N, C) and ``weight`` (k, C, out): (L, N, out)."""
    found = conv1d(call("transpose", input, axes=(1, 2, 0)),
                   call("transpose", weight, axes=(2, 1, 0)), bias, padding=pad)
    return call("transpose", found, axes=(2, 0, 1))


@checked
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:
    """The gradient of ``conv1d``; ``weight`` (C, out / groups, k)."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@checked
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:
    """The gradient of ``conv2d``; ``weight`` (C, out / groups, kH, kW)."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@checked
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:
    """The gradient of ``conv3d``; ``weight`` (C, out / groups, kD, kH, kW)."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _conv(
    axes: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> Tensor:
    input, weight, bias = narrowed(input, weight, bias)
    x, has_batch = with_batch(input, axes + 2, f"conv{axes}d")
    steps, spread = per_axis(stride, axes, "stride"), per_axis(dilation, axes, "dilation")
    pads = _pads(padding, tuple(weight.shape[2:]), steps, spread)
    result = call(f"nn.conv{axes}d", x, weight, strides=steps, padding=pads, dilation=spread,
                   groups=groups)
    return without_batch(_biased(result, bias), has_batch)


def _pads(
    padding: Any, kernel: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    """The padding before each axis, then that after each."""
    if padding == "valid":
        return (0,) * (2 * len(kernel))
    if padding != "same":
        sizes = per_axis(padding, len(kernel), "padding")
        return (*sizes, *sizes)
    if any(s != 1 for s in strides):
        raise InvalidInputError("padding='same' needs a stride of 1", got=str(strides))
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))


def _transposed(
    axes: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> Tensor:
    input, weight, bias = narrowed(input, weight, bias)
    x, has_batch = with_batch(input, axes + 2, f"conv_transpose{axes}d")
    pads = per_axis(padding, axes, "padding")
    result = call(
        f"nn.conv{axes}d_transpose", x, weight, strides=per_axis(stride, axes, "stride"),
        padding=(*pads, *pads), dilation=per_axis(dilation, axes, "dilation"), groups=groups,
        output_padding=per_axis(output_padding, axes, "output_padding"))
    return without_batch(_biased(result, bias), has_batch)


def _biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + along(bias, 1, x.ndim)
