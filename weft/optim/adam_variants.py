"""Variants of Adam: NAdam and RAdam."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.adam import corrections, moments
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import decayed, scalar, shrunk, wide


def _weights_decayed(
    parameter: Tensor, gradient: Tensor, group: ParamGroup
) -> tuple[Tensor, Tensor]:
    """Parameter and gradient after weight decay, decoupled or not."""
    value = parameter.detach()
    if group["decoupled_weight_decay"]:
        return shrunk(value, group), gradient
    return value, decayed(parameter, gradient, group)


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    slots = ("exp_avg", "exp_avg_sq", "mu_product")
    flags = ("foreach", "maximize", "capturable", "differentiable")

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: tuple[Rate, Rate] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay}, flags)

    def initial(self, name: str, parameter: Tensor, group: ParamGroup) -> Tensor:
        if name == "mu_product":
            return Tensor(np.float64(1))
        return super().initial(name, parameter, group)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        value, gradient = _weights_decayed(parameter, gradient, group)
        steps, lr, beta1 = wide(state["step"]), group.tensor("lr"), group.tensor("betas")
        decay = group.tensor("momentum_decay")
        mu, mu_next = (beta1 * (1 - call("power", 0.96, (steps + k) * decay) * 0.5)
                       for k in (0, 1))
        product = state["mu_product"].to("float64") * mu
        state["mu_product"].copy_(product)
        average, square = moments(gradient, state, group)
        _, correction = corrections(state, group, shared)
        root = (square / scalar(correction, square)).sqrt() + scalar(group.tensor("eps"), square)
        by_gradient = scalar(lr * (1 - mu) / (1 - product), value)
        by_average = scalar(lr * mu_next / (1 - product * mu_next), value)
        parameter.copy_(value - gradient * by_gradient / root - average * by_average / root)


class RAdam(Optimizer):
    """Adam whose first steps wait for a reliable variance (Liu et al. 2020)."""

    slots = ("exp_avg", "exp_avg_sq")
    flags = ("foreach", "maximize", "capturable", "differentiable")

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: tuple[Rate, Rate] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False,
        **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay}, flags)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        value, gradient = _weights_decayed(parameter, gradient, group)
        average, square = moments(gradient, state, group)
        first, second = corrections(state, group, shared)
        steps, beta2 = wide(state["step"]), group.tensor("betas", 1)
        limit = 2 / (1 - beta2) - 1
        length = limit - steps * 2 * (1 - second) / second
        is_reliable = length > 5.0
        safe = call("where", is_reliable, length, 6.0)  # below 4 the root would be imaginary
        share = (safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe)
        eps = scalar(group.tensor("eps"), square)
        adaptive = scalar(share.sqrt() * second.sqrt(), value) / (square.sqrt() + eps)
        factor = call("where", is_reliable, adaptive, call("ones_like", square))
        parameter.copy_(value - average * scalar(group.tensor("lr") / first, value) * factor)
