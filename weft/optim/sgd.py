"""SGD with momentum, and Lion."""

from __future__ import annotations

from typing import Any, Unpack

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import decayed, scalar, shrunk
from weft.support.errors import InvalidInputError


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (Sutskever et al. 2013), as torch's."""

    counts_steps = False
    private = ("first",)
    flags = ("maximize", "foreach", "differentiable", "fused")

    def __init__(
        self, params: Params, lr: Rate = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, **flags: Unpack[Flags],
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InvalidInputError("Nesterov momentum needs a momentum and no dampening",
                                    got=f"momentum={momentum}, dampening={dampening}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening,
                                  "weight_decay": weight_decay, "nesterov": nesterov}, flags)

    def slot_names(self, group: ParamGroup, parameter: Tensor) -> tuple[str, ...]:
        if group.is_zero("momentum"):
            return ()
        return ("momentum_buffer",) if group.is_zero("dampening") else ("momentum_buffer", "first")

    def initial(self, name: str, parameter: Tensor, group: ParamGroup) -> Tensor:
        if name == "first":  # 1 until the first step, whose gradient is not dampened
            return call("ones", shape=(), dtype=parameter.dtype.name)
        return super().initial(name, parameter, group)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        gradient = decayed(parameter, gradient, group)
        if not group.is_zero("momentum"):
            gradient = self._with_momentum(gradient, state, group)
        parameter.sub_(gradient * scalar(group.tensor("lr"), parameter))

    def _with_momentum(self, gradient: Tensor, state: State, group: ParamGroup) -> Tensor:
        momentum = scalar(group.tensor("momentum"), gradient)
        buffer = state["momentum_buffer"]
        added = gradient
        if not group.is_zero("dampening"):
            share = scalar(1 - group.tensor("dampening"), gradient)
            first = state["first"]
            added = gradient * (first + (1 - first) * share)
            first.zero_()
        buffer.copy_(buffer * momentum + added)
        return gradient + buffer * momentum if group["nesterov"] else buffer.detach()


class Lion(Optimizer):
    """Steps of one size by the sign of the momentum (Chen et al. 2023)."""

    slots = ("exp_avg",)
    flags = ("maximize",)
    counts_steps = False

    def __init__(
        self, params: Params, lr: Rate = 1e-4, betas: tuple[Rate, Rate] = (0.9, 0.99),
        weight_decay: float = 0.0, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas),
                                  "weight_decay": weight_decay}, flags)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        lr = scalar(group.tensor("lr"), parameter)
        (kept1, new1), (kept2, new2) = (self._shares(group, i, gradient) for i in (0, 1))
        average = state["exp_avg"]
        direction = call("sign", average * kept1 + gradient * new1)
        parameter.copy_(shrunk(parameter.detach(), group) - direction * lr)
        average.copy_(average * kept2 + gradient * new2)

    def _shares(self, group: ParamGroup, index: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """A beta and 1 less it, in the dtype of the gradient."""
        beta = group.tensor("betas", index)
        return scalar(beta, like), scalar(1 - beta, like)
