"""ASGD: gradient descent that keeps the average of its parameters."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import decayed, scalar, wide


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992).

    The state ``ax`` of a parameter is its average from step ``t0`` on.
    """

    slots = ("eta", "mu", "ax")
    flags = ("foreach", "maximize", "differentiable", "capturable")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0,
                                  "weight_decay": weight_decay}, flags)

    def initial(self, name: str, parameter: Tensor, group: ParamGroup) -> Tensor:
        if name == "ax":
            return super().initial(name, parameter, group)
        return Tensor(np.float32(1 if name == "mu" else group["lr"]))

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        steps, lr, lambd = wide(state["step"]), group.tensor("lr"), group.tensor("lambd")
        gradient = decayed(parameter, gradient, group)
        eta = call("where", steps <= 1, lr, wide(state["eta"]))
        value = parameter.detach() * scalar(1 - lambd * eta, parameter)
        value = value - gradient * scalar(eta, parameter)
        mu, average = scalar(state["mu"], parameter), state["ax"]
        average.copy_(call("where", mu == 1, value, average + (value - average) * mu))
        parameter.copy_(value)
        falling = (1 + lambd * lr * steps).pow(group.tensor("alpha"))
        state["eta"].copy_((lr / falling).to("float32"))
        since = call("maximum", steps - group.tensor("t0"), 1.0)
        state["mu"].copy_((1 / since).to("float32"))
