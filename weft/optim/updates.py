"""What the updates of several optimisers share: weight decay, and scalars in float64."""

from __future__ import annotations

from weft.eager.tensor import Tensor
from weft.optim.param_group import ParamGroup


def decayed(parameter: Tensor, gradient: Tensor, group: ParamGroup) -> Tensor:
    """The gradient of the loss with ``weight_decay / 2`` times the square of the parameter."""
    if group.is_zero("weight_decay"):
        return gradient
    return gradient + parameter.detach() * scalar(group.tensor("weight_decay"), parameter)


def shrunk(value: Tensor, group: ParamGroup) -> Tensor:
    """``value`` after decoupled weight decay (Loshchilov and Hutter 2019)."""
    if group.is_zero("weight_decay"):
        return value
    return value * scalar(1 - group.tensor("lr") * group.tensor("weight_decay"), value)


def scalar(value: Tensor, like: Tensor) -> Tensor:
    """A float64 scalar in the dtype of ``like``, as which kernels take it."""
    return value.to(like.dtype)


def shares(group: ParamGroup, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """The share of the past in a running average and that of the present, 1 less it, in float64:
    in float32 the second would lose digits.
    """
    kept = group.tensor(name)
    return scalar(kept, like), scalar(1 - kept, like)


def wide(count: Tensor) -> Tensor:
    """A count of steps in float64: ``1 - beta**step`` would lose half its digits in float32."""
    return count.to("float64")
