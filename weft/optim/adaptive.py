"""Optimisers with a learning rate per element: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from typing import Any, Unpack

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import decayed, scalar, shares, wide


class RMSprop(Optimizer):
    """Divides by a running root mean square (Hinton 2012); ``centered`` (Graves 2013)."""

    flags = ("capturable", "foreach", "maximize", "differentiable")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps,
                                  "centered": centered, "weight_decay": weight_decay}, flags)

    def slot_names(self, group: ParamGroup, parameter: Tensor) -> tuple[str, ...]:
        names = ("square_avg",)
        if not group.is_zero("momentum"):
            names += ("momentum_buffer",)
        return (*names, "grad_avg") if group["centered"] else names

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        gradient = decayed(parameter, gradient, group)
        alpha, share = shares(group, "alpha", gradient)
        lr, eps = (scalar(group.tensor(name), parameter) for name in ("lr", "eps"))
        square = state["square_avg"] * alpha + gradient * gradient * share
        state["square_avg"].copy_(square)
        if group["centered"]:
            mean = state["grad_avg"] + (gradient - state["grad_avg"]) * share
            state["grad_avg"].copy_(mean)
            square = square - mean * mean
        step = gradient / (square.sqrt() + eps)
        if not group.is_zero("momentum"):
            buffer = state["momentum_buffer"]
            buffer.copy_(buffer * scalar(group.tensor("momentum"), buffer) + step)
            step = buffer.detach()
        parameter.sub_(step * lr)


class Adagrad(Optimizer):
    """Divides by the root of the sum of squares so far (Duchi et al. 2011)."""

    slots = ("sum",)
    flags = ("foreach", "maximize", "differentiable", "fused")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value}, flags)

    def initial(self, name: str, parameter: Tensor, group: ParamGroup) -> Tensor:
        return call("full_like", parameter, float(group["initial_accumulator_value"]))

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        gradient = decayed(parameter, gradient, group)
        steps = wide(state["step"])
        lr = scalar(group.tensor("lr") / ((steps - 1) * group.tensor("lr_decay") + 1), parameter)
        total = state["sum"] + gradient * gradient
        state["sum"].copy_(total)
        eps = scalar(group.tensor("eps"), parameter)
        parameter.sub_(gradient * lr / (total.sqrt() + eps))


class Adadelta(Optimizer):
    """Steps as large as those before, without a learning rate to choose (Zeiler 2012)."""

    slots = ("square_avg", "acc_delta")
    flags = ("maximize", "capturable", "foreach", "differentiable")

    def __init__(
        self, params: Params, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps,
                                  "weight_decay": weight_decay}, flags)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        gradient = decayed(parameter, gradient, group)
        rho, share = shares(group, "rho", gradient)
        eps = scalar(group.tensor("eps"), gradient)
        square = state["square_avg"] * rho + gradient * gradient * share
        delta = (state["acc_delta"] + eps).sqrt() / (square + eps).sqrt() * gradient
        state["square_avg"].copy_(square)
        state["acc_delta"].copy_(state["acc_delta"] * rho + delta * delta * share)
        parameter.sub_(delta * scalar(group.tensor("lr"), parameter))


class Adamax(Optimizer):
    """Adam with the infinity norm (Kingma and Ba 2014, section 7)."""

    slots = ("exp_avg", "exp_inf")
    flags = ("foreach", "maximize", "differentiable", "capturable")

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: tuple[Rate, Rate] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps,
                                  "weight_decay": weight_decay}, flags)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        gradient = decayed(parameter, gradient, group)
        share = scalar(1 - group.tensor("betas"), gradient)
        beta2 = scalar(group.tensor("betas", 1), gradient)
        eps = scalar(group.tensor("eps"), gradient)
        average = state["exp_avg"] + (gradient - state["exp_avg"]) * share
        largest = call("maximum", state["exp_inf"] * beta2, call("abs", gradient) + eps)
        state["exp_avg"].copy_(average)
        state["exp_inf"].copy_(largest)
        correction = 1 - group.tensor("betas").pow(wide(state["step"]))
        size = scalar(group.tensor("lr") / correction, parameter)
        parameter.sub_(average * size / largest)
