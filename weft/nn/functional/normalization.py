"""Normalization by batch, layer, group, instance, root mean square or neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.amp.autocast import upcast
from weft.eager.complex_numbers import refusal
from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


@checked
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float | Tensor = 0.1, eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (axis 1) of ``input`` (N, C, …) (Ioffe and Szegedy 2015).

    In training, by the statistics of the batch; ``running_mean`` and ``running_var`` then move
    towards them by ``momentum`` (the variance with Bessel's correction). A tensor as momentum is
    that of a cumulative average.
    """
    input, weight, bias = upcast(input, weight, bias)
    if input.ndim < 2 and input.numel():
        raise InvalidInputError("batch_norm: the input has no channels (axis 1)",
                                got=f"shape {tuple(input.shape)}")
    if input.ndim < 2:
        return input.clone()
    channels = input.shape[1]
    ones, zeros = _vector(input, channels, 1.0), _vector(input, channels, 0.0)
    mean = zeros if running_mean is None else running_mean
    var = ones if running_var is None else running_var
    affine = (ones if weight is None else weight, zeros if bias is None else bias)
    flags = {"epsilon": float(eps), "center": bias is not None, "scale": weight is not None}
    if not training or not input.numel():  # an empty batch moves no averages
        if not training and (running_mean is None or running_var is None):
            raise InvalidInputError("batch_norm without running statistics",
                                    help="pass training=True or running_mean and running_var")
        return call("nn.batch_norm", input, *affine, mean, var, **flags)[0]
    _check_count(input)
    share = momentum if isinstance(momentum, float | int) else 1.0
    results = call("nn.batch_norm_training", input, *affine, mean, var, momentum=float(share),
                    **flags)
    new_mean, new_var = results[3], results[4]
    if running_mean is not None and running_var is not None:
        if isinstance(momentum, Tensor):
            new_mean = running_mean + (new_mean - running_mean) * momentum
            new_var = running_var + (new_var - running_var) * momentum
        running_mean.copy_(new_mean.detach())
        running_var.copy_(new_var.detach())
    return results[0]


def _check_count(input: Tensor) -> None:
    if input.numel() == input.shape[1]:
        raise InvalidInputError("batch_norm in training needs more than one value per channel",
                                got=f"shape {tuple(input.shape)}")


def _vector(like: Tensor, size: int, value: float) -> Tensor:
    return call("full", value, shape=(size,), dtype=like.dtype.name)


@checked
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last axes, of sizes ``normalized_shape`` (Ba et al. 2016)."""
    input, weight, bias = upcast(input, weight, bias)
    rows, size = _rows(input, normalized_shape, "layer_norm")
    gamma = _vector(input, size, 1.0) if weight is None else weight.reshape((size,))
    beta = _vector(input, size, 0.0) if bias is None else bias.reshape((size,))
    result = call("nn.layer_norm", rows, gamma, beta, axis=-1, epsilon=float(eps),
                   scale=weight is not None, center=bias is not None)
    return result.reshape(tuple(input.shape))


@checked
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """X / sqrt(mean(x²) + eps) over the last axes (Zhang and Sennrich 2019).

    ``eps`` is the distance of 1 to the next number of the dtype if it is left out, as in torch.
    """
    input, weight = upcast(input, weight)
    rows, size = _rows(input, normalized_shape, "rms_norm")
    if input.dtype.is_complex:
        raise refusal("rms_norm")
    small = 2.0 ** -{"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}[input.dtype.name]
    gamma = _vector(input, size, 1.0) if weight is None else weight.reshape((size,))
    result = call("nn.rms_norm", rows, gamma, axis=-1,
                   epsilon=small if eps is None else float(eps))
    return result.reshape(tuple(input.shape))


def _rows(input: Tensor, normalized_shape: Sequence[int], name: str) -> tuple[Tensor, int]:
    """``input`` with the normalised axes as one, and the size of that."""
    sizes = tuple(normalized_shape)
    shape = tuple(input.shape)
    if not sizes or shape[-len(sizes):] != sizes:
        raise InvalidInputError(f"{name}: the input does not end in normalized_shape",
                                expected=f"a shape that ends in {sizes}", got=str(shape))
    size = math.prod(sizes)
    if len(sizes) == 1:
        return input, size
    return input.reshape((*shape[: len(shape) - len(sizes)], size)), size


@checked
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each example (Wu and He 2018)."""
    input, weight, bias = upcast(input, weight, bias)
    channels = input.shape[1]
    if channels % num_groups:
        raise InvalidInputError("group_norm: the channels do not divide into groups",
                                expected=f"a multiple of {num_groups}", got=channels)
    gamma = _vector(input, channels, 1.0) if weight is None else weight
    beta = _vector(input, channels, 0.0) if bias is None else bias
    return call("nn.group_norm", input, gamma, beta, axis=1, num_groups=num_groups,
                 epsilon=float(eps), scale=weight is not None, center=bias is not None)


@checked
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each example of ``input`` (N, C, …) (Ulyanov et al. 2016)."""
    input, weight, bias = upcast(input, weight, bias)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if running_mean is not None and running_var is not None:
        _move_statistics(input, running_mean, running_var, momentum)
    channels = input.shape[1]
    gamma = _vector(input, channels, 1.0) if weight is None else weight
    beta = _vector(input, channels, 0.0) if bias is None else bias
    return call("nn.instance_norm", input, gamma, beta, axis=1, epsilon=float(eps),
                 scale=weight is not None, center=bias is not None)


def _move_statistics(
    input: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float
) -> None:
    """The running averages, moved towards the statistics of the instances, over the batch."""
    x = input.detach()
    axes = tuple(range(2, x.ndim))
    count = math.prod(x.shape[2:])
    mean = call("mean", x, axis=axes, keepdims=True)
    deviation = x - mean
    var = call("sum", deviation * deviation, axis=axes) * (1 / max(count - 1, 1))
    mean = call("mean", mean, axis=(0, *axes))
    running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
    running_var.copy_(running_var * (1 - momentum) + call("mean", var, axis=0) * momentum)


@checked
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square of ``size`` neighbouring channels (Krizhevsky 2012)."""
    channels = input.shape[1]
    square = call("nn.pad", input * input, 0.0, pad_width=tuple(
        (size // 2, (size - 1) // 2) if axis == 1 else (0, 0) for axis in range(input.ndim)))
    total = call("strided_slice", square, begin=(0,), end=(channels,), axes=(1,))
    for start in range(1, size):
        total = total + call("strided_slice", square, begin=(start,), end=(start + channels,),
                              axes=(1,))
    share = total * (alpha / size) if input.dtype.is_floating_point else (total // size) * alpha
    return input / (share + k).pow(beta)
