"""Functions of layers under the names and orders of arguments that torch has outside of its nn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.eager.functions.elementwise import rsqrt
from weft.eager.functions.reduction import var_mean
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional import normalization, padding
from weft.nn.functional.embedding import embedding as rows_of
from weft.nn.functional.resampling import grid_sample

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@checked
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """``nn.functional.pad`` with a number."""
    return padding.pad(input, pad, value=value)


@checked
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
                 align_corners: bool) -> Tensor:
    """``grid_sample`` with modes by number."""
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode],
                       align_corners)


@checked
def embedding(weight: Tensor, indices: Tensor, padding_idx: int | None = -1,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """The rows of ``weight`` at ``indices``; a padding index below 0 is none."""
    unused = None if padding_idx is None or padding_idx < 0 else padding_idx
    return rows_of(indices, weight, unused, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


@checked
def batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None,
               running_mean: Tensor | None, running_var: Tensor | None, training: bool,
               momentum: float, eps: float, cudnn_enabled: bool = True) -> Tensor:  # noqa: ARG001
    """``nn.functional.batch_norm``."""
    return normalization.batch_norm(input, running_mean, running_var, weight, bias, training,
                                    momentum, eps)


@checked
def instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None,
                  running_mean: Tensor | None, running_var: Tensor | None, use_input_stats: bool,
                  momentum: float, eps: float, cudnn_enabled: bool = True) -> Tensor:  # noqa: ARG001
    """``nn.functional.instance_norm``."""
    return normalization.instance_norm(input, running_mean, running_var, weight, bias,
                                       use_input_stats, momentum, eps)


@checked
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5, cudnn_enable: bool = True) -> Tensor:  # noqa: ARG001
    """``nn.functional.layer_norm``."""
    return normalization.layer_norm(input, normalized_shape, weight, bias, eps)


@checked
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5, cudnn_enabled: bool = True) -> Tensor:  # noqa: ARG001
    """``nn.functional.group_norm``."""
    return normalization.group_norm(input, num_groups, weight, bias, eps)


@checked
def native_layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None,
                      bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``layer_norm``, the mean, and the reciprocal standard deviation."""
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    found = normalization.layer_norm(input, normalized_shape, weight, bias, eps)
    return found, *_statistics(input, axes, eps, keepdim=True)


@checked
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None,
                      running_mean: Tensor | None, running_var: Tensor | None, training: bool,
                      momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``batch_norm``, and in training the mean and the reciprocal standard deviation."""
    found = batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training:
        return found, input.new_zeros(0), input.new_zeros(0)
    return found, *_statistics(input, (0, *range(2, input.ndim)), eps)


def _statistics(input: Tensor, axes: tuple[int, ...], eps: float, *, keepdim: bool = False
                ) -> tuple[Any, Any]:
    """The mean and the reciprocal standard deviation of these axes, without gradients."""
    spread, mean = var_mean(input.detach(), axes, correction=0, keepdim=keepdim)
    return mean, rsqrt(spread + eps)
