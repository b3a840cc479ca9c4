"""Adam and AdamW, with torch's options."""

from __future__ import annotations

from typing import Any, Unpack

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import decayed, scalar, shrunk, wide


def corrections(
    state: State, group: ParamGroup, shared: dict[Any, Any]
) -> tuple[Tensor, Tensor]:
    """``1 - beta**step`` for both betas in float64, once for parameters that step together."""
    count = state["step"]
    if id(count) not in shared:
        steps = wide(count)
        shared[id(count)] = tuple(1 - group.tensor("betas", i).pow(steps) for i in (0, 1))
    return shared[id(count)]


def moments(gradient: Tensor, state: State, group: ParamGroup) -> tuple[Tensor, Tensor]:
    """The new running averages of gradient and square, which ``state`` holds then."""
    # 1 - beta in float64: in float32 it would lose five digits of a beta near 1.
    share1, share2 = (scalar(1 - group.tensor("betas", i), gradient) for i in (0, 1))
    kept2 = scalar(group.tensor("betas", 1), gradient)
    average = state["exp_avg"] + (gradient - state["exp_avg"]) * share1
    square = state["exp_avg_sq"] * kept2 + gradient * gradient * share2
    state["exp_avg"].copy_(average)
    state["exp_avg_sq"].copy_(square)
    return average, square


class Adam(Optimizer):
    """Adaptive moments (Kingma and Ba 2014); ``amsgrad`` (Reddi et al. 2018).

    ``weight_decay`` is a penalty of the loss (L2), unless ``decoupled_weight_decay``.
    """

    flags = ("foreach", "maximize", "capturable", "differentiable", "fused")

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: tuple[Rate, Rate] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
        decoupled_weight_decay: bool = False, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "decoupled_weight_decay": decoupled_weight_decay}, flags)

    def slot_names(self, group: ParamGroup, parameter: Tensor) -> tuple[str, ...]:
        names = ("exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        value = parameter.detach()
        if not group["decoupled_weight_decay"]:
            gradient = decayed(parameter, gradient, group)
        else:
            value = shrunk(value, group)
        first, second = corrections(state, group, shared)
        average, square = moments(gradient, state, group)
        if group["amsgrad"]:
            square = call("maximum", state["max_exp_avg_sq"], square)
            state["max_exp_avg_sq"].copy_(square)
        size = scalar(group.tensor("lr") / first, value)
        scale = scalar(second.rsqrt(), value)
        eps = scalar(group.tensor("eps"), value)
        parameter.copy_(value - average * size / (square.sqrt() * scale + eps))


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters directly (Loshchilov and Hutter 2019)."""

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: tuple[Rate, Rate] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False,
        **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad,
                         decoupled_weight_decay=True, **flags)
